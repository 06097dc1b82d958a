package harness

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/rollout/strategy"
)

// TestRolloutBody_DecodesToSameStrategy checks that the engine decodes the tests' request to the strategy by which the
// observer judges.
func TestRolloutBody_DecodesToSameStrategy(t *testing.T) {
	t.Parallel()
	e := &Engine{}
	seconds := int64(7)
	header := strategy.Match{Headers: []strategy.ValueMatch{{Type: strategy.MatchExact, Name: "x-tag", Value: "gray"}}}
	cases := map[string]strategy.Strategy{
		"partition": {Style: strategy.StylePartition,
			Steps: []strategy.Step{Step("25%", 20), TimedStep(Step("2", -1), 7*time.Second),
				TimedStep(Step("100%", -1), 0)}, Routings: e.RoutingOf(Nginx, "order")},
		"canary": {Style: strategy.StyleCanary,
			Steps:                    []strategy.Step{Step("1", 20), TimedStep(Step("100%", 100), 0)},
			Routings:                 e.RoutingOf(Gateway, "order"),
			PatchPodTemplateMetadata: &strategy.PodMetadata{Labels: map[string]string{"tag": "gray"}}},
		"blue-green": {Style: strategy.StyleBlueGreen, Paused: true,
			Steps: []strategy.Step{Step("100%", 0),
				{Replicas: Step("100%", -1).Replicas, Matches: []strategy.Match{header}, PauseSeconds: &seconds},
				Step("100%", 100)}, Routings: e.RoutingOf(Istio, "order")},
		"shared": {Style: strategy.StyleCanary, Steps: []strategy.Step{TimedStep(Step("100%", -1), 0)},
			TrafficRoutingRef: "gray"},
	}
	for name, want := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body, err := json.Marshal(Rollout{Kind: Deployment, Name: "order", Strategy: want,
				Policy: map[string]any{"stepDeadlineSeconds": 15}}.Body("shop"))
			require.NoError(t, err)
			request, wrong := strategy.DecodeRequest(body)
			require.Empty(t, wrong, "%s", body)
			require.Equal(t, want, request.Spec.Strategy)
			require.Equal(t, int64(15), request.Spec.Policy.StepDeadlineSeconds)
			require.Equal(t, map[string]string{"app": NewImage("order")}, request.Spec.Change.Images)
		})
	}
}
