package e2e

import (
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// gray matches requests that a user marks by a header.
var gray = strategy.Match{Headers: []strategy.ValueMatch{{Type: strategy.MatchExact, Name: "x-tag", Value: "gray"}}}

// Steps with matching requests, then with a share, then with matches again after a jump back: each step's routes are
// computed from the user's originals, so that no route is lost or left over.
func TestRolloutMatches(t *testing.T) {
	t.Parallel()
	testMatches(t, harness.Nginx)
}

// This test covers the other providers.
func TestLongRolloutMatches(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	testMatches(t, slices.DeleteFunc(slices.Clone(harness.Providers), func(p harness.Provider) bool {
		return p == harness.Nginx
	})...)
}

func testMatches(t *testing.T, providers ...harness.Provider) {
	t.Helper()
	e := harness.Shared(t)
	for _, provider := range providers {
		t.Run(string(provider), func(t *testing.T) {
			t.Parallel()
			r := startRelease(t, e, deploymentCell(strategy.StyleCanary, provider),
				func(_ map[string]any, r *harness.Rollout) {
					matched := harness.Step("50%", -1)
					matched.Matches = []strategy.Match{gray}
					r.Strategy.Steps = []strategy.Step{matched, harness.Step("50%", 30), harness.Step("100%", 100)}
				})
			r.approve(1)
			r.waitPaused(2)
			r.watch.AllowStep(t, 1)
			r.MustVerb(r.rollout.Name, "jump", `{"toStep":1}`)
			r.approveAll(1)
			r.requirePromoted()
		})
	}
}

// A match that the provider cannot express is refused with its field, and nothing is written.
func TestRolloutMatchesRefused(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	cases := map[string]struct {
		reason   string
		provider harness.Provider
		match    strategy.Match
	}{
		"PathByIngress": {"nginx's canary annotations cannot match a path", harness.Nginx,
			strategy.Match{Path: &strategy.PathMatch{Type: strategy.MatchPathPrefix, Value: "/beta"}}},
		"QueryByIngress": {"nginx's canary annotations cannot match a query parameter", harness.Nginx,
			strategy.Match{QueryParams: []strategy.ValueMatch{{Type: strategy.MatchExact, Name: "beta", Value: "1"}}}},
		"Unreadable": {"an invalid regular expression", harness.Istio,
			strategy.Match{Headers: []strategy.ValueMatch{{Type: strategy.MatchRegularExpression, Name: "x-tag",
				Value: "("}}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := prepare(t, e, deploymentCell(strategy.StylePartition, tc.provider),
				func(_ map[string]any, r *harness.Rollout) {
					r.Strategy.Steps[0].Traffic, r.Strategy.Steps[0].Matches = nil, []strategy.Match{tc.match}
				})
			a := r.TryStartRollout(r.rollout)
			require.Contains(t, []int{http.StatusBadRequest, http.StatusUnprocessableEntity}, a.Status, "%s: %s",
				tc.reason, a.Body)
			require.NotEmpty(t, a.Problem().Errors, tc.reason)
			require.Contains(t, a.Problem().Errors[0].Field, "steps[0].matches", "%s: %s", tc.reason, a.Body)
			r.watch.RequireNoLeftovers(t)
		})
	}
}
