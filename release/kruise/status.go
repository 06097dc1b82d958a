// Package kruise translates between releases and Rollout objects of rollouts.kruise.io. It computes an object's status
// from its release or from the idle workload, and reads the commands that clients give by changing the status. It only
// decides; it does no I/O.
package kruise

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"

	"slipway.io/slipway/release/digest"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
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
	announced, revision := announcedFor(was, s)
	common.StableRevision = cmp.Or(shownRevision(object, s.StableRevision), announced.StableRevision)
	common.PodTemplateHash = cmp.Or(shownRevision(object, s.PodTemplateHash), announced.PodTemplateHash)
	common.CurrentStepIndex, common.NextStepIndex = int32(s.CurrentStepIndex), int32(s.NextStepIndex)
	common.CurrentStepState = stepState(v)
	common.FinalisingStep = s.FinalisingStep
	common.Message = s.Reason
	common.LastUpdateTime = new(metav1.NewTime(s.LastUpdateTime.Truncate(time.Second)))
	numbers := numbers{revision: cmp.Or(shownRevision(object, s.CanaryRevision), revision),
		replicas: s.CanaryReplicas, ready: s.CanaryReadyReplicas}
	engine := ptr.Deref(was.Slipway, v1beta1.EngineStatus{})
	if before := commonOf(was); v.Ending == rollout.EndNone && before.CurrentStepIndex == common.CurrentStepIndex &&
		before.CurrentStepState == common.CurrentStepState &&
		common.CurrentStepState == string(rollout.StateUpgrade) && was.Slipway != nil && engine.Release == s.Record {
		shown := partOf(&was) // the release counts pods only once they are ready
		numbers.replicas, numbers.ready = max(numbers.replicas, min(*shown.replicas, s.Replicas)),
			max(numbers.ready, min(*shown.ready, s.Replicas))
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
	common.ObservedRolloutID = cmp.Or(s.RolloutID, numbers.revision)
	status := v1beta1.RolloutStatus{ObservedGeneration: max(v.Generation, was.ObservedGeneration), Message: s.Reason,
		Phase: phase(v, object), Conditions: conditions(v, object, now)}
	id, gate := s.RolloutID, v.Gate
	if s.Undo != nil && was.Slipway != nil {
		id = engine.RolloutID // an undo has none: that of the workload is still the last released one
	}
	if end {
		gate = "" // no step waits any more
	}
	fill(&status, object, common, numbers, v1beta1.EngineStatus{Seq: engine.Seq, Gate: gate, Release: s.Record,
		Template: v.Template, RolloutID: id, RolledBack: v.RolledBack, Open: !end, PausedByObject: v.PausedByObject})
	keepUnanswered(&status, was, v)
	return status
}

// shownRevision returns a revision's name as the status shows it: of a CloneSet or a DaemonSet the value of its pods'
// revision label, with which the name ends.
func shownRevision(object *v1beta1.Rollout, name string) string {
	switch ref := object.Spec.WorkloadRef; workload.Of(ref.APIVersion, ref.Kind).Revisions {
	case workload.Suffixed, workload.Labelled:
		return name[strings.LastIndexByte(name, '-')+1:]
	}
	return name
}

// announcedFor returns what the object already showed about a running release. Until the release has claimed its
// workload it does not know its revisions itself. The result is empty if the status is of another release.
func announcedFor(was v1beta1.RolloutStatus, s rollout.Status) (common v1beta1.CommonStatus, revision string) {
	_, announced := announcedAt(was)
	its := announced || was.Slipway != nil && was.Slipway.Release == s.Record
	if !its || s.FinishedAt != nil {
		return v1beta1.CommonStatus{}, ""
	}
	return commonOf(was), *partOf(&was).revision
}

// numbers are the values that the two styles have under different field names.
type numbers struct {
	revision        string
	replicas, ready int32
}

// fill sets the status part of the object's style, and what the engine shows in it; the other part is absent.
func fill(status *v1beta1.RolloutStatus, object *v1beta1.Rollout, common v1beta1.CommonStatus, n numbers,
	engine v1beta1.EngineStatus) {
	status.CurrentStepIndex, status.CurrentStepState = common.CurrentStepIndex, common.CurrentStepState
	common.RolloutHash = StrategyHash(object.Spec.Strategy)
	if object.Spec.Strategy.BlueGreen != nil {
		status.BlueGreenStatus = &v1beta1.BlueGreenStatus{}
	} else {
		status.CanaryStatus = &v1beta1.CanaryStatus{}
	}
	p := partOf(status)
	*p.CommonStatus, *p.revision, *p.replicas, *p.ready = common, n.revision, n.replicas, n.ready
	engine.StepState, engine.NextStepIndex = common.CurrentStepState, common.NextStepIndex
	status.Slipway = &engine
}

// part points to what a status shows of its style.
type part struct {
	*v1beta1.CommonStatus
	revision        *string
	replicas, ready *int32
}

// partOf returns the part that the status has; an empty one, outside of the status, if it has none.
func partOf(s *v1beta1.RolloutStatus) part {
	if c := s.CanaryStatus; c != nil && s.BlueGreenStatus == nil {
		return part{&c.CommonStatus, &c.CanaryRevision, &c.CanaryReplicas, &c.CanaryReadyReplicas}
	}
	b := cmp.Or(s.BlueGreenStatus, &v1beta1.BlueGreenStatus{})
	return part{&b.CommonStatus, &b.UpdatedRevision, &b.UpdatedReplicas, &b.UpdatedReadyReplicas}
}

