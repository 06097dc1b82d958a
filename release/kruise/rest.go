package kruise

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
)

// Beginning is how long a Rollout may still be edited whole after its workload was changed.
const Beginning = 3 * time.Second

// Resting is the status of an object without a release: its workload as it is, all steps done, so that one look tells whether it is whole.
func Resting(object *v1beta1.Rollout, w *Workload, now time.Time) v1beta1.RolloutStatus {
	was := object.Status
	status := v1beta1.RolloutStatus{ObservedGeneration: object.Generation, Phase: v1beta1.PhaseHealthy, Conditions: kept(was.Conditions)}
	engine := v1beta1.EngineStatus{}
	if was.Slipway != nil {
		engine = *was.Slipway
	}
	engine.Gate, engine.Open, engine.By = "", false, ""
	engine.RolloutID = restingID(object, w)
	switch {
	case object.Spec.Disabled:
		status.Phase, status.Message = v1beta1.PhaseDisabled, "disabled: the workload's own controller replaces its pods"
	case w == nil:
		status.Phase = v1beta1.PhaseInitial
		status.Message = fmt.Sprintf("%s %s does not exist yet", object.Spec.WorkloadRef.Kind, object.Spec.WorkloadRef.Name)
	default:
		status.Message = orElse(endOf(status.Conditions), "the workload is whole: a change of its pod template begins a release")
	}
	if w == nil {
		engine.Template = ""
		status.Slipway = &engine
		return status
	}
	common := commonOf(was)
	common.ObservedWorkloadGeneration, common.RolloutHash = w.Generation, StrategyHash(object.Spec.Strategy)
	revision := orElse(w.Revision, revisionOf(was))
	common.ObservedRolloutID = orElse(w.RolloutID, revision)
	common.StableRevision, common.PodTemplateHash = revision, hashOfRevision(w, revision)
	common.CurrentStepIndex, common.NextStepIndex = int32(steps(object)), -1
	common.CurrentStepState, common.FinalisingStep = string(rollout.StateCompleted), ""
	common.Message = status.Message
	if common.LastUpdateTime == nil || was.Phase != status.Phase {
		at := metav1.NewTime(now.Truncate(time.Second))
		common.LastUpdateTime = &at
	}
	fill(&status, object, common, numbers{revision: revision, replicas: w.Updated, ready: w.UpdatedReady()})
	engine.StepState, engine.NextStepIndex, engine.Template = common.CurrentStepState, common.NextStepIndex, w.Template
	status.Slipway = &engine
	return status
}

// restingID is the rollout-id that needs no release: the one that was released last, or that the workload has when it is first seen, is disabled, or
// has no pods.
func restingID(object *v1beta1.Rollout, w *Workload) string {
	engine := object.Status.Slipway
	switch {
	case w == nil:
		return ""
	case engine == nil || engine.Template == "" || shownID(object.Status) == w.RolloutID || object.Spec.Disabled || w.RolloutID == "" || w.Size == 0:
		return w.RolloutID
	}
	return engine.RolloutID
}

// shownID is the rollout-id that a status tells of where the engine's own note of it is missing: an earlier build wrote it, or the definition drops the
// field.
func shownID(s v1beta1.RolloutStatus) string {
	if s.Slipway != nil && s.Slipway.RolloutID != "" {
		return s.Slipway.RolloutID
	}
	return commonOf(s).ObservedRolloutID
}

// renumbered says that a workload at rest has another rollout-id than the one that was released last.
func renumbered(object *v1beta1.Rollout, w *Workload) bool {
	engine := object.Status.Slipway
	if object.Status.Phase == v1beta1.PhaseHealthy && shownID(object.Status) == w.RolloutID {
		return false
	}
	return engine != nil && w.Next == "" && engine.Template == w.Template && w.RolloutID != "" && w.Size > 0 && w.RolloutID != engine.RolloutID
}

// endOf is how the last release ended, in words; "" where there was none.
func endOf(list []v1beta1.Condition) string {
	for _, c := range list {
		if c.Type == v1beta1.ConditionProgressing {
			return c.Message
		}
	}
	return ""
}

