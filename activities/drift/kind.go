package drift

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind is a kind of object that rollouts borrow or make beside the workload.
type Kind struct {
	Name     string
	Resource schema.GroupVersionResource
	// Edited are the places of an object, as JSON Pointers, of which somebody else has changed something since the rollout wrote them.
	Edited func(o *unstructured.Unstructured) []string
	// What is the word of rollout.Observed for it.
	What string
}
