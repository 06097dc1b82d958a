package workload

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/workloadops"
)

// kind adapts one kind of workload to operations and rollouts: where it is found, and how it tells what its pods are like. To support
// another kind, add its line to kinds.
type kind struct {
	resource schema.GroupVersionResource
	// sets says that its revisions are ReplicaSets; otherwise they are ControllerRevisions.
	sets bool
	// size is the path of the size that is asked for.
	size []string
	// total, ready, available and updated are fields of the status.
	total, ready, available, updated string
	// hash is the value of the pods' revision label of a ControllerRevision.
	hash func(revision *unstructured.Unstructured) string
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
	replicaSets         = resourceOf("apps", "v1", "replicasets")
	controllerRevisions = resourceOf("apps", "v1", "controllerrevisions")
	podsResource        = corev1.SchemeGroupVersion.WithResource("pods")
	deploymentsResource = resourceOf("apps", "v1", "deployments")
)

// annotationRevision is where the Deployment controller counts the revisions.
const annotationRevision = "deployment.kubernetes.io/revision"

func resourceOf(group, version, plural string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: plural}
}

// revisionName is the value of the pods' label for kinds whose pods carry the whole name of their ControllerRevision.
func revisionName(r *unstructured.Unstructured) string { return r.GetName() }

// revisionHash is that for kinds whose pods carry its hash alone.
func revisionHash(r *unstructured.Unstructured) string {
	return r.GetLabels()["controller-revision-hash"]
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

func updateRevision(o *unstructured.Unstructured) string {
	revision, _, _ := unstructured.NestedString(o.Object, "status", "updateRevision")
	return revision
}

// kinds are the kinds by pods.Key.
var kinds = map[string]kind{
	"apps/Deployment": {
		resource: deploymentsResource, sets: true, size: []string{"spec", "replicas"},
		total: "replicas", ready: "readyReplicas", available: "availableReplicas", updated: "updatedReplicas",
		operated: &operated{strategy: "strategy",
			borrowed: []string{workloadops.PathDeploymentUnavailable, workloadops.PathDeploymentSurge},
			revision: countedRevision, owns: ownedByReplicaSet},
	},
	"apps/StatefulSet": {
		resource: resourceOf("apps", "v1", "statefulsets"), size: []string{"spec", "replicas"},
		total: "replicas", ready: "readyReplicas", available: "availableReplicas", updated: "updatedReplicas", hash: revisionName,
		operated: &operated{strategy: "updateStrategy",
			borrowed: []string{workloadops.PathUpdateStrategy, workloadops.PathUpdateUnavailable},
			revision: updateRevision, owns: owned},
	},
	"apps/DaemonSet": {
		resource: resourceOf("apps", "v1", "daemonsets"), size: []string{"status", "desiredNumberScheduled"},
		total: "currentNumberScheduled", ready: "numberReady", available: "numberAvailable", updated: "updatedNumberScheduled",
		hash: revisionHash,
		operated: &operated{strategy: "updateStrategy",
			borrowed: []string{workloadops.PathUpdateUnavailable, workloadops.PathUpdateSurge}, owns: owned},
	},
	"apps.kruise.io/CloneSet": {
		resource: resourceOf("apps.kruise.io", "v1alpha1", "clonesets"), size: []string{"spec", "replicas"},
		total: "replicas", ready: "readyReplicas", available: "availableReplicas", updated: "updatedReplicas", hash: revisionTail,
	},
	"apps.kruise.io/StatefulSet": {
		resource: resourceOf("apps.kruise.io", "v1beta1", "statefulsets"), size: []string{"spec", "replicas"},
		total: "replicas", ready: "readyReplicas", available: "availableReplicas", updated: "updatedReplicas", hash: revisionName,
	},
	"apps.kruise.io/DaemonSet": {
		resource: resourceOf("apps.kruise.io", "v1alpha1", "daemonsets"), size: []string{"status", "desiredNumberScheduled"},
		total: "currentNumberScheduled", ready: "numberReady", available: "numberAvailable", updated: "updatedNumberScheduled",
		hash: revisionHash,
	},
}

// kindOf is the adapter of a workload, in the API version that it is asked for; false for a kind that there is none for.
func kindOf(ref catalog.WorkloadRef) (kind, bool) {
	k, ok := kinds[pods.Key(ref)]
	if _, version, named := strings.Cut(ref.APIVersion, "/"); ok && named {
		k.resource.Version = version
	}
	return k, ok
}
