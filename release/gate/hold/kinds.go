// Package hold is how the gate holds a change of a pod template, kind by kind: as expressions of the API server's admission policies, and
// as the same decision for a webhook. It touches nothing.
package hold

import (
	"reflect"
	"strings"

	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/jsonpatch"
)

// Kind is a kind of workload, and the field that keeps its own controller from moving pods to a changed template.
type Kind struct {
	Group, Resource, Kind string
	// Pointer is the field, Value what holds.
	Pointer string
	Value   any
	// rolling says that the field exists with the update type RollingUpdate only; with another one the controller moves no pod by itself.
	rolling bool
	// sized says that the workload has a size of its own.
	sized bool
}

const (
	groupApps   = "apps"
	groupKruise = "apps.kruise.io"

	pathPaused    = "/spec/paused"
	pathShare     = "/spec/updateStrategy/partition"
	pathPartition = "/spec/updateStrategy/rollingUpdate/partition"
	pathType      = "/spec/updateStrategy/type"

	partition = int64(gate.HeldPartition)
)

// kinds are all kinds that a Rollout can name.
var kinds = []Kind{
	{Group: groupApps, Resource: "deployments", Kind: "Deployment", Pointer: pathPaused, Value: true, sized: true},
	{Group: groupApps, Resource: "statefulsets", Kind: "StatefulSet", Pointer: pathPartition, Value: partition, rolling: true, sized: true},
	{Group: groupApps, Resource: "daemonsets", Kind: "DaemonSet", Pointer: pathType, Value: "OnDelete"},
	{Group: groupKruise, Resource: "clonesets", Kind: "CloneSet", Pointer: pathShare, Value: "100%", sized: true},
	{Group: groupKruise, Resource: "statefulsets", Kind: "StatefulSet", Pointer: pathPartition, Value: partition, rolling: true, sized: true},
	{Group: groupKruise, Resource: "daemonsets", Kind: "DaemonSet", Pointer: pathPartition, Value: partition, rolling: true},
}

// Kinds are all kinds that a Rollout can name.
func Kinds() []Kind { return append([]Kind(nil), kinds...) }

// Of is the kind that a group and resource name; false when no Rollout can name it.
func Of(group, resource string) (Kind, bool) {
	for _, k := range kinds {
		if k.Group == group && k.Resource == resource {
			return k, true
		}
	}
	return Kind{}, false
}

// Holds says whether an object stands as the gate sets it to hold a changed template, as far as the field at a path goes, or what is in it: no pod moves by
// that. kind is of a group, path a JSON Pointer.
func Holds(group, kind string, object map[string]any, path string) bool {
	for _, k := range kinds {
		if k.Group != group || k.Kind != kind || k.Pointer != path && !strings.HasPrefix(k.Pointer, path+"/") {
			continue
		}
		value, _ := jsonpatch.At(object, k.Pointer)
		return reflect.DeepEqual(jsonpatch.Normalise(value), k.Value)
	}
	return false
}

// parents are the pointers of the objects that the field is in, from the outside, without spec.
func (k Kind) parents() []string {
	steps := strings.Split(strings.TrimPrefix(k.Pointer, "/"), "/")
	var out []string
	for i := 2; i < len(steps); i++ {
		out = append(out, "/"+strings.Join(steps[:i], "/"))
	}
	return out
}
