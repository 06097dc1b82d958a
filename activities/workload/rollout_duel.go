package workload

import (
	"encoding/json"
	"slices"
	"strconv"
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

// fieldsOf are the fields of a workload by which a technique moves its pods: the settings that it borrows, and the template by its digest. A
// template that is set back before the first step has come to rest is set again, like any other field.
func fieldsOf(seen pods.Observed, tech pods.Technique) map[string]json.RawMessage {
	kept := map[string]json.RawMessage{"/spec/template": json.RawMessage(strconv.Quote(seen.Template))}
	for _, path := range tech.Pointers() {
		kept[path] = seen.Settings[path]
	}
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
