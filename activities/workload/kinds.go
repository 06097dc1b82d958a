package workload

import (
	"cmp"
	"encoding/json"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/workload"
)

// kind adapts one kind of workload to operations and rollouts.
type kind workload.Kind

var (
	podsResource        = corev1.SchemeGroupVersion.WithResource("pods")
	replicaSets         = appsv1.SchemeGroupVersion.WithResource("replicasets")
	controllerRevisions = appsv1.SchemeGroupVersion.WithResource("controllerrevisions")
	deploymentsResource = appsv1.SchemeGroupVersion.WithResource("deployments")
)

// kindOf is the adapter of a workload, in the API version of ref; false for an unknown kind.
func kindOf(ref catalog.WorkloadRef) (kind, bool) {
	k := ref.Lookup()
	return kind(k), k.Known()
}

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
	return updateRevision(o)
}

func updateRevision(o *unstructured.Unstructured) string { return text(o, "status", "updateRevision") }

// object is a workload as an operation sees it.
type object struct {
	*unstructured.Unstructured
	// seen is the input of the decision, without pods and time.
	seen operation.Observed
}

// observe is what operations read of a workload.
func (k kind) observe(o *unstructured.Unstructured) *object {
	annotations, borrowable := o.GetAnnotations(), workload.Kind(k).Borrowable()
	s := operation.Observed{
		Snapshot: k.snapshot(o, borrowable), Rollout: rollout.SavedOn(o.GetLabels(), annotations),
		UpdateType:   cmp.Or(text(o, "spec", "updateStrategy", "type"), text(o, "spec", "strategy", "type")),
		Marker:       text(o, "spec", "template", "metadata", "annotations", workload.AnnotationRestartedBy),
		OrderedReady: text(o, "spec", "podManagementPolicy") == string(appsv1.OrderedReadyPodManagement),
		Partition:    int32(number(o, "spec", "updateStrategy", "rollingUpdate", "partition")),
		FirstOrdinal: int32(number(o, "spec", "ordinals", "start")),
		Package:      source.PackageDigest(templateAnnotations(o)), Revision: k.current(o),
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
		Claim:      o.GetAnnotations()[workload.AnnotationClaimedBy],
		Generation: o.GetGeneration(), ObservedGeneration: number(o, "status", "observedGeneration"),
		Deleting: o.GetDeletionTimestamp() != nil,
		Replicas: counts.Size, Total: counts.Total, Ready: counts.Ready, Available: counts.Available,
		Updated:  counts.Updated,
		Settings: settingsOf(o, settings), CreationProblem: replicaFailure(o),
	}
}

// settingsOf are the values at these JSON Pointers; fields that are not set are left out.
func settingsOf(o *unstructured.Unstructured, paths []string) map[string]json.RawMessage {
	settings := map[string]json.RawMessage{}
	for _, path := range paths {
		v, there := jsonpatch.At(o.Object, path)
		if !there || v == nil {
			continue
		}
		if raw, err := json.Marshal(v); err == nil {
			settings[path] = raw
		}
	}
	return settings
}

// replicaFailure is the controller's message about pods that it cannot create.
func replicaFailure(o *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		if condition["type"] == "ReplicaFailure" && condition["status"] == "True" {
			message, _ := condition["message"].(string)
			return kube.Line(message)
		}
	}
	return ""
}

func templateOf(o *unstructured.Unstructured) map[string]any {
	template, _, _ := unstructured.NestedMap(o.Object, "spec", "template")
	return template
}

func templateAnnotations(o *unstructured.Unstructured) map[string]string {
	annotations, _, _ := unstructured.NestedStringMap(o.Object, "spec", "template", "metadata", "annotations")
	return annotations
}

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