// commonOf returns the fields that both styles have, from the part that the status has.
func commonOf(s v1beta1.RolloutStatus) v1beta1.CommonStatus { return *partOf(&s).CommonStatus }

// ended reports whether the release has ended and no successor replaces it.
func ended(v rollout.View) bool { return v.Status.FinishedAt != nil && !v.Superseding }

// stepState returns the state of the current step. StepPaused is shown only while the step waits for an approval or a
// timer, also on the way back in batches: not if it is being checked again, has failed, or is being rolled back at
// once.
func stepState(v rollout.View) string {
	s := v.Status
	switch {
	case ended(v) && s.Phase != rollout.PhaseFailed, v.Ending == rollout.EndSuccess, v.Ending == rollout.EndNew:
		return string(rollout.StateCompleted)
	case v.Ending == rollout.EndRollback && s.CurrentStepState == rollout.StatePaused && waitsAtStep(s):
		return string(rollout.StatePaused)
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
	all := conditionList{before: object.Status.Conditions, now: now}
	s, end := v.Status, ended(v)
	all.set(v1beta1.ConditionProgressing, !end || s.Phase == rollout.PhaseFailed, progressingReason(v), s.Reason)
	switch {
	case end && s.Phase == rollout.PhaseHealthy:
		all.set(v1beta1.ConditionSucceeded, true, "", s.Reason)
	case end && (s.Phase == rollout.PhaseRolledBack || s.Phase == rollout.PhaseCancelled):
		all.set(v1beta1.ConditionSucceeded, false, "", s.Reason)
	}
	if object.DeletionTimestamp != nil {
		reason := v1beta1.ReasonInTerminating
		if end {
			reason = v1beta1.ReasonCompleted
		}
		all.set(v1beta1.ConditionTerminating, true, reason, s.Reason)
	}
	if v.Stalled != "" {
		all.set(v1beta1.ConditionStalled, true, stalledReason(v), v.Stalled)
	}
	if unchecked := conditionOf(object.Status.Conditions, v1beta1.ConditionUnchecked); unchecked.Type != "" {
		all.list = append(all.list, unchecked)
	}
	return all.list
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

// conditionList collects the conditions of a status.
type conditionList struct {
	before, list []v1beta1.Condition
	now          time.Time
}

// set adds a condition, with the transition times of the previous one where it has not changed.
func (l *conditionList) set(kind string, is bool, reason, message string) {
	at := metav1.NewTime(l.now.Truncate(time.Second))
	c := v1beta1.Condition{Type: kind, Status: string(corev1.ConditionFalse), Reason: reason, Message: message,
		LastUpdateTime: at, LastTransitionTime: at}
	if is {
		c.Status = string(corev1.ConditionTrue)
	}
	if was := conditionOf(l.before, kind); was.Status == c.Status && was.Reason == c.Reason {
		c.LastTransitionTime = was.LastTransitionTime
		if was.Message == c.Message {
			c.LastUpdateTime = was.LastUpdateTime
		}
	}
	l.list = append(l.list, c)
}

// conditionOf returns the condition of that type; an empty one if there is none.
func conditionOf(list []v1beta1.Condition, kind string) v1beta1.Condition {
	if i := slices.IndexFunc(list, func(c v1beta1.Condition) bool { return c.Type == kind }); i >= 0 {
		return list[i]
	}
	return v1beta1.Condition{}
}

// countEvery is how often the pods of a step are counted while they start. A count is due only within countWithin of
// each interval, so that several processes count at the same time and one of them writes.
const countEvery, countWithin = 3 * time.Second, time.Second

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
	partOf(status).ObservedWorkloadGeneration = w.Generation
	return s.writeStatus(*status, "the workload's controller observed its generation")
}

// counts periodically shows how many pods of a step exist, ready or not.
func (s Snapshot) counts() NextAction {
	since := commonOf(s.Object.Status).LastUpdateTime
	total, ready, known := s.newPods()
	if since == nil || !known {
		return NextAction{Kind: DoNothing}
	}
	status := s.Object.Status.DeepCopy()
	p := partOf(status)
	*p.replicas, *p.ready = total, ready
	next := s.writeStatus(*status, "new pods of the step")
	past := s.Now.Sub(since.Time)
	if due := past >= countEvery && past%countEvery < countWithin; due || next.Kind == DoNothing {
		return next
	}
	return NextAction{Kind: DoNothing, At: since.Add(past.Truncate(countEvery) + countEvery),
		Reason: "pods of the step are counted at the next interval"}
}

// newPods returns how many new pods the release's workload has, or its extra workload; known is false while that can't
// be seen.
func (s Snapshot) newPods() (total, ready int32, known bool) {
	w, e := s.Workload, s.Extra
	switch {
	case w.Saved == nil:
		return 0, 0, false
	case w.Saved.Style == strategy.StyleCanary:
		if e == nil {
			return 0, 0, false
		}
		return e.Total, e.Ready, true
	}
	return w.Updated, w.UpdatedReady(), w.Template == w.Saved.Declared && w.Observed >= w.Generation
}
