package workload

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/rollout/pods"
)

// rolloutKind adapts one kind of workload to rollouts: where it is found, and how it tells what its pods are like.
type rolloutKind struct {
	resource schema.GroupVersionResource
	// sets says that its revisions are ReplicaSets; otherwise they are ControllerRevisions.
	sets bool
	// size is the path of the size that is asked for.
	size []string
	// total, ready, available and updated are fields of the status.
	total, ready, available, updated string
	// hash is the value of the pods' revision label of a ControllerRevision.
	hash func(revision *unstructured.Unstructured) string
}

var (
	replicaSets         = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
	controllerRevisions = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "controllerrevisions"}
	deploymentsResource = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
)

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

// rolloutKinds are the kinds by pods.Key.
var rolloutKinds = map[string]rolloutKind{
	"apps/Deployment": {
		resource: deploymentsResource, sets: true, size: []string{"spec", "replicas"},
		total: "replicas", ready: "readyReplicas", available: "availableReplicas", updated: "updatedReplicas",
	},
	"apps/StatefulSet": {
		resource: resourceOf("apps", "v1", "statefulsets"), size: []string{"spec", "replicas"},
		total: "replicas", ready: "readyReplicas", available: "availableReplicas", updated: "updatedReplicas", hash: revisionName,
	},
	"apps/DaemonSet": {
		resource: resourceOf("apps", "v1", "daemonsets"), size: []string{"status", "desiredNumberScheduled"},
		total: "currentNumberScheduled", ready: "numberReady", available: "numberAvailable", updated: "updatedNumberScheduled", hash: revisionHash,
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
		total: "currentNumberScheduled", ready: "numberReady", available: "numberAvailable", updated: "updatedNumberScheduled", hash: revisionHash,
	},
}

// rolloutKindOf is the adapter of a workload, in the API version that it is asked for; false for a kind that there is none for.
func rolloutKindOf(ref catalog.WorkloadRef) (rolloutKind, bool) {
	k, ok := rolloutKinds[pods.Key(ref)]
	if _, version, named := strings.Cut(ref.APIVersion, "/"); ok && named {
		k.resource.Version = version
	}
	return k, ok
}

// hubKey is how the hub names a kind.
func hubKey(ref catalog.WorkloadRef) string { return strings.TrimPrefix(pods.Key(ref), "apps/") }

// newSources are the shared watches of all kinds: those of operations, and for the kinds that only rollouts know, those by the dynamic client.
func newSources(kinds map[string]kind, client dynamic.Interface) map[string]source {
	out := map[string]source{}
	for name, k := range kinds {
		out[name] = k
	}
	if client == nil {
		return out
	}
	for key, k := range rolloutKinds {
		if name := strings.TrimPrefix(key, "apps/"); out[name] == nil {
			out[name] = dynamicSource{client, k.resource}
		}
	}
	return out
}

// dynamicSource is the watch of a kind that is known by its resource only.
type dynamicSource struct {
	client   dynamic.Interface
	resource schema.GroupVersionResource
}

func (dynamicSource) example() runtime.Object { return &unstructured.Unstructured{} }

func (s dynamicSource) listAll(ctx context.Context, namespace string, options metav1.ListOptions) (runtime.Object, error) {
	return s.client.Resource(s.resource).Namespace(namespace).List(ctx, options)
}

func (s dynamicSource) watchAll(ctx context.Context, namespace string, options metav1.ListOptions) (watch.Interface, error) {
	return s.client.Resource(s.resource).Namespace(namespace).Watch(ctx, options)
}
