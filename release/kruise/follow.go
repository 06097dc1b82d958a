package kruise

import (
	"time"

	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// countEvery is how often the pods of a step are counted while they come. Each time that is past for no more than countWithin, so that several
// processes count at the same time, and write once.
const countEvery, countWithin = 10 * time.Second, time.Second

// follow shows what of a workload under release nobody is told otherwise.
func (s Seen) follow() NextAction {
	switch commonOf(s.Object.Status).CurrentStepState {
	case string(rollout.StatePaused):
		return s.generation()
	case string(rollout.StateUpgrade):
		return s.counts()
	}
	return NextAction{Do: DoNothing}
}

// generation shows which generation of the workload has been looked at, while a step rests: until then the release's own writes change it.
func (s Seen) generation() NextAction {
	w := s.Workload
	if commonOf(s.Object.Status).ObservedWorkloadGeneration >= w.Generation || w.Observed < w.Generation {
		return NextAction{Do: DoNothing}
	}
	status := s.Object.Status.DeepCopy()
	if c := commonPart(status); c != nil {
		c.ObservedWorkloadGeneration = w.Generation
	}
	return s.show(*status, "the workload was looked at")
}

// counts shows now and then how many pods of a step have come. Those of an extra workload are counted when they are there.
func (s Seen) counts() NextAction {
	w, since := s.Workload, commonOf(s.Object.Status).LastUpdateTime
	if since == nil || w.Saved == nil || w.Template != w.Saved.Declared || w.Saved.Style == strategy.StyleCanary || w.Observed < w.Generation {
		return NextAction{Do: DoNothing}
	}
	status := s.Object.Status.DeepCopy()
	setCounts(status, w.Updated, w.UpdatedReady())
	next := s.show(*status, "pods of the step have come")
	past := s.Now.Sub(since.Time)
	if due := past >= countEvery && past%countEvery < countWithin; due || next.Do == DoNothing {
		return next
	}
	return NextAction{Do: DoNothing, At: since.Add(past.Truncate(countEvery) + countEvery), Reason: "pods of the step are counted then"}
}

// commonPart is what both styles tell, in whichever part the status has it; nil when it has none.
func commonPart(s *v1beta1.RolloutStatus) *v1beta1.CommonStatus {
	switch {
	case s.BlueGreenStatus != nil:
		return &s.BlueGreenStatus.CommonStatus
	case s.CanaryStatus != nil:
		return &s.CanaryStatus.CommonStatus
	}
	return nil
}

func setCounts(s *v1beta1.RolloutStatus, replicas, ready int32) {
	switch {
	case s.BlueGreenStatus != nil:
		s.BlueGreenStatus.UpdatedReplicas, s.BlueGreenStatus.UpdatedReadyReplicas = replicas, ready
	case s.CanaryStatus != nil:
		s.CanaryStatus.CanaryReplicas, s.CanaryStatus.CanaryReadyReplicas = replicas, ready
	}
}

// countsOf are the pods of the new version that a status tells of, and how many of them are ready.
func countsOf(s v1beta1.RolloutStatus) (replicas, ready int32) {
	switch {
	case s.BlueGreenStatus != nil:
		return s.BlueGreenStatus.UpdatedReplicas, s.BlueGreenStatus.UpdatedReadyReplicas
	case s.CanaryStatus != nil:
		return s.CanaryStatus.CanaryReplicas, s.CanaryStatus.CanaryReadyReplicas
	}
	return 0, 0
}
