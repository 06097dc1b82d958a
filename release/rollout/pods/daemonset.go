package pods

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workloadops"
)

// byDeletion moves the pods of a DaemonSet of Kubernetes, which has no partition: its controller is told to leave the pods alone (OnDelete), and they are deleted by
// name, within its own maxUnavailable; the controller makes them anew from the live template.
type byDeletion struct{}

var onDelete = json.RawMessage(`{"type":"OnDelete"}`)

func (byDeletion) Pointers() []string { return []string{pathUpdateStrategy} }

func (byDeletion) ByPods() bool { return true }

func (byDeletion) untouched() bool { return false }

// Refuses update types that deletion cannot stand in for.
func (byDeletion) Refuses(seen Observed) string {
	s := parseStrategy(seen.Settings[pathUpdateStrategy])
	if s.Type == workloadops.UpdateOnDelete {
		return "updates its pods only when somebody deletes them (update type OnDelete): set its update type to RollingUpdate first"
	}
	if unavailableOf(seen.Settings[pathUpdateStrategy], seen.Replicas) == 0 {
		return "allows no pod to be out (maxUnavailable 0 with maxSurge), but a step of a rollout replaces its pods by deletion: set maxUnavailable to at least 1 first"
	}
	return ""
}

// Stable is the revision of the live template.
func (byDeletion) Stable(seen Observed) (Revision, bool) { return liveRevision(seen) }

// Next sets template and update type in one write, then deletes pods of the other version.
func (byDeletion) Next(t Task, seen Observed) Decision {
	if !t.Placed && t.Target == 0 && t.Total == 0 {
		return Done("no pod is asked for yet")
	}
	w := &Write{Step: "on-delete", Settings: changed([]Setting{{pathUpdateStrategy, onDelete}}, seen)}
	if !t.Placed {
		template := t.Template
		w.Template = &template
	}
	switch {
	case w.Template != nil:
		return Set("set the template, and keep its controller from replacing pods by itself", w)
	case len(w.Settings) > 0:
		return Set("keep its controller from replacing pods by itself", w)
	case t.Aim.Hash == "":
		return Wait("its controller has not made the revision yet")
	case t.Total >= t.Target:
		return Done("")
	}
	if turn := nextToGo(t, seen); len(turn) > 0 {
		return Decision{Action: ActDelete, Delete: turn, Reason: fmt.Sprintf("delete %d pods, to be made anew of that version", len(turn))}
	}
	return Wait("")
}

// nextToGo are the pods to delete now: those that do not serve first, which costs nothing; of the others as many as may be out. A node without a pod gets one of
// the live template.
func nextToGo(t Task, seen Observed) []workloadops.Pod {
	var others []workloadops.Pod
	var live, serving, unready int32
	for _, p := range seen.Pods {
		if p.Deleting || p.Finished {
			continue
		}
		live++
		if p.Available {
			serving++
		}
		switch {
		case p.Revision != t.Aim.Hash:
			others = append(others, p)
		case !p.Available:
			unready++
		}
	}
	slices.SortFunc(others, func(a, b workloadops.Pod) int {
		if a.Available != b.Available {
			if b.Available {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	need := t.Target - t.Total - max(t.Size-live, 0)
	may := unavailableOf(seen.Saved.Settings[pathUpdateStrategy], t.Size) - (t.Size - serving) + min(t.Tolerated, unready)
	var turn []workloadops.Pod
	for _, p := range others {
		if int32(len(turn)) >= need || p.Available && may <= 0 {
			break
		}
		if p.Available {
			may--
		}
		turn = append(turn, p)
	}
	return turn
}

// unavailableOf is a DaemonSet's maxUnavailable in pods: a share is rounded up, and 1 is the default (Kubernetes API).
func unavailableOf(raw json.RawMessage, size int32) int32 {
	own := intstr.FromInt32(1)
	if s := parseStrategy(raw); s.RollingUpdate.MaxUnavailable != nil {
		own = *s.RollingUpdate.MaxUnavailable
	}
	return strategy.ShareUp(own, size)
}

// Rest changes nothing: a controller that deletes nothing is no danger.
func (byDeletion) Rest(Task, Observed) []Setting { return nil }

// Home gives the update type back: the controller replaces what is left by itself, pods that do not serve first.
func (byDeletion) Home(seen Observed) (first, last []Setting) {
	return []Setting{{pathUpdateStrategy, seen.Saved.Settings[pathUpdateStrategy]}}, nil
}

// Unstick has nothing to do: the controller replaces broken pods.
func (byDeletion) Unstick(Revision, Observed) Decision { return Decision{} }
