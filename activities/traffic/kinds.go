package traffic

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/lru"

	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout/traffic"
)

// kind is where objects of one kind are found.
type kind struct {
	name string
	gvr  schema.GroupVersionResource
}

// at is the place of an object of that kind.
func (k kind) at(namespace, name string) place {
	return place{k.name, kube.Ref{Resource: k.gvr, Namespace: namespace, Name: name}}
}

// place is one object: its kind, and where it is.
type place struct {
	kind string
	kube.Ref
}

func (p place) String() string { return traffic.Describe(p.kind, p.Namespace, p.Name) }

// The kinds that every rollout with traffic has to do with.
var (
	services   = kind{"Service", corev1.SchemeGroupVersion.WithResource("services")}
	configMaps = kind{"ConfigMap", corev1.SchemeGroupVersion.WithResource("configmaps")}
	ingresses  = kind{"Ingress", schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}}
	httpRoutes = kind{"HTTPRoute", schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "httproutes"}}
)

// mostKinds is how many kinds are remembered.
const mostKinds = 1000

// kinds finds out how the cluster calls the objects of a kind, and remembers it.
type kinds struct {
	discovery discovery.DiscoveryInterface
	known     *lru.Cache
}

func newKinds(d discovery.DiscoveryInterface) *kinds {
	return &kinds{discovery: d, known: lru.New(mostKinds)}
}

// of is the kind of a custom object. It fails with failure.Refused when the cluster does not have it.
func (k *kinds) of(apiVersion, name string) (kind, error) {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return kind{}, failure.New(failure.Refused, "apiVersion %s: %v", apiVersion, err)
	}
	gvk := gv.WithKind(name)
	if known, there := k.known.Get(gvk); there {
		return known.(kind), nil
	}
	list, err := k.discovery.ServerResourcesForGroupVersion(apiVersion)
	if apierrors.IsNotFound(err) {
		return kind{}, failure.New(failure.Refused, "the cluster has no %s: install its custom resource definition", apiVersion)
	}
	if err != nil {
		return kind{}, err
	}
	for _, r := range list.APIResources {
		if r.Kind == name && r.Namespaced && !strings.Contains(r.Name, "/") {
			found := kind{name: name, gvr: gv.WithResource(r.Name)}
			k.known.Add(gvk, found)
			return found, nil
		}
	}
	return kind{}, failure.New(failure.Refused, "the cluster has no kind %s in %s: install its custom resource definition", name, apiVersion)
}
