package workload

import (
	"encoding/json"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/workloadops"
)

// kind adapts one kind of workload to operations and rollouts: where it is found, and how it tells what its pods are like. To support
// another kind, add its line to kinds.
type kind struct {
	resource schema.GroupVersionResource
	// hash is the value of the pods' revision label of a ControllerRevision; nil: the kind's revisions are ReplicaSets.
	hash func(revision *unstructured.Unstructured) string
	// size is the path of the size that is asked for.
	size []string
	// total, ready, available and updated are fields of the status.
	total, ready, available, updated string
	// operated is what only operations read; nil: there are none on that kind.
	operated *operated
}

// operated is what operations read of a kind.
type operated struct {
	// strategy is the field of the spec that says how pods are replaced.
	strategy string
	// borrowed are the settings that an operation may change for its duration.
	borrowed []string
	// revision is the revision of the pod template; nil: it is not told.
	revision func(o *unstructured.Unstructured) string
	// owns says whether a pod that the workload's selector matches is really the workload's.
	owns func(o *unstructured.Unstructured, pod *corev1.Pod) bool
}

var (
	podsResource        = corev1.SchemeGroupVersion.WithResource("pods")
	replicaSets         = appsv1.SchemeGroupVersion.WithResource("replicasets")
	controllerRevisions = appsv1.SchemeGroupVersion.WithResource("controllerrevisions")
	deploymentsResource = appsv1.SchemeGroupVersion.WithResource("deployments")

	kruise = schema.GroupVersion{Group: "apps.kruise.io", Version: "v1alpha1"}
)

// kinds are the kinds by pods.Key.
var kinds = map[string]kind{
	"apps/Deployment": replicated(deploymentsResource, nil, &operated{strategy: "strategy",
		borrowed: []string{workloadops.PathDeploymentUnavailable, workloadops.PathDeploymentSurge},
		revision: countedRevision, owns: ownedByReplicaSet}),
	"apps/StatefulSet": replicated(appsv1.SchemeGroupVersion.WithResource("statefulsets"), revisionName, &operated{strategy: "updateStrategy",
		borrowed: []string{workloadops.PathUpdateStrategy, workloadops.PathUpdateUnavailable},
		revision: updateRevision, owns: owned}),
	"apps/DaemonSet": perNode(appsv1.SchemeGroupVersion.WithResource("daemonsets"), &operated{strategy: "updateStrategy",
		borrowed: []string{workloadops.PathUpdateUnavailable, workloadops.PathUpdateSurge}, owns: owned}),
	"apps.kruise.io/CloneSet": replicated(kruise.WithResource("clonesets"), revisionTail, nil),
	"apps.kruise.io/StatefulSet": replicated(schema.GroupVersionResource{Group: kruise.Group, Version: "v1beta1", Resource: "statefulsets"},
		revisionName, nil),
	"apps.kruise.io/DaemonSet": perNode(kruise.WithResource("daemonsets"), nil),
}

// replicated is a kind that is asked for a number of pods.
func replicated(resource schema.GroupVersionResource, hash func(*unstructured.Unstructured) string, o *operated) kind {
	return kind{resource: resource, hash: hash, size: []string{"spec", "replicas"}, operated: o,
		total: "replicas", ready: "readyReplicas", available: "availableReplicas", updated: "updatedReplicas"}
}

// perNode is a kind that runs a pod on each node.
func perNode(resource schema.GroupVersionResource, o *operated) kind {
	return kind{resource: resource, hash: revisionHash, size: []string{"status", "desiredNumberScheduled"}, operated: o,
		total: "currentNumberScheduled", ready: "numberReady", available: "numberAvailable", updated: "updatedNumberScheduled"}
}

// kindOf is the adapter of a workload, in the API version that it is asked for; false for a kind that there is none for.
func kindOf(ref catalog.WorkloadRef) (kind, bool) {
	k, ok := kinds[pods.Key(ref)]
	if _, version, named := strings.Cut(ref.APIVersion, "/"); ok && named {
		k.resource.Version = version
	}
	return k, ok
}

// revisions is the resource of the kind's revisions.
func (k kind) revisions() schema.GroupVersionResource {
	if k.hash == nil {
		return replicaSets
	}
	return controllerRevisions
}

// annotationRevision is where the Deployment controller counts the revisions.
const annotationRevision = "deployment.kubernetes.io/revision"

