// Package fieldmanager reads from an object's managedFields who has written it.
package fieldmanager

import (
	"encoding/json"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/jsonpatch"
)

// Slipway is the name under which the API server notes what releases write.
const Slipway = "slipway"

// Of is the field manager, other than Slipway, that wrote last at or below one of these JSON Pointers: the name of the tool, "kubectl-edit"
// for example. Who has removed a field owns nothing of it: where nobody else owns anything there, it is the last other one that owns
// anything of the spec. The name is "" when the object does not tell.
func Of(o metav1.Object, pointers ...string) (name string, at metav1.Time) {
	if name, at = last(o, pointers); name != "" {
		return name, at
	}
	return last(o, []string{"/spec"})
}

func last(o metav1.Object, pointers []string) (name string, at metav1.Time) {
	for _, entry := range o.GetManagedFields() {
		if entry.Manager == Slipway || entry.Subresource == "status" || entry.FieldsV1 == nil || entry.Time == nil || entry.Time.Before(&at) {
			continue
		}
		var fields map[string]any
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		for _, pointer := range pointers {
			owned := strings.ReplaceAll(pointer, "/", "/f:") // as FieldsV1 writes the fields that somebody owns
			if _, there := jsonpatch.At(fields, owned); there {
				name, at = entry.Manager, *entry.Time
			}
		}
	}
	return name, at
}

// LastIsSlipway says whether the last who wrote to an object was Slipway. Times are whole seconds: of two in one second, nobody is the last.
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
