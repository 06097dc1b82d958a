package pods

import (
	"fmt"
	"time"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workloadops"
)

// judge decides between waiting on and giving up: at the deadline, or earlier when a pod of the version aimed at is in trouble that does not pass
// (as long as workloadops.PatienceLimit, or half the deadline when that is shorter). hash is that version's, progress says how far it is.
func judge(s rollout.Subject, seen Observed, hash, progress string, tolerated int32, numbers rollout.MoveResult) Decision {
	deadline := time.Duration(s.DeadlineSeconds) * time.Second
	expired := seen.Elapsed >= deadline
	d := Decision{Action: ActWait, Reason: progress, Numbers: numbers}
	if !seen.PodsSeen {
		if expired {
			d = look("the time is up: see what the pods say")
			d.Numbers = numbers
		}
		return d
	}
	worst, left := trouble(seen, hash, tolerated, deadline)
	if expired || worst != nil && left <= 0 {
		e := failure.New(failure.WorkloadFailed, "%s: %s after %d s: %s", s.Workload, progress, int64(min(seen.Elapsed, deadline)/time.Second), why(seen, hash))
		e.Data = numbers
		return Decision{Action: ActFail, Reason: e.Message, Failure: e, Numbers: numbers}
	}
	if word := podWord(seen, hash); word != "" {
		d.Reason += ": " + word
	}
	if worst != nil {
		d.LookAgain = left
	}
	return d
}

// trouble is the pod whose trouble has lasted longest, and how long it may still last; nil when no more pods are in trouble than are tolerated.
func trouble(seen Observed, hash string, tolerated int32, deadline time.Duration) (*workloadops.Pod, time.Duration) {
	patience := min(deadline/2, workloadops.PatienceLimit)
	var worst *workloadops.Pod
	left, inTrouble := patience, int32(0)
	for _, list := range [][]workloadops.Pod{seen.Pods, extraPods(seen)} {
		for i := range list {
			p := &list[i]
			stuck, hopeless := p.Stuck()
			if !stuck || p.Revision != hash {
				continue
			}
			inTrouble++
			remains := patience - min(seen.Elapsed, seen.Now.Sub(p.Since))
			if hopeless {
				remains = 0
			}
			if worst == nil || remains < left {
				worst, left = p, min(left, remains)
			}
		}
	}
	if inTrouble <= tolerated {
		return nil, 0
	}
	return worst, left
}

func extraPods(seen Observed) []workloadops.Pod {
	if seen.Extra == nil {
		return nil
	}
	return seen.Extra.Pods
}

// why is the best explanation that can be given: a pod's own word, else the workload's, else where to look.
func why(seen Observed, hash string) string {
	if word := podWord(seen, hash); word != "" {
		return word
	}
	if seen.Trouble != "" {
		return "its pods cannot be created: " + seen.Trouble
	}
	if seen.Extra != nil && seen.Extra.Trouble != "" {
		return "the pods of " + seen.Extra.Name + " cannot be created: " + seen.Extra.Trouble
	}
	if seen.Lagging() {
		return "its controller has not looked at the change: is it running?"
	}
	return "no pod says why: look at `kubectl describe` of it"
}

// podWord is the word of a pod that is not ready: "pod order-abc: ImagePullBackOff: Back-off pulling …"; one of the version aimed at in trouble goes first.
func podWord(seen Observed, hash string) string {
	var worst *workloadops.Pod
	best := 0
	for _, list := range [][]workloadops.Pod{seen.Pods, extraPods(seen)} {
		for i := range list {
			p := &list[i]
			if rank := rankOf(*p, hash); rank > best {
				worst, best = p, rank
			}
		}
	}
	if worst == nil {
		return ""
	}
	text := fmt.Sprintf("pod %s: %s", worst.Name, worst.Reason)
	if worst.Message != "" {
		text += ": " + worst.Message
	}
	return text
}

func rankOf(p workloadops.Pod, hash string) int {
	if p.Reason == "" || p.Ready && !p.Deleting || p.Finished {
		return 0
	}
	rank := 1
	if !p.Deleting {
		rank++
	}
	if p.Revision == hash {
		rank += 2
	}
	if stuck, _ := p.Stuck(); stuck {
		rank += 4
	}
	return rank
}
