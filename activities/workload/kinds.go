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

// kind adapts one kind of workload to operations and rollouts: its resource and the fields with its pod counts. A new
// kind needs an entry in kinds, and others in release/rollout/pods/technique.go, release/rollout/strategy/validate.go,
// release/gate/hold/kinds.go, controller/rollout/workloads.go and cli/app/name.go.
type kind struct {
	resource schema.GroupVersionResource
	// hash returns the value of the pods' revision label for a ControllerRevision; nil: the kind's revisions are
	// ReplicaSets.
	hash func(revision *unstructured.Unstructured) string
	// size is the path of the desired size.
	size []string
	// total, ready, available and updated are fields of the status.
	total, ready, available, updated string
	// operated is what only operations read; nil: the kind supports no operations.
	operated *operated
}

// operated is what operations read of a kind.
type operated struct {
	// strategy is the field of the spec that configures how pods are replaced.
	strategy string
	// borrowed are the settings that an operation may change for its duration.
	borrowed []string
	// revision returns the revision of the pod template; nil: the kind does not report it.
	revision func(o *unstructured.Unstructured) string
	// owns reports whether a pod that the workload's selector matches belongs to the workload.
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
	"apps/StatefulSet": replicated(appsv1.SchemeGroupVersion.WithResource("statefulsets"), revisionName,
		&operated{strategy: "updateStrategy",
			borrowed: []string{workloadops.PathUpdateStrategy, workloadops.PathUpdateUnavailable},
			revision: updateRevision, owns: owned}),
	"apps/DaemonSet": perNode(appsv1.SchemeGroupVersion.WithResource("daemonsets"),
		&operated{strategy: "updateStrategy",
			borrowed: []string{workloadops.PathUpdateUnavailable, workloadops.PathUpdateSurge}, owns: owned}),
	"apps.kruise.io/CloneSet": replicated(kruise.WithResource("clonesets"), revisionTail, nil),
	"apps.kruise.io/StatefulSet": replicated(schema.GroupVersionResource{Group: kruise.Group, Version: "v1beta1",
		Resource: "statefulsets"},
		revisionName, nil),
	"apps.kruise.io/DaemonSet": perNode(kruise.WithResource("daemonsets"), nil),
}

// replicated is a kind with a desired number of pods.
func replicated(resource schema.GroupVersionResource, hash func(*unstructured.Unstructured) string, o *operated) kind {
	return kind{resource: resource, hash: hash, size: []string{"spec", "replicas"}, operated: o,
		total: "replicas", ready: "readyReplicas", available: "availableReplicas", updated: "updatedReplicas"}
}

// perNode is a kind that runs a pod on each node.
func perNode(resource schema.GroupVersionResource, o *operated) kind {
	return kind{resource: resource, hash: revisionHash, size: []string{"status", "desiredNumberScheduled"}, operated: o,
		total: "currentNumberScheduled", ready: "numberReady", available: "numberAvailable",
		updated: "updatedNumberScheduled"}
}

// kindOf is the adapter of a workload, in the API version of ref; false for an unknown kind.
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

// revisionName is the value of the pods' label for kinds whose pods carry the full name of their ControllerRevision.
func revisionName(r *unstructured.Unstructured) string { return r.GetName() }

// revisionHash is the label's value for kinds whose pods carry only the hash of the ControllerRevision.
func revisionHash(r *unstructured.Unstructured) string {
	return r.GetLabels()[appsv1.ControllerRevisionHashLabelKey]
}

// revisionTail is the label's value for a CloneSet: its pods carry the end of the revision's name as pod-template-hash,
// like those of a Deployment.
func revisionTail(r *unstructured.Unstructured) string {
	return r.GetName()[strings.LastIndexByte(r.GetName(), '-')+1:]
}

// ownedByReplicaSet compares the name of the pod's ReplicaSet, which the Deployment controller builds from the
// Deployment's name and the pod template hash: reading the ReplicaSets would need another permission.
func ownedByReplicaSet(o *unstructured.Unstructured, pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "ReplicaSet" &&
		owner.Name == o.GetName()+"-"+pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
}

func owned(o *unstructured.Unstructured, pod *corev1.Pod) bool { return metav1.IsControlledBy(pod, o) }

func countedRevision(o *unstructured.Unstructured) string {
	return o.GetAnnotations()[annotationRevision]
}

func updateRevision(o *unstructured.Unstructured) string { return text(o, "status", "updateRevision") }

// object is a workload as an operation sees it.
type object struct {
	*unstructured.Unstructured
	// seen is the input of the decision, without pods and time.
	seen workloadops.Observed
}

// observe is what operations read of a workload.
func (k kind) observe(o *unstructured.Unstructured) *object {
	annotations := o.GetAnnotations()
	s := workloadops.Observed{
		Snapshot: k.snapshot(o, k.operated.borrowed), Rollout: rollout.SavedOn(o.GetLabels(), annotations),
		UpdateType:   text(o, "spec", k.operated.strategy, "type"),
		Marker:       text(o, "spec", "template", "metadata", "annotations", workloadops.AnnotationRestartedBy),
		OrderedReady: text(o, "spec", "podManagementPolicy") == string(appsv1.OrderedReadyPodManagement),
		Partition:    int32(number(o, "spec", "updateStrategy", "rollingUpdate", "partition")),
		FirstOrdinal: int32(number(o, "spec", "ordinals", "start")),
		Package:      source.PackageDigest(templateAnnotations(o)),
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

// snapshot is what operations and rollouts both read of a workload.
func (k kind) snapshot(o *unstructured.Unstructured, settings []string) workloadops.Snapshot {
	return workloadops.Snapshot{
		Claim:      o.GetAnnotations()[workloadops.AnnotationClaimedBy],
		Generation: o.GetGeneration(), ObservedGeneration: number(o, "status", "observedGeneration"),
		Deleting: o.GetDeletionTimestamp() != nil,
		Replicas: k.desired(o), Total: count(o, k.total), Ready: count(o, k.ready), Available: count(o, k.available),
		Updated:  count(o, k.updated),
		Settings: settingsOf(o, settings), CreationProblem: replicaFailure(o),
	}
}

// desired is the desired size of a workload: a missing field means 1 (Kubernetes API), unless the size is the number of
// nodes.
func (k kind) desired(o *unstructured.Unstructured) int32 {
	if n, there, _ := unstructured.NestedInt64(o.Object, k.size...); there || k.size[0] == "status" {
		return int32(n)
	}
	return 1
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
