package traffic

import (
	"encoding/json"
	"slices"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// AnnotationPlaces stands on objects that a release created: the places of the object that the release keeps as it wants them, as a JSON
// list of JSON Pointers. What others add elsewhere is theirs.
const AnnotationPlaces = "slipway.io/places"

// Created is an object that a release makes, as it is found; its live object is nil when it is not there.
type Created struct{ object }

// LookCreated looks at an object that a release makes. name describes it in messages.
func LookCreated(name string, live Object) Created { return Created{object{name, live}} }

// Foreign says that an object of that name is there, and that no release has made it.
func (c Created) Foreign() bool {
	return c.live != nil && DigString(c.live, "metadata", "labels", strategy.LabelCanaryOf) == ""
}

// Mine fails unless the hand may change or delete the object.
func (c Created) Mine(h Hand) error {
	if c.Foreign() {
		return failure.New(failure.Refused, "%s is there already, and no release has made it: delete or rename it, since a release makes one "+
			"of that name", c.name)
	}
	return h.Mine(c.name, c.Holder())
}

// Sign notes on an object that is to be created which of its places are ours.
func Sign(desired Object, paths []string) Object {
	out := clone(desired)
	jsonpatch.Put(out, jsonpatch.Annotation(AnnotationPlaces), list(paths))
	return out
}

// Stamped is an object to be created with the digest of what the API server will keep of it.
func Stamped(desired Object, digest string) Object {
	out := clone(desired)
	jsonpatch.Put(out, jsonpatch.Annotation(rollout.AnnotationWritten), digest)
	return out
}

// Want decides what to write so that the object is as desired in these places; nil: nothing. The object is there. It fails with
// failure.Refused when no release made it, failure.Claimed, or failure.Drift when somebody else has edited it.
func (c Created) Want(h Hand, desired Object, paths []string) (*Write, error) {
	if err := c.Mine(h); err != nil {
		return nil, err
	}
	signs := []string{jsonpatch.Annotation(rollout.AnnotationHeldBy), jsonpatch.Annotation(AnnotationPlaces)}
	return c.want(h, Sign(desired, paths), places{kept: c.places(), ours: paths, signs: signs})
}

// places are the places that were noted on the object; nothing legible: its spec.
func (c Created) places() []string {
	var out []string
	if json.Unmarshal([]byte(annotationsOf(c.live)[AnnotationPlaces]), &out) != nil {
		return []string{"/spec"}
	}
	return out
}

func list(paths []string) string {
	raw, err := json.Marshal(slices.Sorted(slices.Values(paths)))
	if err != nil {
		return "[]"
	}
	return string(raw)
}
