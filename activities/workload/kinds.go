package workload

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/activities/podstatus"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/workload"
)

// kind adapts one kind of workload to operations and rollouts.
type kind struct{ workload.Kind }

var (
	podsResource        = corev1.SchemeGroupVersion.WithResource("pods")
	replicaSets         = appsv1.SchemeGroupVersion.WithResource("replicasets")
	controllerRevisions = appsv1.SchemeGroupVersion.WithResource("controllerrevisions")
	deploymentsResource = appsv1.SchemeGroupVersion.WithResource("deployments")
)

// revisions is the resource of the kind's revisions.
func (k kind) revisions() schema.GroupVersionResource {
	if k.Revisions == workload.ReplicaSets {
		return replicaSets
	}
	return controllerRevisions
}

// annotationRevision is where the Deployment controller counts the revisions.
const annotationRevision = "deployment.kubernetes.io/revision"

// owns reports whether a pod that the workload's selector matches belongs to the workload. The name of a pod's
// ReplicaSet is compared, which the Deployment controller builds from the Deployment's name and the pod template hash:
// reading the ReplicaSets would need another permission.
func (k kind) owns(o *unstructured.Unstructured, pod *corev1.Pod) bool {
	if k.Revisions != workload.ReplicaSets {
		return metav1.IsControlledBy(pod, o)
	}
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "ReplicaSet" && owner.Name == o.GetName()+"-"+pod.Labels[k.RevisionLabel]
}

// current is the revision of the pod template; "" if the kind does not report it.
func (k kind) current(o *unstructured.Unstructured) string {
	if k.Revisions == workload.ReplicaSets {
		return o.GetAnnotations()[annotationRevision]
	}
	return text(o, "status", "updateRevision")
}

// object is a workload as an operation sees it.
type object struct {
	*unstructured.Unstructured
	// seen is the input of the decision, without pods and time.
	seen operation.Observed
}

// observe is what operations read of a workload.
func (k kind) observe(o *unstructured.Unstructured) *object {
	annotations, borrowable := rollout.AnnotationsOf(o), k.Borrowable()
	s := operation.Observed{
		Snapshot: k.snapshot(o, borrowable), Rollout: rollout.SavedOn(o.GetLabels(), annotations),
		UpdateType:   cmp.Or(text(o, "spec", "updateStrategy", "type"), text(o, "spec", "strategy", "type")),
		Marker:       text(o, "spec", "template", "metadata", "annotations", workload.AnnotationRestartedBy),
		OrderedReady: text(o, "spec", "podManagementPolicy") == string(appsv1.OrderedReadyPodManagement),
		Partition:    int32(number(o, "spec", "updateStrategy", "rollingUpdate", "partition")),
		FirstOrdinal: int32(number(o, "spec", "ordinals", "start")),
		Package:      packageOf(templateOf(o)), Revision: k.current(o),
		UID:        string(o.GetUID()),
		Remembered: annotations[workload.AnnotationReplicas], LeftAt: annotations[workload.AnnotationLeftAt],
	}
	s.Paused, _, _ = unstructured.NestedBool(o.Object, "spec", "paused")
	if n, there, _ := unstructured.NestedInt64(o.Object, "status", "terminatingReplicas"); there {
		terminating := int32(n)
		s.Terminating = &terminating
	}
	if text, saved := annotations[workload.AnnotationOriginal]; saved {
		original, err := operation.ParseOriginal(text, borrowable)
		if err != nil {
			s.OriginalProblem = err.Error()
		}
		s.Original = original
	}
	return &object{Unstructured: o, seen: s}
}

// snapshot is what operations and rollouts both read of a workload.
func (k kind) snapshot(o *unstructured.Unstructured, settings []string) workload.Snapshot {
	counts := k.Count(o.Object)
	return workload.Snapshot{
		Claim:      rollout.AnnotationsOf(o)[workload.AnnotationClaimedBy],
		Generation: o.GetGeneration(), ObservedGeneration: number(o, "status", "observedGeneration"),
		Deleting: o.GetDeletionTimestamp() != nil,
		Replicas: counts.Size, Total: counts.Total, Ready: counts.Ready, Available: counts.Available,
		Updated: counts.Updated, MinReadySeconds: minReadySeconds(o),
		Settings: settingsOf(o, settings), Creation: creationFailure(o),
	}
}

