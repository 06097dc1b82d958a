// Package traffic decides how requests are moved between two versions: the canary Service and Ingress, the rules of an
// HTTPRoute, the inputs and permitted outputs of scripts, and the original of a borrowed object. It works on untyped
// objects, so that no field is lost that a Go type does not have. It does not access the cluster.
package traffic

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"slipway.io/slipway/release/jsonpatch"
)

// Object is an object, or a part of one, as JSON: map[string]any, []any, string, bool, int64, float64 and nil.
type Object = map[string]any

func clone[T any](value T) T {
	c, ok := runtime.DeepCopyJSONValue(value).(T)
	if !ok {
		return value // nil of an interface type
	}
	return c
}

func objectsOf(list []any) []Object {
	var out []Object
	for _, item := range list {
		if m, ok := item.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// digStrings returns the members of a map whose values are strings.
func digStrings(o Object, path ...string) map[string]string {
	out := map[string]string{}
	for name, value := range jsonpatch.DigObject(o, path...) {
		if s, ok := value.(string); ok {
			out[name] = s
		}
	}
	return out
}

func annotationsOf(o Object) map[string]string { return digStrings(o, "metadata", "annotations") }

// Number reads a JSON number.
func Number(value any) (int64, bool) {
	switch n := value.(type) {
	case int64:
		return n, true
	case float64:
		return int64(n), n == float64(int64(n))
	default:
		return 0, false
	}
}

// Describe names an object in messages: "HTTPRoute shop/order".
func Describe(kind, namespace, name string) string {
	return fmt.Sprintf("%s %s/%s", kind, namespace, name)
}

// pathSpec is the place of canary Ingresses and custom objects that a release owns.
const pathSpec = "/spec"

// Kind is a kind of object that a release borrows or creates in order to move traffic.
type Kind struct {
	// Group and Resource name it as the API server does, in any version.
	Group, Resource string
	// Pointers are the JSON Pointers of the fields that a release writes.
	Pointers []string
	// Metadata is true if it also writes labels or annotations that a script chooses.
	Metadata bool
}

// The groups of Ingresses and of the Gateway API.
const (
	groupNetworking = "networking.k8s.io"
	groupGateway    = "gateway.networking.k8s.io"
)

// Kinds returns the kinds that every cluster may have. For other custom objects see CustomKind.
func Kinds() []Kind {
	return []Kind{
		{Resource: "services", Pointers: []string{pathSelector}},
		{Group: groupNetworking, Resource: "ingresses", Pointers: []string{pathSpec}, Metadata: true},
		{Group: groupGateway, Resource: "httproutes", Pointers: []string{pathRules}},
		CustomKind(GroupIstio, "virtualservices"), CustomKind(GroupIstio, "destinationrules"),
	}
}

// CustomKind returns a kind that a script changes.
func CustomKind(group, resource string) Kind {
	return Kind{Group: group, Resource: resource, Pointers: []string{pathSpec}, Metadata: true}
}
