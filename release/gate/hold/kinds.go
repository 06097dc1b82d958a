// Package hold defines how the gate holds a change of a pod template, for each kind: as expressions of admission
// policies, and as the same decision for a webhook. It does no I/O.
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
	// Pointer is the field, Value its value that holds.
	Pointer string
	Value   any
	// rolling is true if the field exists only with the update type RollingUpdate; with another type the controller
	// moves no pod by itself.
	rolling bool
	// sized is true if the workload has a replicas field.
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
	{Group: groupApps, Resource: "statefulsets", Kind: "StatefulSet", Pointer: pathPartition, Value: partition,
		rolling: true, sized: true},
	{Group: groupApps, Resource: "daemonsets", Kind: "DaemonSet", Pointer: pathType, Value: "OnDelete"},
	{Group: groupKruise, Resource: "clonesets", Kind: "CloneSet", Pointer: pathShare, Value: "100%", sized: true},
	{Group: groupKruise, Resource: "statefulsets", Kind: "StatefulSet", Pointer: pathPartition, Value: partition,
		rolling: true, sized: true},
	{Group: groupKruise, Resource: "daemonsets", Kind: "DaemonSet", Pointer: pathPartition, Value: partition,
		rolling: true},
}

// Kinds returns all kinds that a Rollout can name.
func Kinds() []Kind { return append([]Kind(nil), kinds...) }

// KindFor returns the kind of a group and resource; false if no Rollout can name it.
func KindFor(group, resource string) (Kind, bool) {
	for _, k := range kinds {
		if k.Group == group && k.Resource == resource {
			return k, true
		}
	}
	return Kind{}, false
}

// Holds reports whether an object's field at path has the value by which the gate holds a changed template, so that no
// pod moves. path is a JSON Pointer to the field or to an object around it; kind is a kind of group.
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

// parents returns the pointers of the objects around the field, from the outside, without spec.
func (k Kind) parents() []string {
	steps := strings.Split(strings.TrimPrefix(k.Pointer, "/"), "/")
	var out []string
	for i := 2; i < len(steps); i++ {
		out = append(out, "/"+strings.Join(steps[:i], "/"))
	}
	return out
}