// kept are the conditions of the last release, which stay until the next one: but for what only held while it ran.
func kept(before []v1beta1.Condition) (list []v1beta1.Condition) {
	for _, c := range before {
		if c.Type == v1beta1.ConditionSucceeded || c.Type == v1beta1.ConditionProgressing && c.Status == statusOf(false) {
			list = append(list, c)
		}
	}
	return list
}

// Announced is the status of an object whose release is about to begin: until then the object may be edited whole. why is what keeps it from
// beginning, "" when nothing does.
func Announced(object *v1beta1.Rollout, w *Workload, why string, now time.Time) v1beta1.RolloutStatus {
	was := object.Status
	text := "the workload's pod template has changed: its release is about to begin"
	switch {
	case why != "":
		text = why
	case renumbered(object, w):
		text = "the workload's rollout-id has changed: its release is about to begin"
	}
	common := commonOf(was)
	common.ObservedWorkloadGeneration, common.RolloutHash = w.Generation, StrategyHash(object.Spec.Strategy)
	common.ObservedRolloutID = orElse(w.RolloutID, w.Revision)
	common.PodTemplateHash = hashOfRevision(w, w.Revision)
	common.CurrentStepIndex, common.NextStepIndex = 1, nextOf(object)
	common.CurrentStepState, common.FinalisingStep, common.Message = string(rollout.StateBeforeUpgrade), "", text
	if was.Phase != v1beta1.PhaseProgressing {
		at := metav1.NewTime(now.Truncate(time.Second))
		common.LastUpdateTime = &at
	}
	status := v1beta1.RolloutStatus{ObservedGeneration: object.Generation, Phase: v1beta1.PhaseProgressing, Message: text}
	fill(&status, object, common, numbers{revision: w.Revision})
	set := func(kind, reason string) {
		status.Conditions = append(status.Conditions, condition(was.Conditions, now, v1beta1.Condition{Type: kind, Status: statusOf(true),
			Reason: reason, Message: text}))
	}
	set(v1beta1.ConditionProgressing, v1beta1.ReasonInitializing)
	if why != "" {
		set(v1beta1.ConditionStalled, reasonFailed)
	}
	engine := v1beta1.EngineStatus{}
	if was.Slipway != nil {
		engine = *was.Slipway
	}
	engine.StepState, engine.NextStepIndex, engine.Gate, engine.By, engine.Open = common.CurrentStepState, common.NextStepIndex, "", "", false
	status.Slipway = &engine
	return status
}

// nextOf is the step after the first.
func nextOf(object *v1beta1.Rollout) int32 {
	if steps(object) > 1 {
		return 2
	}
	return -1
}

func steps(object *v1beta1.Rollout) int {
	switch s := object.Spec.Strategy; {
	case s.BlueGreen != nil:
		return len(s.BlueGreen.Steps)
	case s.Canary != nil:
		return len(s.Canary.Steps)
	}
	return 0
}

// revisionOf is the newest revision that a status tells.
func revisionOf(s v1beta1.RolloutStatus) string {
	switch {
	case s.BlueGreenStatus != nil:
		return s.BlueGreenStatus.UpdatedRevision
	case s.CanaryStatus != nil:
		return s.CanaryStatus.CanaryRevision
	}
	return ""
}

func orElse(text, other string) string {
	if text != "" {
		return text
	}
	return other
}

// hashOfRevision is the value of the pods' revision label: of a StatefulSet or a DaemonSet what its revision's name ends with or is.
func hashOfRevision(w *Workload, revision string) string {
	switch w.Ref.Kind {
	case "DaemonSet":
		if prefix := w.Ref.Name + "-"; len(revision) > len(prefix) && revision[:len(prefix)] == prefix {
			return revision[len(prefix):]
		}
	case "CloneSet":
		if prefix := w.Ref.Name + "-"; len(revision) > len(prefix) && revision[:len(prefix)] == prefix {
			return revision[len(prefix):]
		}
	}
	return revision
}
