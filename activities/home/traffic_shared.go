package home

import (
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/trafficrouting"
	"slipway.io/slipway/release/v1alpha1"
)

// sharedTraffic is what a TrafficRouting asks of the rollouts that hold it.
func sharedTraffic(t *v1alpha1.TrafficRouting) (rollout.SharedTraffic, error) {
	shared, wrong := trafficrouting.DecodeSpec(t.Name, t.Spec)
	if len(wrong) > 0 {
		return shared, failure.New(failure.Refused, "%s is not as it should be, correct it: %v", trafficObject(t.Namespace, t.Name), wrong)
	}
	return shared, nil
}
