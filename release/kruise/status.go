// Package kruise translates between releases and Rollout objects of rollouts.kruise.io. It computes an object's status
// from its release or from the idle workload, and reads the commands that clients give by changing the status. It only
// decides; it does no I/O.
package kruise

import (
	"encoding/json"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"slipway.io/slipway/release/digest"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// AnnotationHash holds a Rollout's StrategyHash, where other tools look for it.
const AnnotationHash = "rollouts.kruise.io/hash"

// StrategyHash returns the hash of a strategy without its pause and its failureThreshold, in the alphabet of
// Kubernetes' revision hashes.
func StrategyHash(s v1beta1.RolloutStrategy) string {
	s.Paused = false
	if s.Canary != nil {
		c := *s.Canary
		c.FailureThreshold, s.Canary = nil, &c
	}
	if s.BlueGreen != nil {
		b := *s.BlueGreen
		b.FailureThreshold, s.BlueGreen = nil, &b
	}
	raw, err := json.Marshal(s)
	if err != nil {
		return "" // unreachable: plain data always marshals
	}
	return rand.SafeEncodeString(digest.Of(string(raw)))
}

// ReleaseStatus returns the status of an object whose release has the given view.
func ReleaseStatus(v rollout.View, object *v1beta1.Rollout, now time.Time) v1beta1.RolloutStatus {
	was := object.Status
	s := v.Status
	common := commonOf(was)
	common.ObservedWorkloadGeneration = max(s.ObservedWorkloadGeneration, common.ObservedWorkloadGeneration)
	common.ObservedRolloutID = s.RolloutID
	common.RolloutHash = StrategyHash(object.Spec.Strategy)
	announced, revision := announcedFor(was, s)
	common.StableRevision = orElse(s.StableRevision, announced.StableRevision)
	common.PodTemplateHash = orElse(s.PodTemplateHash, announced.PodTemplateHash)
	common.CurrentStepIndex, common.NextStepIndex = int32(s.CurrentStepIndex), int32(s.NextStepIndex)
	common.CurrentStepState = stepState(v)
	common.FinalisingStep = s.FinalisingStep
	common.Message = s.Reason
	at := metav1.NewTime(s.LastUpdateTime.Truncate(time.Second))
	common.LastUpdateTime = &at
	numbers := numbers{revision: orElse(s.CanaryRevision, revision), replicas: s.CanaryReplicas,
		ready: s.CanaryReadyReplicas}
	if before := commonOf(was); v.Ending == rollout.EndNone && before.CurrentStepIndex == common.CurrentStepIndex &&
		before.CurrentStepState == common.CurrentStepState &&
		common.CurrentStepState == string(rollout.StateUpgrade) && was.Slipway != nil &&
		was.Slipway.Release == s.Record {
		replicas, ready := countsOf(was) // the release counts pods only once they are ready
		numbers.replicas, numbers.ready = max(numbers.replicas, min(replicas, s.Replicas)),
			max(numbers.ready, min(ready, s.Replicas))
	}
	end := ended(v)
	switch {
	// the new revision serves everywhere: it is the stable one of the next release
	case end && s.Phase == rollout.PhaseHealthy:
		common.StableRevision = numbers.revision
		common.CurrentStepIndex, common.NextStepIndex = int32(steps(object)), -1
	case end:
		common.NextStepIndex = -1
	}
	if common.ObservedRolloutID == "" {
		common.ObservedRolloutID = numbers.revision
	}
	status := v1beta1.RolloutStatus{ObservedGeneration: max(v.Generation, was.ObservedGeneration), Message: s.Reason,
		Phase: phase(v, object)}
	fill(&status, object, common, numbers)
	status.Conditions = conditions(v, object, now)
	gate := v.Gate
	if end {
		gate = "" // no step waits any more
	}
	status.Slipway = &v1beta1.EngineStatus{StepState: common.CurrentStepState, NextStepIndex: common.NextStepIndex,
		Gate:    gate,
		Release: s.Record, Template: v.Template, RolloutID: s.RolloutID, RolledBack: v.RolledBack, Open: !end,
		PausedByObject: v.PausedByObject}
	if was.Slipway != nil {
		status.Slipway.Seq = was.Slipway.Seq
		if s.Undo != nil { // an undo has no rollout-id: that of the workload is still the last released one
			status.Slipway.RolloutID = was.Slipway.RolloutID
		}
	}
	return status
}

// announcedFor returns what the object already showed about a running release. Until the release has claimed its
// workload it does not know its revisions itself. The result is empty if the status is of another release.
func announcedFor(was v1beta1.RolloutStatus, s rollout.Status) (common v1beta1.CommonStatus, revision string) {
	_, announced := announcedAt(was)
	its := announced || was.Slipway != nil && was.Slipway.Release == s.Record
	if !its || s.FinishedAt != nil {
		return v1beta1.CommonStatus{}, ""
	}
	return commonOf(was), revisionOf(was)
}

// numbers are the values that the two styles have under different field names.
type numbers struct {
	revision        string
	replicas, ready int32
}

// fill sets the status part of the object's style; the other part is absent.
func fill(status *v1beta1.RolloutStatus, object *v1beta1.Rollout, common v1beta1.CommonStatus, n numbers) {
	status.CurrentStepIndex, status.CurrentStepState = common.CurrentStepIndex, common.CurrentStepState
	if object.Spec.Strategy.BlueGreen != nil {
		status.BlueGreenStatus = &v1beta1.BlueGreenStatus{CommonStatus: common, UpdatedRevision: n.revision,
			UpdatedReplicas:      n.replicas,
			UpdatedReadyReplicas: n.ready}
		return
	}
	status.CanaryStatus = &v1beta1.CanaryStatus{CommonStatus: common, CanaryRevision: n.revision,
		CanaryReplicas:      n.replicas,
		CanaryReadyReplicas: n.ready}
}

// commonOf returns the fields that both styles have, from the part that the status has.
func commonOf(s v1beta1.RolloutStatus) v1beta1.CommonStatus {
	if c := commonPart(&s); c != nil {
		return *c
	}
	return v1beta1.CommonStatus{}
}

// ended reports whether the release has ended and no successor replaces it.
func ended(v rollout.View) bool { return v.Status.FinishedAt != nil && !v.Superseding }

// stepState returns the state of the current step. StepPaused is shown only while the step waits for an approval or a
// timer: not if it is being checked again, has failed, or is being rolled back.
func stepState(v rollout.View) string {
	s := v.Status
	switch {
	case ended(v) && s.Phase != rollout.PhaseFailed, v.Ending == rollout.EndSuccess, v.Ending == rollout.EndNew:
		return string(rollout.StateCompleted)
	case v.Ending != rollout.EndNone:
		return string(rollout.StateUpgrade)
	case s.CurrentStepState != rollout.StatePaused, s.Paused && v.Stalled == "", waitsAtStep(s):
		return string(s.CurrentStepState)
	}
	return string(rollout.StateUpgrade)
}

func waitsAtStep(s rollout.Status) bool {
	return s.WaitingFor != nil && (s.WaitingFor.Kind == rollout.WaitApproval || s.WaitingFor.Kind == rollout.WaitTimer)
}

// phase returns the phase of the object.
func phase(v rollout.View, object *v1beta1.Rollout) v1beta1.RolloutPhase {
	switch {
	case object.DeletionTimestamp != nil:
		return v1beta1.PhaseTerminating
	case ended(v) && v.Status.Phase == rollout.PhaseFailed:
		return v1beta1.PhaseProgressing
	case ended(v) && object.Spec.Disabled:
		return v1beta1.PhaseDisabled
	case ended(v):
		return v1beta1.PhaseHealthy
	case object.Spec.Disabled:
		return v1beta1.PhaseDisabling
	}
	return v1beta1.PhaseProgressing
}

// conditions returns the object's conditions, each with the time since when it holds.
func conditions(v rollout.View, object *v1beta1.Rollout, now time.Time) []v1beta1.Condition {
	var list []v1beta1.Condition
	set := func(kind string, is bool, reason, message string) {
		list = append(list, condition(object.Status.Conditions, now,
			v1beta1.Condition{Type: kind, Status: statusOf(is), Reason: reason,
				Message: message}))
	}
	s, end := v.Status, ended(v)
	set(v1beta1.ConditionProgressing, !end || s.Phase == rollout.PhaseFailed, progressingReason(v), s.Reason)
	switch {
	case end && s.Phase == rollout.PhaseHealthy:
		set(v1beta1.ConditionSucceeded, true, "", s.Reason)
	case end && (s.Phase == rollout.PhaseRolledBack || s.Phase == rollout.PhaseCancelled):
		set(v1beta1.ConditionSucceeded, false, "", s.Reason)
	}
	if object.DeletionTimestamp != nil {
		reason := v1beta1.ReasonInTerminating
		if end {
			reason = v1beta1.ReasonCompleted
		}
		set(v1beta1.ConditionTerminating, true, reason, s.Reason)
	}
	if v.Stalled != "" {
		set(v1beta1.ConditionStalled, true, stalledReason(v), v.Stalled)
	}
	return list
}

// The reasons of ConditionStalled.
const (
	reasonFailed = "Failed"
	reasonDrift  = "Drift"
	// reasonRedeclared: the workload declares another version than the one that is released.
	reasonRedeclared = "Redeclared"
)

func stalledReason(v rollout.View) string {
	if v.Redeclared {
		return reasonRedeclared
	}
	if v.Status.WaitingFor != nil && v.Status.WaitingFor.Kind == rollout.WaitDrift {
		return reasonDrift
	}
	return reasonFailed
}

func progressingReason(v rollout.View) string {
	switch {
	case ended(v) && v.Status.Phase != rollout.PhaseFailed:
		return v1beta1.ReasonCompleted
	case v.Ending == rollout.EndSuccess, v.Ending == rollout.EndNew, v.Ending == rollout.EndDetached:
		return v1beta1.ReasonFinalising
	case v.Superseding:
		return v1beta1.ReasonInRolling
	case v.Ending != rollout.EndNone:
		return v1beta1.ReasonCancelling
	case v.Status.Paused:
		return v1beta1.ReasonPaused
	}
	return v1beta1.ReasonInRolling
}

func statusOf(is bool) string {
	if is {
		return string(corev1.ConditionTrue)
	}
	return string(corev1.ConditionFalse)
}

// condition returns c with the transition times of the previous condition where it has not changed.
func condition(before []v1beta1.Condition, now time.Time, c v1beta1.Condition) v1beta1.Condition {
	at := metav1.NewTime(now.Truncate(time.Second))
	c.LastUpdateTime, c.LastTransitionTime = at, at
	i := slices.IndexFunc(before, func(b v1beta1.Condition) bool { return b.Type == c.Type })
	if i < 0 {
		return c
	}
	if was := before[i]; was.Status == c.Status && was.Reason == c.Reason {
		c.LastTransitionTime = was.LastTransitionTime
		if was.Message == c.Message {
			c.LastUpdateTime = was.LastUpdateTime
		}
	}
	return c
}

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
