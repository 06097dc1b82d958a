package kruise

import (
	"encoding/json"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// Via is the front door of what an object asks for.
const Via = "kubectl"

// Release is a release that an object asks for.
type Release struct {
	Request strategy.Request
	Object  rollout.ObjectRef
	// Confirm is why somebody has to approve it before anything is done; "": nobody has to.
	Confirm string
}

// Answer is what became of a command. Closed says that no release was there to take it.
type Answer struct {
	Outcome audit.Outcome
	Message string
	Closed  bool
}

// SpecOf reads what an object asks, without a change. The error says all that is wrong.
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

// RefOf is how a release names the object that asks for it.
func RefOf(r *v1beta1.Rollout) rollout.ObjectRef {
	return rollout.ObjectRef{Namespace: r.Namespace, Name: r.Name, UID: string(r.UID)}
}
