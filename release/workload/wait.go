package workload

import (
	"fmt"
	"time"

	"slipway.io/slipway/release/failure"
)

// PatienceLimit is how long a pod may have a problem that rarely passes by itself, before the job fails early. It is
// half the deadline if that is shorter.
const PatienceLimit = 60 * time.Second

// BudgetRetryInterval is the time between two attempts of an eviction that a PodDisruptionBudget refuses: budgets are
// not watched.
const BudgetRetryInterval = 2 * time.Second

// Waiting is a job that waits until the pods of a workload are as it needs them. Its Pods may include those of another
// workload.
type Waiting struct {
	Snapshot
	Workload fmt.Stringer
	Deadline time.Duration
	// Progress is how far the job is: "2 of 3 pods are ready".
	Progress string
	// CanFail reports whether a problem of a pod can fail the job; Tolerated is how many such pods may be stuck.
	CanFail   func(Pod) bool
	Tolerated int32
	// PodReason is the reason of the worst pod, "" if none has one; Explanation says why the job has come no further.
	PodReason, Explanation string
}

// Next decides whether to wait or to fail: at the deadline, or earlier if a pod has a problem that does not pass.
func (w Waiting) Next() NextAction {
	expired := w.Elapsed >= w.Deadline
	switch {
	case !w.PodsSeen && expired:
		return Next(ActReadPods, "the deadline has passed: read the pods' status")
	case !w.PodsSeen:
		return Next(ActWait, w.Progress)
	}
	left, stuck := PatienceLimit, int32(0)
	for _, p := range w.Pods {
		if p.Stuck() && w.CanFail(p) {
			stuck++
			left = min(left, w.patienceLeft(p))
		}
	}
	troubled := stuck > w.Tolerated
	if expired || troubled && left <= 0 {
		return Fail(failure.New(failure.WorkloadFailed, "%s: %s after %d s: %s", w.Workload, w.Progress,
			int64(min(w.Elapsed, w.Deadline)/time.Second), w.Explanation))
	}
	d := Next(ActWait, w.Progress)
	if w.PodReason != "" {
		d.Reason += ": " + w.PodReason
	}
	if troubled {
		d.RecheckAfter = left
	}
	return d
}

// patienceLeft returns how long a stuck pod may remain stuck; 0 if its problem cannot pass. A problem from before the
// job counts from the start of the job.
func (w Waiting) patienceLeft(p Pod) time.Duration {
	if p.Severity() == fatal {
		return 0
	}
	patience := min(w.Deadline/2, PatienceLimit)
	return min(patience, patience-min(w.Elapsed, w.Now.Sub(p.Since)))
}

// WorstPodReason returns the reason of the pod with the highest rank: "pod order-abc: ImagePullBackOff: Back-off
// pulling"; "" if no pod has one.
func WorstPodReason(pods []Pod, rank func(Pod) int) string {
	var worst *Pod
	for i := range pods {
		p := &pods[i]
		if p.Reason != "" && (!p.Ready || p.Deleting) && !p.Finished && (worst == nil || rank(*p) > rank(*worst)) {
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

// Rank returns a rank by what holds, the most important first.
func Rank(holds ...bool) (rank int) {
	for _, is := range holds {
		if rank *= 2; is {
			rank++
		}
	}
	return rank
}