// minReadySeconds is how long a pod must be ready until it counts as available. An Advanced StatefulSet has it among
// the settings of its update.
func minReadySeconds(o *unstructured.Unstructured) int32 {
	return int32(max(number(o, "spec", "minReadySeconds"),
		number(o, "spec", "updateStrategy", "rollingUpdate", "minReadySeconds")))
}

// settingsOf are the values at these JSON Pointers; fields that are not set are left out.
func settingsOf(o *unstructured.Unstructured, paths []string) map[string]json.RawMessage {
	settings := map[string]json.RawMessage{}
	for _, path := range paths {
		if v, _ := jsonpatch.At(o.Object, path); v != nil {
			settings[path] = jsonpatch.Encode(v)
		}
	}
	return settings
}

// progressOf is what a Deployment says about its own update.
func progressOf(o *unstructured.Unstructured) (p pods.ProgressOf) {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		if condition, _ := c.(map[string]any); condition["type"] == pods.ConditionProgressing {
			p.Reason, _ = condition["reason"].(string)
			message, _ := condition["message"].(string)
			p.Message = kube.Line(message)
		}
	}
	return p
}

// creationFailure is why pods are not created, as the conditions of a Deployment or ReplicaSet say.
func creationFailure(o *unstructured.Unstructured) workload.CreationFailure {
	reason, f := failureIn(o, string(appsv1.DeploymentReplicaFailure), corev1.ConditionTrue)
	if reason != workload.ReasonFailedDelete && f.Reported() {
		return f
	}
	return noReplicaSet(o)
}

// noReplicaSet is why a Deployment's controller cannot create its next ReplicaSet.
func noReplicaSet(o *unstructured.Unstructured) workload.CreationFailure {
	reason, f := failureIn(o, string(appsv1.DeploymentProgressing), corev1.ConditionFalse)
	if reason != workload.ReasonNoReplicaSet {
		return workload.CreationFailure{}
	}
	return f
}

// failureIn is the failure that a condition with this status reports, with its reason.
func failureIn(o *unstructured.Unstructured, condition string, status corev1.ConditionStatus) (reason string,
	f workload.CreationFailure) {
	list, _, _ := unstructured.NestedFieldNoCopy(o.Object, "status", "conditions")
	conditions, _ := list.([]any)
	for _, c := range conditions {
		fields, _ := c.(map[string]any)
		if fields["type"] != condition || fields["status"] != string(status) {
			continue
		}
		reason, _ = fields["reason"].(string)
		message, _ := fields["message"].(string)
		since, _ := fields["lastTransitionTime"].(string)
		f.Message = kube.Line(workload.CreationMessage(message))
		f.Since, _ = time.Parse(time.RFC3339, since)
	}
	return reason, f
}

func templateOf(o *unstructured.Unstructured) map[string]any { return workload.TemplateOf(o) }

func number(o *unstructured.Unstructured, path ...string) int64 {
	n, _, _ := unstructured.NestedInt64(o.Object, path...)
	return n
}

func text(o *unstructured.Unstructured, path ...string) string {
	s, _, _ := unstructured.NestedString(o.Object, path...)
	return s
}

func selectorOf(o *unstructured.Unstructured) (string, error) {
	var selector metav1.LabelSelector
	raw, _, _ := unstructured.NestedMap(o.Object, "spec", "selector")
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &selector); err != nil {
		return "", err
	}
	parsed, err := metav1.LabelSelectorAsSelector(&selector)
	if err != nil {
		return "", err
	}
	return parsed.String(), nil
}

// eachPod calls each with every pod that a workload's selector matches, and with what decisions read of it. A watch
// with the returned options continues without a gap.
func (t *job) eachPod(ctx context.Context, o *unstructured.Unstructured,
	each func(*corev1.Pod, workload.Pod)) (from metav1.ListOptions, err error) {
	if from.LabelSelector, err = selectorOf(o); err != nil {
		return from, err
	}
	minReady := minReadySeconds(o)
	from.ResourceVersion, err = t.a.cluster.Pods(ctx, t.workload.Namespace, from.LabelSelector, func(pod *corev1.Pod) {
		seen := podSeen(pod, minReady, t.a.options.Now())
		seen.Revision = pod.Labels[t.kind.RevisionLabel]
		each(pod, seen)
	})
	return from, err
}

