package kruise

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/dump"
	"k8s.io/utils/ptr"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/hold"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// KeyRolloutID is the label or annotation by which a client numbers a workload's releases.
const KeyRolloutID = "rollouts.kruise.io/rollout-id"

// Workload is what a Rollout needs of the workload that it names. It is an object of its own, so that a watch cache can
// keep it instead of the full object.
type Workload struct {
	metav1.PartialObjectMetadata
	Ref catalog.WorkloadRef
	// Template is the digest of the live pod template, Next that of the template kept in rollout.AnnotationNext, ""
	// without one; Images are the live template's.
	Template, Next string
	Images         map[string]string
	// Held are the fields that hold a change of template; HeldProblem is why they could not be read. By is the user
	// that changed the template last.
	Held        gate.Held
	HeldProblem string
	By          string
	// Claim is the claim of the release that may write the workload, Saved what that release has saved.
	Claim string
	Saved *rollout.Saved
	// Moves is true if its controller moves pods to a changed template by itself, unless the change is held.
	Moves bool
	// Observed is the generation that its controller has observed. Size is the desired number of pods; Total, Updated
	// and Ready are counts from its status.
	Observed                    int64
	Size, Total, Updated, Ready int32
	// Revision is the newest revision: for a Deployment the hash that its controller gives the live template, otherwise
	// status.updateRevision, or of an Advanced DaemonSet status.daemonSetHash.
	Revision  string
	RolloutID string
}

// ReadWorkload reads a workload of any kind that can be released.
func ReadWorkload(o *unstructured.Unstructured) *Workload {
	annotations := rollout.AnnotationsOf(o)
	w := &Workload{Ref: catalog.WorkloadRef{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Name: o.GetName()},
		By: annotations[gate.AnnotationBy], Claim: annotations[workload.AnnotationClaimedBy]}
	w.ObjectMeta = metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(),
		ResourceVersion: o.GetResourceVersion(),
		Generation:      o.GetGeneration(), CreationTimestamp: o.GetCreationTimestamp(),
		DeletionTimestamp: o.GetDeletionTimestamp(), Labels: o.GetLabels()}
	template := workload.TemplateOf(o)
	w.Template, w.Images = pods.Digest(template), pods.Images(template)
	var next map[string]any
	if json.Unmarshal([]byte(annotations[rollout.AnnotationNext]), &next) == nil && next != nil {
		w.Next = pods.Digest(next)
	}
	held, err := gate.ParseHeld(annotations)
	if w.Held = held; err != nil {
		w.HeldProblem = err.Error()
	}
	if text := rollout.SavedOn(o.GetLabels(), annotations); text != "" {
		w.Saved, _ = rollout.ParseSaved(text) // the release reports one that cannot be parsed
	}
	kind := w.Ref.Lookup()
	w.Moves = hold.Kind(kind).Moves(o.Object)
	counts := kind.Count(o.Object)
	w.Size, w.Total, w.Updated, w.Ready = counts.Size, counts.Total, counts.Updated, counts.Ready
	w.Observed, _, _ = unstructured.NestedInt64(o.Object, "status", "observedGeneration")
	w.RolloutID = o.GetLabels()[KeyRolloutID]
	if w.RolloutID == "" {
		w.RolloutID = annotations[KeyRolloutID]
	}
	if kind.Revisions == workload.ReplicaSets {
		w.Revision = deploymentHash(o)
	} else {
		w.Revision = cmp.Or(jsonpatch.DigString(o.Object, "status", "updateRevision"),
			jsonpatch.DigString(o.Object, "status", "daemonSetHash"))
	}
	return w
}

// Extra is what a Rollout needs of an extra workload. Of is the value of its label strategy.LabelCanaryOf.
type Extra struct {
	metav1.PartialObjectMetadata
	Of           string
	Total, Ready int32
}

// ReadExtra reads an extra workload.
func ReadExtra(o *unstructured.Unstructured) *Extra {
	e := &Extra{Of: o.GetLabels()[strategy.LabelCanaryOf]}
	e.Namespace, e.Name, e.UID, e.ResourceVersion = o.GetNamespace(), o.GetName(), o.GetUID(), o.GetResourceVersion()
	counts := workload.Of(o.GetAPIVersion(), o.GetKind()).Count(o.Object)
	e.Total, e.Ready = counts.Total, counts.Ready
	return e
}

// UpdatedReady returns the lower bound of ready pods of the newest template that the workload's status proves: all
// ready pods minus the pods of other templates.
func (w *Workload) UpdatedReady() int32 {
	return max(w.Ready-max(w.Total-w.Updated, 0), 0)
}

// AllUpdated reports whether all pods have the live template, according to the workload's status.
func (w *Workload) AllUpdated() bool {
	return w.Observed >= w.Generation && w.Updated >= w.Size && w.Total <= w.Updated
}

