package drift

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind is a kind of object that rollouts borrow or create in addition to the workload.
type Kind struct {
	Name     string
	Resource schema.GroupVersionResource
	// EditedPaths are the fields of an object, as JSON Pointers, that another client has changed since the rollout
	// wrote them.
	EditedPaths func(o *unstructured.Unstructured) []string
	// What is the value of rollout.Observed.What for it.
	What string
}