// podSeen is what operation.Decide reads of a pod.
func podSeen(pod *corev1.Pod, minReadySeconds int32, now time.Time) workload.Pod {
	seen := workload.Pod{
		Name: pod.Name, UID: string(pod.UID), Version: pod.ResourceVersion,
		RolloutID: pod.Labels[rollout.LabelRolloutID], Batch: pod.Labels[rollout.LabelBatchID],
		Ordinal:  -1,
		Deleting: pod.DeletionTimestamp != nil,
		Finished: pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed,
		Since:    pod.CreationTimestamp.Time,
	}
	if owner := metav1.GetControllerOf(pod); owner != nil && workload.Of(owner.APIVersion, owner.Kind).Ordinals {
		if n, err := strconv.ParseInt(pod.Name[strings.LastIndexByte(pod.Name, '-')+1:], 10, 32); err == nil {
			seen.Ordinal = int32(n)
		}
	}
	seen.Reason, seen.Message = podstatus.Reason(pod)
	for _, c := range pod.Status.ContainerStatuses {
		seen.Restarts = max(seen.Restarts, c.RestartCount)
	}
	if c := podstatus.Condition(pod, corev1.PodReady); c != nil {
		seen.Ready = c.Status == corev1.ConditionTrue
		settled := c.LastTransitionTime.Add(time.Duration(minReadySeconds) * time.Second)
		seen.Available = seen.Ready && (minReadySeconds == 0 || !now.Before(settled))
		// A crash-looping pod becomes ready again and again: its trouble has lasted since the pod was created.
		if !seen.Ready && seen.Reason != podstatus.CrashLoopBackOff && c.LastTransitionTime.After(seen.Since) {
			seen.Since = c.LastTransitionTime.Time
		}
	}
	if seen.Ready && !seen.Deleting {
		seen.Reason, seen.Message = "", ""
	}
	return seen
}

// keptRevision is a revision that the cluster keeps, with its pod template.
type keptRevision struct {
	pods.Revision
	uid      types.UID
	template map[string]any
}

// templateIn is the pod template of the revision with this name; nil if there is none.
func templateIn(kept []keptRevision, name string) map[string]any {
	i := slices.IndexFunc(kept, func(r keptRevision) bool { return r.Name == name })
	if i < 0 {
		return nil
	}
	return kept[i].template
}

// revisionsOf reads the ReplicaSets or ControllerRevisions that a workload's selector matches, and returns those that
// it owns, oldest first.
func (t *job) revisionsOf(ctx context.Context, workload *unstructured.Unstructured) ([]keptRevision, error) {
	selector, err := selectorOf(workload)
	if err != nil {
		return nil, err
	}
	list, err := t.a.cluster.List(ctx, t.kind.revisions(), t.workload.Namespace, selector)
	if err != nil {
		return nil, err
	}
	var kept []keptRevision
	for i := range list {
		owner := metav1.GetControllerOf(&list[i])
		if owner != nil && owner.UID == workload.GetUID() {
			kept = append(kept, t.kind.revision(&list[i]))
		}
	}
	slices.SortFunc(kept, oldestFirst)
	return kept, nil
}

func oldestFirst(a, b keptRevision) int {
	return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Name, b.Name))
}

func (k kind) revision(r *unstructured.Unstructured) keptRevision {
	raw, _, _ := unstructured.NestedMap(r.Object, "data", "spec", "template")
	is := pods.Revision{Name: r.GetName(), Number: number(r, "revision")}
	if k.Revisions == workload.ReplicaSets {
		raw = k.Template(r.Object)
		counts := k.Count(r.Object)
		n, _ := strconv.ParseInt(r.GetAnnotations()[annotationRevision], 10, 64)
		is = pods.Revision{Name: k.RevisionOf(r), Number: n, HasCounts: true, Desired: counts.Size, Total: counts.Total,
			Ready: counts.Ready, Available: counts.Available, Creation: creationFailure(r),
			Rest: r.GetAnnotations()[rollout.AnnotationSettled]}
	}
	template := pods.Stripped(raw)
	is.Hash, is.Template = k.RevisionOf(r), pods.Digest(template)
	is.Images, is.Package = pods.Images(template), packageOf(template)
	return keptRevision{is, r.GetUID(), template}
}
