package harness

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/rollout"
)

// What the tests ask for is what the engine reads: the observer judges by the same strategy.
func TestBodySaysTheStrategy(t *testing.T) {
	t.Parallel()
	e := &Engine{}
	seconds := int64(7)
	header := rollout.Match{Headers: []rollout.ValueMatch{{Type: rollout.MatchExact, Name: "x-tag", Value: "gray"}}}
	cases := map[string]rollout.Strategy{
		"partition":  {Style: rollout.StylePartition, Steps: []rollout.Step{Step("25%", 20), Timed(Step("2", -1), 7*time.Second), Timed(Step("100%", -1), 0)}, Routings: e.RoutingOf(Nginx, "order")},
		"canary":     {Style: rollout.StyleCanary, Steps: []rollout.Step{Step("1", 20), Timed(Step("100%", 100), 0)}, Routings: e.RoutingOf(Gateway, "order"), PatchPodTemplateMetadata: &rollout.PodMetadata{Labels: map[string]string{"tag": "gray"}}},
		"blue-green": {Style: rollout.StyleBlueGreen, Paused: true, Steps: []rollout.Step{Step("100%", 0), {Replicas: Step("100%", -1).Replicas, Matches: []rollout.Match{header}, PauseSeconds: &seconds}, Step("100%", 100)}, Routings: e.RoutingOf(Istio, "order")},
		"shared":     {Style: rollout.StyleCanary, Steps: []rollout.Step{Timed(Step("100%", -1), 0)}, TrafficRoutingRef: "gray"},
	}
	for name, want := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body, err := json.Marshal(Rollout{Kind: Deployment, Name: "order", Strategy: want, Policy: map[string]any{"stepDeadlineSeconds": 15}}.Body("shop"))
			require.NoError(t, err)
			request, wrong := rollout.DecodeRequest(body)
			require.Empty(t, wrong, "%s", body)
			require.Equal(t, want, request.Spec.Strategy)
			require.Equal(t, int64(15), request.Spec.Policy.StepDeadlineSeconds)
			require.Equal(t, map[string]string{"app": NewImage("order")}, request.Spec.Change.Images)
		})
	}
}
