package kruise

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workload"
)

// AnnouncementDelay is how long a Rollout may still be edited freely after its workload was changed, before the release
// starts.
const AnnouncementDelay = 3 * time.Second

// IdleStatus returns the status of an object without a release: the workload's current state with all steps completed,
// as clients expect of a healthy Rollout.
func IdleStatus(object *v1beta1.Rollout, w *Workload, now time.Time) v1beta1.RolloutStatus {
	was := object.Status
	status := v1beta1.RolloutStatus{ObservedGeneration: object.Generation, Phase: v1beta1.PhaseHealthy,
		Conditions: lastingConditions(was.Conditions)}
	engine := idleEngine(was)
	engine.RolloutID = idleRolloutID(object, w)
	switch {
	case object.Spec.Disabled:
		status.Phase, status.Message = v1beta1.PhaseDisabled,
			"disabled: the workload's own controller replaces its pods"
	case w == nil:
		status.Phase = v1beta1.PhaseInitial
		status.Message = fmt.Sprintf("%s %s does not exist yet", object.Spec.WorkloadRef.Kind,
			object.Spec.WorkloadRef.Name)
	default:
		status.Message = cmp.Or(conditionOf(status.Conditions, v1beta1.ConditionProgressing).Message,
			"no release is running: a change of the workload's pod template starts one")
	}
	if w == nil {
		engine.Template = ""
		status.Slipway = &engine
		return status
	}
	common := commonOf(was)
	common.ObservedWorkloadGeneration = w.Generation
	revision := cmp.Or(w.Revision, *partOf(&was).revision)
	common.ObservedRolloutID = cmp.Or(w.RolloutID, revision)
	common.StableRevision, common.PodTemplateHash = revision, hashOfRevision(w, revision)
	common.CurrentStepIndex, common.NextStepIndex = int32(steps(object)), -1
	common.CurrentStepState, common.FinalisingStep = string(rollout.StateCompleted), ""
	common.Message = status.Message
	if common.LastUpdateTime == nil || was.Phase != status.Phase {
		common.LastUpdateTime = new(metav1.NewTime(now.Truncate(time.Second)))
	}
	engine.Template = w.Template
	fill(&status, object, common, numbers{revision: revision, replicas: w.Updated, ready: w.UpdatedReady()}, engine)
	return status
}

// idleEngine returns the engine's own fields in a status without a release.
func idleEngine(was v1beta1.RolloutStatus) v1beta1.EngineStatus {
	engine := ptr.Deref(was.Slipway, v1beta1.EngineStatus{})
	engine.Gate, engine.Open, engine.By = "", false, ""
	return engine
}

// idleRolloutID returns the rollout-id that needs no release: the last released one. It is the workload's own if the
// workload is new to the engine, disabled, or without pods.
func idleRolloutID(object *v1beta1.Rollout, w *Workload) string {
	engine := object.Status.Slipway
	switch {
	case w == nil:
		return ""
	case engine == nil || engine.Template == "" || shownRolloutID(object.Status) == w.RolloutID ||
		object.Spec.Disabled || w.RolloutID == "" || w.Size == 0:
		return w.RolloutID
	}
	return engine.RolloutID
}

// shownRolloutID returns the rollout-id that a status shows. It falls back to observedRolloutID if the engine's own
// field is missing because the definition drops it.
func shownRolloutID(s v1beta1.RolloutStatus) string {
	if s.Slipway != nil && s.Slipway.RolloutID != "" {
		return s.Slipway.RolloutID
	}
	return commonOf(s).ObservedRolloutID
}

// rolloutIDChanged reports whether an idle workload has a rollout-id other than the last released one.
func rolloutIDChanged(object *v1beta1.Rollout, w *Workload) bool {
	engine := object.Status.Slipway
	if object.Status.Phase == v1beta1.PhaseHealthy && shownRolloutID(object.Status) == w.RolloutID {
		return false
	}
	return engine != nil && w.Next == "" && engine.Template == w.Template && w.RolloutID != "" && w.Size > 0 &&
		w.RolloutID != engine.RolloutID
}

// lastingConditions returns the conditions of the last release that stay until the next one: those that held only while
// it ran are dropped.
func lastingConditions(before []v1beta1.Condition) (list []v1beta1.Condition) {
	for _, c := range before {
		if c.Type == v1beta1.ConditionSucceeded || c.Type == v1beta1.ConditionProgressing &&
			c.Status == string(corev1.ConditionFalse) {
			list = append(list, c)
		}
	}
	return list
}

// AnnouncedStatus returns the status of an object whose release is about to start; until then the object may be edited
// freely. why is what prevents the start, "" if nothing does.
func AnnouncedStatus(object *v1beta1.Rollout, w *Workload, why string, now time.Time) v1beta1.RolloutStatus {
	was := object.Status
	text := "the workload's pod template has changed: its release is about to start"
	switch {
	case why != "":
		text = why
	case rolloutIDChanged(object, w):
		text = "the workload's rollout-id has changed: its release is about to start"
	}
	common := commonOf(was)
	common.ObservedWorkloadGeneration = w.Generation
	common.ObservedRolloutID = cmp.Or(w.RolloutID, w.Revision)
	common.PodTemplateHash = hashOfRevision(w, w.Revision)
	common.CurrentStepIndex, common.NextStepIndex = 1, -1
	if steps(object) > 1 {
		common.NextStepIndex = 2
	}
	common.CurrentStepState, common.FinalisingStep, common.Message = string(rollout.StateBeforeUpgrade), "", text
	if was.Phase != v1beta1.PhaseProgressing {
		common.LastUpdateTime = new(metav1.NewTime(now.Truncate(time.Second)))
	}
	all := conditionList{before: was.Conditions, now: now}
	all.set(v1beta1.ConditionProgressing, true, v1beta1.ReasonInitializing, text)
	if why != "" {
		all.set(v1beta1.ConditionStalled, true, reasonFailed, text)
	}
	status := v1beta1.RolloutStatus{ObservedGeneration: object.Generation, Phase: v1beta1.PhaseProgressing,
		Message: text, Conditions: all.list}
	fill(&status, object, common, numbers{revision: w.Revision}, idleEngine(was))
	return status
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

// hashOfRevision returns the value of the pods' revision label: the part of the revision's name after the workload's
// name, or the whole name.
func hashOfRevision(w *Workload, revision string) string {
	if w.Ref.Lookup().Revisions == workload.Named {
		return revision
	}
	return strings.TrimPrefix(revision, w.Ref.Name+"-")
}
