package workload

import (
	"encoding/json"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/fieldmanager"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
)

// conflictCounter counts how often another client has changed the fields by which pods move, since this activity wrote
// them. While a rollout is paused DriftDetector notices such changes; while pods move, the activity's own reads do.
type conflictCounter struct {
	pods.EditConflict
	// left are the fields as they were last written or read, at this generation.
	left       map[string]json.RawMessage
	generation int64
}

// noteWrite records what this activity has written.
func (d *conflictCounter) noteWrite(settings map[string]json.RawMessage, o *unstructured.Unstructured) {
	d.left, d.generation = settings, o.GetGeneration()
}

// compare compares an object with the last write. A read that is older than the write is ignored.
func (d *conflictCounter) compare(settings map[string]json.RawMessage, o *unstructured.Unstructured) pods.EditConflict {
	if d.left == nil || o.GetGeneration() <= d.generation {
		return d.EditConflict
	}
	if changed := (rollout.SettledState{Settings: d.left}).ChangedFields(settings); len(changed) > 0 {
		d.Times, d.Fields = d.Times+1, fieldNames(changed)
		d.By, _ = fieldmanager.LastOther(o, changed...)
	}
	d.noteWrite(settings, o)
	return d.EditConflict
}

// moveFields are the fields of a workload by which a technique moves its pods: the settings that it borrows, and the
// template by its digest. A template that another client resets before the first step is complete is set again, like
// any other field.
func moveFields(seen pods.Observed, tech pods.Technique) map[string]json.RawMessage {
	kept := map[string]json.RawMessage{"/spec/template": json.RawMessage(strconv.Quote(seen.Template))}
	for _, path := range tech.Pointers() {
		kept[path] = seen.Settings[path]
	}
	return kept
}