// revisionName is the value of the pods' label for kinds whose pods carry the whole name of their ControllerRevision.
func revisionName(r *unstructured.Unstructured) string { return r.GetName() }

// revisionHash is that for kinds whose pods carry its hash alone.
func revisionHash(r *unstructured.Unstructured) string {
	return r.GetLabels()[appsv1.ControllerRevisionHashLabelKey]
}

// revisionTail is that of a CloneSet: its pods carry the end of the revision's name as pod-template-hash, like those of a Deployment.
func revisionTail(r *unstructured.Unstructured) string {
	return r.GetName()[strings.LastIndexByte(r.GetName(), '-')+1:]
}

// ownedByReplicaSet goes by the name of the ReplicaSet that owns the pod, which the Deployment controller makes of its own name and the
// pod's template hash: asking for the ReplicaSets would need a permission more.
func ownedByReplicaSet(o *unstructured.Unstructured, pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "ReplicaSet" && owner.Name == o.GetName()+"-"+pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
}

func owned(o *unstructured.Unstructured, pod *corev1.Pod) bool { return metav1.IsControlledBy(pod, o) }

func countedRevision(o *unstructured.Unstructured) string {
	return o.GetAnnotations()[annotationRevision]
}

func updateRevision(o *unstructured.Unstructured) string { return text(o, "status", "updateRevision") }

// object is a workload as an operation sees it.
type object struct {
	*unstructured.Unstructured
	// seen is what the decision goes by, pods and time left out.
	seen workloadops.Observed
}

// observe is what operations see of a workload.
func (k kind) observe(o *unstructured.Unstructured) *object {
	annotations := o.GetAnnotations()
	s := workloadops.Observed{
		Snapshot: k.snapshot(o, k.operated.borrowed), Rollout: rollout.SavedOn(o.GetLabels(), annotations),
		UpdateType:   text(o, "spec", k.operated.strategy, "type"),
		Marker:       text(o, "spec", "template", "metadata", "annotations", workloadops.AnnotationRestartedBy),
		OrderedReady: text(o, "spec", "podManagementPolicy") == string(appsv1.OrderedReadyPodManagement),
		Partition:    int32(number(o, "spec", "updateStrategy", "rollingUpdate", "partition")),
		FirstOrdinal: int32(number(o, "spec", "ordinals", "start")),
		Package:      source.Packaged(templateAnnotations(o)),
		Remembered:   annotations[workloadops.AnnotationReplicas], LeftAt: annotations[workloadops.AnnotationLeftAt],
	}
	s.Paused, _, _ = unstructured.NestedBool(o.Object, "spec", "paused")
	if n, there, _ := unstructured.NestedInt64(o.Object, "status", "terminatingReplicas"); there {
		terminating := int32(n)
		s.Terminating = &terminating
	}
	if k.operated.revision != nil {
		s.Revision = k.operated.revision(o)
	}
	if text, saved := annotations[workloadops.AnnotationOriginal]; saved {
		original, err := workloadops.ParseOriginal(text, k.operated.borrowed)
		if err != nil {
			s.OriginalProblem = err.Error()
		}
		s.Original = original
	}
	return &object{Unstructured: o, seen: s}
}

// snapshot is what operations and rollouts both see of a workload.
func (k kind) snapshot(o *unstructured.Unstructured, settings []string) workloadops.Snapshot {
	return workloadops.Snapshot{
		Claim:      o.GetAnnotations()[workloadops.AnnotationClaimedBy],
		Generation: o.GetGeneration(), ObservedGeneration: number(o, "status", "observedGeneration"),
		Deleting: o.GetDeletionTimestamp() != nil,
		Replicas: k.asked(o), Total: count(o, k.total), Ready: count(o, k.ready), Available: count(o, k.available),
		Updated:  count(o, k.updated),
		Settings: settingsOf(o, settings), Trouble: replicaFailure(o),
	}
}

// asked is the size that a workload is asked for: an absent one means 1 (Kubernetes API), where it is not the number of nodes.
func (k kind) asked(o *unstructured.Unstructured) int32 {
	if n, there, _ := unstructured.NestedInt64(o.Object, k.size...); there || k.size[0] == "status" {
		return int32(n)
	}
	return 1
}

// settingsOf are the values at these JSON Pointers; one that is not set is left out.
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

// replicaFailure is what a controller says about pods that it cannot create.
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

func count(o *unstructured.Unstructured, field string) int32 {
	return int32(number(o, "status", field))
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
