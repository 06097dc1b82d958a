package strategy

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func FuzzDecodeRequest(f *testing.F) {
	for _, example := range []string{exampleBeta, exampleAlpha, exampleRefBeta, exampleRefAlpha, exampleRoutings,
		exampleSharedBeta, exampleSharedAlpha,
		exampleCanaryBeta, exampleCanaryAlpha, exampleBlueGreen, exampleStatusCanary} {
		f.Add(underRollout(example))
	}
	for _, text := range []string{
		request(oneStep), canary("{replicas: 10%, traffic: 5%, matches: [{path: {}}], pause: {duration: {}}}",
			routings), blueGreen("{replicas: 1}"),
		`{"images":{"a":"b"},"strategy":{"canary":null}}`, "rollout: &a [*a]", "templatePatch: {a: {<<: {b: .nan}}}\n",
		"strategy:\n\t- x", "{", "\x00",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		begin := time.Now()
		request, errs := DecodeRequest(data)
		require.Less(t, time.Since(begin), 10*time.Second)
		if len(errs) > 0 {
			for _, one := range errs {
				require.Positive(t, one.Line, "every error has its line: %v", one)
				require.NotEmpty(t, one.Reason)
			}
			return
		}
		spec := request.Spec
		require.NotEmpty(t, spec.Name)
		require.NotEmpty(t, spec.Party)
		require.NotEmpty(t, spec.Strategy.Style)
		require.NotEmpty(t, spec.Strategy.Steps)
		require.Positive(t, spec.Policy.StepDeadlineSeconds)
		require.NotEqual(t, spec.Change.Images == nil, spec.Change.TemplatePatch == nil, "exactly one of the changes")
		for _, step := range spec.Strategy.Steps {
			require.Positive(t, Target(spec.Strategy.Style, step.Replicas, 100), "a step replaces at least one pod")
			require.True(t, !step.Routes() || spec.Strategy.HasTraffic(), "a step that routes traffic has routings")
		}
		raw, err := json.Marshal(spec)
		require.NoError(t, err, "the record keeps it as JSON")
		var again Spec
		require.NoError(t, json.Unmarshal(raw, &again))
		repeated, err := json.Marshal(again)
		require.NoError(t, err)
		require.JSONEq(t, string(raw), string(repeated), "and reads it back unchanged")
	})
}
