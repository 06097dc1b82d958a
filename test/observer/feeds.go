package observer

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// feed is the list and watch of one kind.
type feed struct {
	list  func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error)
	watch func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
	// version is the resourceVersion at which a broken watch continues.
	version string
}

// resource is the common part of a typed and a dynamic client.
type resource[List runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (List, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

func feedOf[List runtime.Object](r resource[List]) *feed {
	return &feed{list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return r.List(ctx, o)
	}, watch: r.Watch}
}

func feedsOfPlans(client kubernetes.Interface, ns string) []*feed {
	core, apps := client.CoreV1(), client.AppsV1()
	return []*feed{feedOf(core.Pods(ns)), feedOf(apps.Deployments(ns)), feedOf(apps.StatefulSets(ns)),
		feedOf(apps.DaemonSets(ns))}
}

// customGroups are the API groups of custom kinds that a rollout may change.
var customGroups = []string{"apps.kruise.io", "gateway.networking.k8s.io", "networking.istio.io"}

// feedsOfRollouts returns feeds of all kinds that a rollout may change or that show its effects. A custom kind is
// included if it is installed at this time.
func feedsOfRollouts(t *testing.T, config *rest.Config, ns string) []*feed {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	custom, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	feeds := append(feedsOfPlans(client, ns),
		feedOf(client.AppsV1().ReplicaSets(ns)), feedOf(client.CoreV1().Services(ns)),
		feedOf(client.DiscoveryV1().EndpointSlices(ns)),
		feedOf(client.NetworkingV1().Ingresses(ns)), feedOf(client.AutoscalingV2().HorizontalPodAutoscalers(ns)))
	for _, gvr := range customResources(t, client) {
		feeds = append(feeds, feedOf(forObjects{custom.Resource(gvr).Namespace(ns)}))
	}
	return feeds
}

// customResources returns the namespaced, watchable resources of customGroups.
func customResources(t *testing.T, client kubernetes.Interface) []schema.GroupVersionResource {
	t.Helper()
	groups, err := client.Discovery().ServerGroups()
	require.NoError(t, err)
	var found []schema.GroupVersionResource
	for _, group := range groups.Groups {
		if !slices.Contains(customGroups, group.Name) {
			continue
		}
		known := map[string]bool{}
		for _, version := range group.Versions { // the preferred one comes first
			list, err := client.Discovery().ServerResourcesForGroupVersion(version.GroupVersion)
			require.NoError(t, err)
			for _, r := range list.APIResources {
				if r.Namespaced && !strings.Contains(r.Name, "/") && slices.Contains(r.Verbs, "watch") &&
					!known[r.Name] {
					known[r.Name] = true
					found = append(found, schema.GroupVersionResource{Group: group.Name, Version: version.Version,
						Resource: r.Name})
				}
			}
		}
	}
	return found
}

// forObjects adapts a dynamic client to the resource interface.
type forObjects struct{ r dynamic.ResourceInterface }

func (f forObjects) List(ctx context.Context, o metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	return f.r.List(ctx, o)
}

func (f forObjects) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return f.r.Watch(ctx, o)
}

// key returns a name that is unique over all kinds.
func key(obj runtime.Object) string {
	m, err := meta.Accessor(obj)
	if err != nil {
		return ""
	}
	return kindOf(obj) + "/" + m.GetName()
}

// kindOf returns an object's kind. The kind of a custom resource is followed by its group, because a kind alone is not
// unique: there are two StatefulSets.
func kindOf(obj runtime.Object) string {
	switch o := obj.(type) {
	case *corev1.Pod:
		return "Pod"
	case *corev1.Service:
		return "Service"
	case *appsv1.Deployment:
		return "Deployment"
	case *appsv1.ReplicaSet:
		return "ReplicaSet"
	case *appsv1.StatefulSet:
		return "StatefulSet"
	case *appsv1.DaemonSet:
		return "DaemonSet"
	case *discoveryv1.EndpointSlice:
		return "EndpointSlice"
	case *networkingv1.Ingress:
		return "Ingress"
	case *autoscalingv2.HorizontalPodAutoscaler:
		return "HorizontalPodAutoscaler"
	case *unstructured.Unstructured:
		return kindIn(o.GroupVersionKind().Group, o.GetKind())
	}
	return ""
}

func kindIn(group, kind string) string {
	if group == "apps" || group == "" {
		return kind
	}
	return kind + "." + group
}
