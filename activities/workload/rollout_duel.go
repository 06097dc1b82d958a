package workload

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/fieldmanager"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
)

// duel counts how often somebody else has changed the fields by which pods move, since this activity wrote them. The rest notices that from
// the watch (DriftDetector), and what moves from its own looks.
type duel struct {
	pods.Duel
	// left are the fields as they were written or seen last, at this generation.
	left       map[string]json.RawMessage
	generation int64
}

// wrote notes what this activity has left behind.
func (d *duel) wrote(settings map[string]json.RawMessage, o *unstructured.Unstructured) {
	d.left, d.generation = settings, o.GetGeneration()
}

// seen compares an object with what was left. A read that is older than the write tells nothing.
func (d *duel) seen(settings map[string]json.RawMessage, o *unstructured.Unstructured) pods.Duel {
	if d.left == nil || o.GetGeneration() <= d.generation {
		return d.Duel
	}
	if changed := (rollout.Rest{Settings: d.left}).Disturbed(settings); len(changed) > 0 {
		d.Times, d.Fields = d.Times+1, fieldNames(changed)
		d.By, _ = fieldmanager.Of(o, changed...)
	}
	d.wrote(settings, o)
	return d.Duel
}

// fieldsOf keeps of a workload's settings those at these pointers.
func fieldsOf(settings map[string]json.RawMessage, pointers []string) map[string]json.RawMessage {
	kept := maps.Clone(settings)
	maps.DeleteFunc(kept, func(path string, _ json.RawMessage) bool { return !slices.Contains(pointers, path) })
	return kept
}

// fieldNames names fields as people write them: "spec.paused, spec.strategy".
func fieldNames(pointers []string) string {
	names := slices.Clone(pointers)
	for i, p := range names {
		names[i] = strings.ReplaceAll(strings.TrimPrefix(p, "/"), "/", ".")
	}
	return strings.Join(names, ", ")
}
