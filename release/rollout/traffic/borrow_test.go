package traffic_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/rollout/traffic"
)

// Any client that may edit an object can replace the patch that a release has saved on it.
func TestReadBorrowed_FailsWithDrift_WhenSavedPatchIsForged(t *testing.T) {
	t.Parallel()
	kinds := map[string]struct {
		borrows traffic.Borrowable
		places  []string
		others  []string
	}{
		"a Service": {traffic.BorrowsSelector, []string{"/spec/selector"},
			[]string{"/spec", "/spec/ports", "/spec/selector/app", "/spec/externalName"}},
		"an HTTPRoute": {traffic.BorrowsRules, []string{"/spec/rules"},
			[]string{"/spec", "/spec/hostnames", "/spec/parentRefs", "/spec/rules/0"}},
		"a custom object": {traffic.BorrowsByScript,
			[]string{"/spec", "/metadata/labels/tier", "/metadata/annotations/edge.example~1weight"},
			[]string{"/spec/x", "/data"}},
	}
	never := []string{
		"/metadata/ownerReferences", "/metadata/finalizers", "/metadata/namespace", "/metadata/name", "/metadata",
		"/metadata/labels", "/metadata/annotations",
		"/metadata/annotations/", "/metadata/annotations/a/b", "/metadata/annotations/slipway.io~1claimed-by",
		"/metadata/labels/slipway.io~1rollout",
		"/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration", "/status", "/spec/template", "/",
	}
	for name, c := range kinds {
		for _, path := range append(c.others, never...) {
			for _, op := range []jsonpatch.Op{jsonpatch.Add(path, "theirs"), jsonpatch.Remove(path)} {
				_, err := traffic.ReadBorrowed(name,
					withPatch(t, jsonpatch.Remove(jsonpatch.Annotation(rollout.AnnotationHeldBy)), op), c.borrows)
				require.True(t, failure.Is(err, failure.Drift), "%s must not restore %s: %v", name, path, err)
				require.ErrorContains(t, err, "its annotation slipway.io/restore has been changed by another client "+
					"and is not followed (operation 2 changes "+path+", which no release borrows)")
			}
		}
		for _, path := range c.places {
			_, err := traffic.ReadBorrowed(name, withPatch(t, jsonpatch.Add(path, "own")), c.borrows)
			require.NoError(t, err, "%s may restore %s", name, path)
		}
	}
}

func withPatch(t *testing.T, ops ...jsonpatch.Op) traffic.Object {
	t.Helper()
	text, err := json.Marshal(ops)
	require.NoError(t, err)
	return traffic.Object{"metadata": map[string]any{"annotations": map[string]any{rollout.AnnotationRestore: string(
		text)}}}
}

// The places that are annotated on a created object are those that the release controls: a forged annotation does not
// make it change others.
func TestCreatedPlanWrite_IgnoresForgedPlaces(t *testing.T) {
	t.Parallel()
	live := traffic.Object{"metadata": map[string]any{"resourceVersion": "1", "ownerReferences": []any{"x"},
		"labels": map[string]any{strategy.LabelCanaryOf: "order"},
		"annotations": map[string]any{rollout.AnnotationHeldBy: hand.Claim,
			traffic.AnnotationPlaces: `["/metadata/ownerReferences","/spec/selector"]`}},
		"spec": map[string]any{"selector": map[string]any{"app": "theirs"}}}
	desired := traffic.Object{
		"metadata": map[string]any{"annotations": map[string]any{rollout.AnnotationHeldBy: hand.Claim}},
		"spec":     map[string]any{"selector": map[string]any{"app": "order"}}}
	overwrites := hand
	overwrites.Overwrite = true
	w, err := traffic.NewCreated("Service shop/order-canary", live).PlanWrite(overwrites, desired,
		traffic.CanarySelectorPaths)
	require.NoError(t, err)
	for _, op := range w.Changes {
		require.NotContains(t, op.Path, "ownerReferences")
	}
	require.Contains(t, w.Changes, jsonpatch.Add("/spec/selector", map[string]any{"app": "order"}))
}
