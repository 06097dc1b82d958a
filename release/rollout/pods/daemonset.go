package pods

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// byDeletion moves the pods of a Kubernetes DaemonSet, which has no partition. Its controller is kept from replacing
// pods (OnDelete); the engine deletes pods by name, within the workload's maxUnavailable, and the controller recreates
// them from the live template. During a pause no pod is deleted.
type byDeletion struct{ partitioned }

var onDelete = json.RawMessage(`{"type":"OnDelete"}`)

// refusalReason refuses update types that deletion by name cannot replace.
func (k byDeletion) refusalReason(seen Observed) string {
	if reason := k.partitioned.refusalReason(seen); reason != "" {
		return reason
	}
	if unavailableOf(seen.Settings[pathUpdateStrategy], seen.Replicas) == 0 {
		return "allows no unavailable pod (maxUnavailable 0 with maxSurge), but a step of a rollout replaces its " +
			"pods by deletion: set maxUnavailable to at least 1 first"
	}
	return ""
}

// next sets template and update type in one write, then deletes pods of the other version.
func (byDeletion) next(t task, seen Observed) NextAction {
	if !t.Placed && t.Target == 0 && t.Total == 0 {
		return done("no pod is asked for yet")
	}
	w := t.write("on-delete", seen.settingsToWrite(workload.Setting{Path: pathUpdateStrategy, Value: onDelete}))
	switch {
	case !t.Placed:
		return set("set the template, and keep its controller from replacing pods by itself", w)
	case !empty(w):
		return set("keep its controller from replacing pods by itself", w)
	case t.Aim.Hash == "":
		return wait("its controller has not made the revision yet")
	case t.Total >= t.Target:
		return done("")
	case seen.Lagging(): // a controller that still goes by another update type may be deleting a pod of this snapshot
		return wait("its controller has not seen update type OnDelete yet")
	}
	if list := podsToDelete(t, seen); len(list) > 0 {
		return remove(list, "delete %d pods, to be recreated in that version", len(list))
	}
	return wait("")
}

// podsToDelete returns the pods to delete: unavailable ones first, then as many available ones as the limits allow. A
// node without a pod gets a new one anyway.
func podsToDelete(t task, seen Observed) []workload.Pod {
	live := seen.CountPods(workload.Pod.Alive)
	serving := seen.CountPods(func(p workload.Pod) bool { return p.Alive() && p.Available })
	unready := seen.CountPods(func(p workload.Pod) bool {
		return p.Alive() && !p.Available && p.Revision == t.Aim.Hash
	})
	others := slices.DeleteFunc(slices.Clone(seen.Pods), func(p workload.Pod) bool {
		return !p.Alive() || p.Revision == t.Aim.Hash
	})
	slices.SortFunc(others, func(a, b workload.Pod) int {
		return cmp.Or(workload.Rank(a.Available)-workload.Rank(b.Available), cmp.Compare(a.Name, b.Name))
	})
	need := t.Target - t.Total - max(t.Size-live, 0)
	may := unavailableOf(seen.savedSetting(pathUpdateStrategy), t.Size) - (t.Size - serving) + min(t.Tolerated, unready)
	var list []workload.Pod
	for _, p := range others {
		if int32(len(list)) >= need || p.Available && may <= 0 {
			break
		}
		if p.Available {
			may--
		}
		list = append(list, p)
	}
	return list
}

// BudgetNotice reports in advance how a PodDisruptionBudget affects a rollout that deletes pods by itself, "" if it
// does not.
func BudgetNotice(w catalog.Workload, seen Observed, b workload.Budget) string {
	own := unavailableOf(seen.Settings[pathUpdateStrategy], seen.Replicas)
	switch {
	case b.Allowed == 0:
		return fmt.Sprintf("%s: PodDisruptionBudget %s lets none of its pods go now: each step waits until it does, "+
			"and fails at its deadline", w, b.Name)
	case b.Allowed < own:
		return fmt.Sprintf("%s: PodDisruptionBudget %s lets %d of its pods go at a time, fewer than its "+
			"maxUnavailable (%d)", w, b.Name, b.Allowed, own)
	}
	return ""
}

// unavailableOf returns a DaemonSet's maxUnavailable in pods: a share is rounded up, and the default is 1 (Kubernetes
// API).
func unavailableOf(raw json.RawMessage, size int32) int32 {
	own := intstr.FromInt32(1)
	if s := parseStrategy(raw); s.RollingUpdate.MaxUnavailable != nil {
		own = *s.RollingUpdate.MaxUnavailable
	}
	return strategy.PodsRoundedUp(own, size)
}

// pauseSettings changes nothing at the end of a step. In the middle of one it sets OnDelete, since the controller may
// be replacing pods.
func (byDeletion) pauseSettings(t task, _ Observed) []workload.Setting {
	if !t.Request.Halt || !t.Placed {
		return nil
	}
	return []workload.Setting{{Path: pathUpdateStrategy, Value: onDelete}}
}
