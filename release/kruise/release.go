package kruise

import (
	"encoding/json"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// Via is the channel, as recorded in the audit, of what a client requests through an object.
const Via = "kubectl"

// Release is a release that an object requests.
type Release struct {
	Request strategy.Request
	Object  rollout.ObjectRef
	// Confirm is why the release needs an approval before it starts; "": it needs none.
	Confirm string
}

// Answer is the result of a command. Closed is true if no release was running to take it.
type Answer struct {
	Outcome audit.Outcome
	Message string
	Closed  bool
}

// SpecOf decodes the object's rollout spec with its warnings, without changing the object. The error lists every
// problem.
func SpecOf(r *v1beta1.Rollout) (strategy.Spec, []string, error) {
	object := *r
	object.APIVersion, object.Kind = v1beta1.GroupVersion.String(), v1beta1.Kind
	object.Status = v1beta1.RolloutStatus{}
	raw, err := json.Marshal(object)
	if err != nil {
		return strategy.Spec{}, nil, err
	}
	spec, warnings, wrong := strategy.DecodeObject(raw)
	return spec, warnings, wrong.Err()
}

// RefOf returns the reference by which a release names the object that requested it.
func RefOf(r *v1beta1.Rollout) rollout.ObjectRef {
	return rollout.ObjectRef{Namespace: r.Namespace, Name: r.Name, UID: string(r.UID)}
}