// deploymentHash returns the value of the label pod-template-hash that a Deployment's controller gives the pods of a
// template: FNV-1a of its Go form, then of the collision count. (ComputeHash in
// https://github.com/kubernetes/kubernetes/blob/v1.36.0/pkg/controller/controller_utils.go)
func deploymentHash(o *unstructured.Unstructured) string {
	var typed corev1.PodTemplateSpec
	template, _, _ := unstructured.NestedMap(o.Object, "spec", "template")
	if runtime.DefaultUnstructuredConverter.FromUnstructured(template, &typed) != nil {
		return ""
	}
	sum := fnv.New32a()
	_, _ = fmt.Fprintf(sum, "%v", dump.ForHash(typed))
	if n, there, _ := unstructured.NestedInt64(o.Object, "status", "collisionCount"); there {
		count := make([]byte, 8)
		binary.LittleEndian.PutUint32(count, uint32(n))
		_, _ = sum.Write(count)
	}
	return rand.SafeEncodeString(fmt.Sprint(sum.Sum32()))
}

// References reports whether an object names a workload in its namespace.
func References(r *v1beta1.Rollout, w *Workload) bool {
	ref := r.Spec.WorkloadRef
	return ref.Name == w.Name && workload.Key(ref.APIVersion, ref.Kind) == w.Ref.Lookup().Key()
}

// Marked reports whether a workload carries the mark of an object.
func Marked(r *v1beta1.Rollout, w *Workload) bool {
	return w.Labels[gate.Label] == gate.LabelValue(r.Name)
}

// MarkPatch returns the JSON merge patch that marks a workload as named by a Rollout.
func MarkPatch(rollout, kind string) map[string]any {
	return map[string]any{"metadata": map[string]any{"labels": map[string]any{gate.Label: gate.LabelValue(
		rollout)}, "annotations": map[string]any{gate.AnnotationWhy: gate.Why(rollout, kind)}}}
}

// UnholdPatch returns the JSON Patch that restores the fields that hold a workload's change of template. With
// removeMarks it also removes the marks. It applies only to the resourceVersion of w; object is that version.
func UnholdPatch(w *Workload, removeMarks bool, object *unstructured.Unstructured) []jsonpatch.Op {
	labels, annotations := object.GetLabels(), object.GetAnnotations()
	ops := []jsonpatch.Op{jsonpatch.Test("/metadata/resourceVersion", w.ResourceVersion)}
	for _, pointer := range slices.Sorted(maps.Keys(w.Held)) {
		switch value := w.Held[pointer]; {
		case !workload.AbsentJSON(value):
			ops = append(ops, jsonpatch.Add(pointer, value))
		default:
			if path, there := removalPath(object.Object, pointer); there {
				ops = append(ops, jsonpatch.Remove(path))
			}
		}
	}
	remove := []string{gate.AnnotationHeld}
	if removeMarks {
		remove = append(remove, gate.AnnotationWhy, gate.AnnotationBy)
		if _, is := labels[gate.Label]; is {
			ops = append(ops, jsonpatch.Remove("/metadata/labels/"+jsonpatch.Escape(gate.Label)))
		}
	}
	for _, name := range remove {
		if _, is := annotations[name]; is {
			ops = append(ops, jsonpatch.Remove(jsonpatch.Annotation(name)))
		}
	}
	return ops
}

// removalPath returns what to remove for a held field that was absent before: the parent object if the field is its
// only member, else the field. there is false if the field does not exist.
func removalPath(object map[string]any, pointer string) (path string, there bool) {
	if _, there = jsonpatch.At(object, pointer); !there {
		return "", false
	}
	parent := pointer[:strings.LastIndexByte(pointer, '/')]
	around, _ := jsonpatch.At(object, parent)
	if fields, is := around.(map[string]any); is && len(fields) == 1 && strings.Count(parent, "/") > 2 {
		return parent, true
	}
	return pointer, true
}

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
	showMoved(&status, w)
	if w == nil {
		engine.Template = ""
		status.Slipway = &engine
		return status
	}
	common := commonOf(was)
	common.ObservedWorkloadGeneration = w.Generation
	revision := shownRevision(object, cmp.Or(w.Revision, *partOf(&was).revision))
	common.ObservedRolloutID = cmp.Or(w.RolloutID, revision)
	common.StableRevision, common.PodTemplateHash = revision, revision
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
		if c.Type == v1beta1.ConditionSucceeded || c.Type == v1beta1.ConditionNotHeld ||
			c.Type == v1beta1.ConditionProgressing && c.Status == string(corev1.ConditionFalse) {
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
	revision := shownRevision(object, w.Revision)
	common.ObservedRolloutID, common.PodTemplateHash = cmp.Or(w.RolloutID, revision), revision
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
	fill(&status, object, common, numbers{revision: revision}, idleEngine(was))
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
