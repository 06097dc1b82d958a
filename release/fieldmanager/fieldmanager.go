// Package fieldmanager reads from an object's managedFields which client wrote it.
package fieldmanager

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/jsonpatch"
)

// Slipway is the field manager of the writes of releases.
const Slipway = "slipway"

// LastOther returns the field manager, other than Slipway, that last wrote at or below one of these JSON Pointers: the
// name of the tool, for example "kubectl-edit". A client that removed a field does not own it: if no other manager owns
// a field there, the result is the last other manager of the spec. The name is "" if managedFields do not contain one.
func LastOther(o metav1.Object, pointers ...string) (name string, at metav1.Time) {
	if name, at = lastWriter(o, other, pointers...); name != "" {
		return name, at
	}
	return lastWriter(o, other, "/spec")
}

// Last returns the field manager that last wrote at or below a JSON Pointer. Times are in whole seconds: it is Slipway
// only if no other one wrote in the same second.
func Last(o metav1.Object, pointer string) (name string, at metav1.Time) {
	name, at = lastWriter(o, other, pointer)
	if _, ours := lastWriter(o, func(manager string) bool { return manager == Slipway }, pointer); at.Before(&ours) {
		return Slipway, ours
	}
	return name, at
}

func other(manager string) bool { return manager != Slipway }

// lastWriter returns the last one of some managers that wrote at or below one of the pointers.
func lastWriter(o metav1.Object, some func(manager string) bool, pointers ...string) (name string, at metav1.Time) {
	for _, entry := range o.GetManagedFields() {
		if !some(entry.Manager) || entry.Subresource == "status" || entry.FieldsV1 == nil || entry.Time == nil ||
			entry.Time.Before(&at) {
			continue
		}
		var fields map[string]any
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		for _, pointer := range pointers {
			owned := strings.ReplaceAll(pointer, "/", "/f:") // the notation of FieldsV1
			if _, there := jsonpatch.At(fields, owned); there {
				name, at = entry.Manager, *entry.Time
			}
		}
	}
	return name, at
}

// WrittenByOther reports whether a manager other than Slipway owns an annotation. It decodes nothing, so that it can be
// asked for every change of an object.
func WrittenByOther(o metav1.Object, annotation string) bool {
	key := []byte(`"f:` + annotation + `"`)
	return slices.ContainsFunc(o.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager != Slipway && e.FieldsV1 != nil && bytes.Contains(e.FieldsV1.GetRawBytes(), key)
	})
}

// LastIsSlipway reports whether Slipway was the last to write an object. Times are in whole seconds: if another manager
// wrote in the same second, the result is false.
func LastIsSlipway(o metav1.Object) bool {
	var last metav1.Time
	ours := false
	for _, entry := range o.GetManagedFields() {
		if entry.Subresource != "" || entry.Time == nil || entry.Time.Before(&last) {
			continue
		}
		mine := entry.Manager == Slipway
		ours = mine && (ours || !entry.Time.Equal(&last))
		last = *entry.Time
	}
	return ours
}
