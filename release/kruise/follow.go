package kruise

import (
	"time"

	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// countEvery is how often the pods of a step are counted while they start. A count is due only within countWithin of
// each interval, so that several processes count at the same time and one of them writes.
const countEvery, countWithin = 10 * time.Second, time.Second

// follow shows the facts about a workload in a release that neither the release nor an event reports.
func (s Snapshot) follow() NextAction {
	switch commonOf(s.Object.Status).CurrentStepState {
	case string(rollout.StatePaused):
		return s.generation()
	case string(rollout.StateUpgrade):
		return s.counts()
	}
	return NextAction{Kind: DoNothing}
}

// generation shows the observed generation of the workload while a step waits. Earlier the release's own writes still
// change it.
func (s Snapshot) generation() NextAction {
	w := s.Workload
	if commonOf(s.Object.Status).ObservedWorkloadGeneration >= w.Generation || w.Observed < w.Generation {
		return NextAction{Kind: DoNothing}
	}
	status := s.Object.Status.DeepCopy()
	if c := commonPart(status); c != nil {
		c.ObservedWorkloadGeneration = w.Generation
	}
	return s.writeStatus(*status, "the workload's controller observed its generation")
}

// counts periodically shows how many pods of a step exist. Pods of an extra workload (style canary) are counted by the
// release once they are ready.
func (s Snapshot) counts() NextAction {
	w, since := s.Workload, commonOf(s.Object.Status).LastUpdateTime
	if since == nil || w.Saved == nil || w.Template != w.Saved.Declared || w.Saved.Style == strategy.StyleCanary ||
		w.Observed < w.Generation {
		return NextAction{Kind: DoNothing}
	}
	status := s.Object.Status.DeepCopy()
	setCounts(status, w.Updated, w.UpdatedReady())
	next := s.writeStatus(*status, "new pods of the step")
	past := s.Now.Sub(since.Time)
	if due := past >= countEvery && past%countEvery < countWithin; due || next.Kind == DoNothing {
		return next
	}
	return NextAction{Kind: DoNothing, At: since.Add(past.Truncate(countEvery) + countEvery),
		Reason: "pods of the step are counted at the next interval"}
}

// commonPart returns the fields that both styles have, from the part that the status has; nil if it has none.
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

// countsOf returns how many pods of the new version a status shows, and how many of them are ready.
func countsOf(s v1beta1.RolloutStatus) (replicas, ready int32) {
	switch {
	case s.BlueGreenStatus != nil:
		return s.BlueGreenStatus.UpdatedReplicas, s.BlueGreenStatus.UpdatedReadyReplicas
	case s.CanaryStatus != nil:
		return s.CanaryStatus.CanaryReplicas, s.CanaryStatus.CanaryReadyReplicas
	}
	return 0, 0
}
