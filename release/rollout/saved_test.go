package rollout_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// Before a rollout's first Move nothing keeps a Deployment's own controller from rolling out another template.
func TestLeftToController(t *testing.T) {
	t.Parallel()
	saved := rollout.Saved{Style: strategy.StylePartition, StableTemplate: "stable",
		Settings: map[string]json.RawMessage{"/spec/minReadySeconds": json.RawMessage("5"), "/spec/paused": nil}}
	own := map[string]json.RawMessage{"/spec/minReadySeconds": json.RawMessage("5")}
	for _, tc := range []struct {
		reason, kind, template string
		live                   map[string]json.RawMessage
		saved                  func(s *rollout.Saved)
		want                   bool
	}{
		{"another client has set a template", "Deployment", "theirs", own, nil, true},
		{"the template is the stable one", "Deployment", "stable", own, nil, false},
		{"it is the rollout's own template, behind the minReadySeconds gate", "Deployment", "ours",
			map[string]json.RawMessage{"/spec/minReadySeconds": json.RawMessage("2147483646")}, nil, false},
		{"its pods have moved: it finishes with its own settings", "Deployment", "ours", own, func(s *rollout.Saved) {
			s.Canary = "new"
		}, false},
		{"it was finished before a pod moved", "Deployment", "ours", own, func(s *rollout.Saved) {
			s.FinalTemplateBy = "new"
		}, false},
		{"the extra workload serves, and no Service is pinned to the workload itself", "Deployment", "theirs", own,
			func(s *rollout.Saved) { s.Style = strategy.StyleCanary }, false},
		{"the own partition of a StatefulSet may be what the step wants", "StatefulSet", "ours", own, nil, false},
	} {
		s := saved
		if tc.saved != nil {
			tc.saved(&s)
		}
		require.Equal(t, tc.want, s.LeftToController(workload.Of("apps", tc.kind).Means, tc.template, tc.live), tc.reason)
	}
}

// A workload that declares the new version, with an extra Deployment, is paused with the new template: the commands
// restore both.
func TestRecoverText_RestoresTemplateAndPause_OfDeclaredCanary(t *testing.T) {
	t.Parallel()
	w := catalog.Workload{Namespace: "shop", WorkloadRef: catalog.WorkloadRef{APIVersion: "apps/v1", Kind: "Deployment",
		Name: "web"}}
	saved := rollout.Saved{Name: "web", Style: strategy.StyleCanary, Stable: "abc", CanaryWorkload: "web-canary",
		Settings: map[string]json.RawMessage{"/spec/paused": json.RawMessage("null")}}
	stable, _, _ := strings.Cut(rollout.RecoverText(saved, w), "# to the new version")
	require.NotContains(t, stable, "/spec/template", "a template that the release has not changed is not restored")
	saved.Declared = "digest"
	stable, _, _ = strings.Cut(rollout.RecoverText(saved, w), "# to the new version")
	require.Contains(t, stable, "replicasets.apps web-abc", "the stable template is restored")
	require.Contains(t, stable, "/spec/paused", "and the pause is removed")
	require.Contains(t, stable, rollout.AnnotationNext+"-",
		"and the template kept for the next release: after a manual recovery the user declares it again")
}
