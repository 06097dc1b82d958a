package workloadops

import (
	"fmt"
	"sort"
	"time"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
)

// PatienceLimit is how long a trouble that a pod rarely gets over by itself may last before the operation fails early; half the deadline when that is shorter.
const PatienceLimit = 60 * time.Second

// trouble says how a pod's reason is judged.
type trouble int

const (
	noTrouble trouble = iota
	// unclear: it may pass at any time; judged at the deadline only.
	unclear
	// lasting: it rarely passes by itself; fails the operation once it has lasted (PatienceLimit).
	lasting
	// hopeless: it cannot pass; fails the operation at once.
	hopeless
)

var judgement = map[string]trouble{
	"InvalidImageName":           hopeless,
	"ImagePullBackOff":           lasting,
	"ErrImagePull":               lasting,
	"ErrImageNeverPull":          lasting,
	"ImageInspectError":          lasting,
	"RegistryUnavailable":        lasting,
	"CrashLoopBackOff":           lasting,
	"CreateContainerConfigError": lasting,
	"CreateContainerError":       lasting,
	"RunContainerError":          lasting,
	"StartError":                 lasting,
}

func (p Pod) trouble() trouble {
	if p.Ready || p.Deleting || p.Finished {
		return noTrouble
	}
	if t, ok := judgement[p.Reason]; ok {
		return t
	}
	return unclear
}

// Stuck says that the pod is in trouble that it rarely gets over by itself (PatienceLimit), and Hopeless that it never does.
func (p Pod) Stuck() (stuck, isHopeless bool) {
	t := p.trouble()
	return t >= lasting, t == hopeless
}

// wait decides between waiting on, freeing a stuck pod, and giving up: at the deadline, or earlier when a pod is in trouble that does not pass.
// progress says how far it is, like "2 of 3 pods are ready".
func wait(req Request, seen Observed, progress string) Decision {
	deadline := time.Duration(req.DeadlineSeconds) * time.Second
	expired := seen.Elapsed >= deadline
	if expired && !seen.PodsSeen {
		return look("the time is up: see what the pods say")
	}
	var again time.Duration
	if seen.PodsSeen {
		if stuck := stuckPods(req, seen); len(stuck) > 0 && !expired {
			return Decision{Action: ActDelete, Delete: stuck, Reason: fmt.Sprintf("delete %s, which is stuck on an older template: a StatefulSet does not replace it by itself", names(stuck))}
		}
		left, troubled := patienceLeft(req, seen, deadline)
		if expired || troubled && left <= 0 {
			spent := min(seen.Elapsed, deadline).Round(time.Second)
			return abort(req, seen, failure.New(failure.WorkloadFailed, "%s: %s after %d s: %s", req.Workload, progress, int64(spent/time.Second), why(req, seen)))
		}
		if reason := podReason(req, seen); reason != "" {
			progress += ": " + reason
		}
		again = left
	}
	return Decision{Action: ActWait, Reason: progress + meanwhile(seen), LookAgain: again}
}

// patienceLeft is how long the pod whose trouble lasts longest may still have it, and whether there is such a pod; nothing is left to a hopeless one.
// Trouble from before the operation counts from its begin.
func patienceLeft(req Request, seen Observed, deadline time.Duration) (left time.Duration, troubled bool) {
	left = min(deadline/2, PatienceLimit)
	for _, p := range seen.Pods {
		t := p.trouble()
		if t < lasting || !counts(req, p) {
			continue
		}
		troubled = true
		if t == hopeless {
			return 0, true
		}
		left = min(left, min(deadline/2, PatienceLimit)-min(seen.Elapsed, seen.Now.Sub(p.Since)))
	}
	if !troubled {
		return 0, false
	}
	return left, true
}

// counts says whether a pod's trouble is the operation's: STOP takes every pod away, RESTART those from before it.
func counts(req Request, p Pod) bool {
	switch req.Operation {
	case plan.Stop:
		return false
	case plan.Restart:
		return p.Marker == req.Marker
	default:
		return true
	}
}

// stuckPods are pods of an older template that are in lasting trouble and that a StatefulSet which keeps its order would wait for without end.
// They are out already, so that taking them puts no further pod out; one at a time is taken.
func stuckPods(req Request, seen Observed) []Pod {
	if req.Workload.WorkloadRef.Kind != KindStatefulSet || req.Operation == plan.Stop || !seen.OrderedReady || seen.lagging() || seen.Revision == "" ||
		seen.UpdateType != UpdateRolling || onTheirWayOut(seen) > 0 {
		return nil
	}
	var stuck []Pod
	for _, p := range seen.Pods {
		if p.trouble() >= lasting && p.Revision != "" && p.Revision != seen.Revision && p.Ordinal >= seen.FirstOrdinal+seen.Partition {
			stuck = append(stuck, p)
		}
	}
	sort.Slice(stuck, func(i, j int) bool { return stuck[i].Ordinal < stuck[j].Ordinal })
	return stuck[:min(1, len(stuck))]
}

// why is the best explanation that can be given: a pod's own word, else the workload's, else where to look.
func why(req Request, seen Observed) string {
	if reason := podReason(req, seen); reason != "" {
		return reason + meanwhile(seen)
	}
	if seen.Trouble != "" {
		return "its pods cannot be created: " + seen.Trouble + meanwhile(seen)
	}
	if note := meanwhile(seen); note != "" {
		return note[2:]
	}
	if seen.lagging() {
		return "its controller has not looked at the change: is kube-controller-manager running?"
	}
	return "no pod says why: look at `kubectl describe` of it"
}

// podReason is the word of the pod that is in the worst trouble: "pod order-abc: ImagePullBackOff: Back-off pulling …".
func podReason(req Request, seen Observed) string {
	var worst *Pod
	for i := range seen.Pods {
		p := &seen.Pods[i]
		if p.Reason != "" && (!p.Ready || p.Deleting) && !p.Finished && (worst == nil || rank(req, *p) > rank(req, *worst)) {
			worst = p
		}
	}
	if worst == nil {
		return ""
	}
	text := "pod " + worst.Name + ": " + worst.Reason
	if worst.Message != "" {
		text += ": " + worst.Message
	}
	return text
}

// rank orders pods by how much they explain: trouble of pods that count first.
func rank(req Request, p Pod) int {
	r := int(p.trouble()) * 2
	if counts(req, p) {
		r++
	}
	if req.Operation == plan.Stop && p.Deleting {
		r += 10
	}
	return r
}

// meanwhile says what somebody set meanwhile that keeps the workload from moving.
func meanwhile(seen Observed) string {
	switch {
	case seen.Original == nil || seen.Original.Operation != plan.Restart:
		return ""
	case seen.Paused:
		return "; somebody paused it meanwhile: `kubectl rollout resume` lets it go on"
	case seen.UpdateType == UpdateRolling && seen.Partition > 0:
		return fmt.Sprintf("; somebody set its partition to %d meanwhile: 0 lets it go on", seen.Partition)
	}
	return ""
}
