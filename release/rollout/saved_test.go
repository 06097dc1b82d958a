package rollout_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// Before its first move nothing of a rollout keeps a Deployment's own controller from another template.
func TestLetGo(t *testing.T) {
	t.Parallel()
	saved := rollout.Saved{Style: strategy.StylePartition, StableTemplate: "stable", Settings: map[string]json.RawMessage{"/spec/minReadySeconds": json.RawMessage("5"), "/spec/paused": nil}}
	own := map[string]json.RawMessage{"/spec/minReadySeconds": json.RawMessage("5")}
	for _, tc := range []struct {
		reason, kind, template string
		live                   map[string]json.RawMessage
		saved                  func(s *rollout.Saved)
		want                   bool
	}{
		{"somebody else has set a template", "Deployment", "theirs", own, nil, true},
		{"nobody has", "Deployment", "stable", own, nil, false},
		{"it is the rollout's own template, behind the gate", "Deployment", "ours", map[string]json.RawMessage{"/spec/minReadySeconds": json.RawMessage("2147483646")}, nil, false},
		{"its pods have moved: it finishes with its own settings", "Deployment", "ours", own, func(s *rollout.Saved) { s.Canary = "new" }, false},
		{"it was brought to its end before a pod moved", "Deployment", "ours", own, func(s *rollout.Saved) { s.Homeward = "new" }, false},
		{"the extra workload serves, and the workload itself is not pinned to", "Deployment", "theirs", own, func(s *rollout.Saved) { s.Style = strategy.StyleCanary }, false},
		{"a partition of its own may be what the step wants", "StatefulSet", "ours", own, nil, false},
	} {
		s := saved
		if tc.saved != nil {
			tc.saved(&s)
		}
		require.Equal(t, tc.want, s.LetGo(tc.kind, tc.template, tc.live), tc.reason)
	}
}

// A workload that declares the new version beside an extra one is paused with the new template: the commands give both back.
func TestRecoverOfADeclaredVersionBesideAnExtraWorkload(t *testing.T) {
	t.Parallel()
	w := catalog.Workload{Namespace: "shop", WorkloadRef: catalog.WorkloadRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}}
	saved := rollout.Saved{Name: "web", Style: strategy.StyleCanary, Stable: "abc", CanaryWorkload: "web-canary",
		Settings: map[string]json.RawMessage{"/spec/paused": json.RawMessage("null")}}
	stable, _, _ := strings.Cut(rollout.RecoverText(saved, w), "# to the new version")
	require.NotContains(t, stable, "/spec/template", "a template that the release has not touched stays as it is")
	saved.Declared = "digest"
	stable, _, _ = strings.Cut(rollout.RecoverText(saved, w), "# to the new version")
	require.Contains(t, stable, "replicasets.apps web-abc", "the stable template comes back")
	require.Contains(t, stable, "/spec/paused", "and with it the pause goes")
	require.Contains(t, stable, rollout.AnnotationNext+"-", "and what was kept for the next release: who has recovered it by hand declares anew")
}
