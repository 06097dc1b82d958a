package e2e

import (
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// gray are the requests that a person marks by a header.
var gray = strategy.Match{Headers: []strategy.ValueMatch{{Type: strategy.MatchExact, Name: "x-tag", Value: "gray"}}}

// Requests that match first, then a share, then matches again by a jump back: each step's routes are made from the user's own, so that none is lost and none
// is left over.
func TestRolloutMatches(t *testing.T) {
	t.Parallel()
	match(t, harness.Nginx)
}

// By the other providers.
func TestLongRolloutMatches(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	match(t, slices.DeleteFunc(slices.Clone(harness.Providers), func(p harness.Provider) bool { return p == harness.Nginx })...)
}

func match(t *testing.T, providers ...harness.Provider) {
	t.Helper()
	e := harness.Shared(t)
	for _, provider := range providers {
		t.Run(string(provider), func(t *testing.T) {
			t.Parallel()
			r := begin(t, e, deploymentBy(strategy.StyleCanary, provider), func(_ map[string]any, r *harness.Rollout) {
				matched := harness.Step("50%", -1)
				matched.Matches = []strategy.Match{gray}
				r.Strategy.Steps = []strategy.Step{matched, harness.Step("50%", 30), harness.Step("100%", 100)}
			})
			r.approve(1)
			r.rest(2)
			r.watch.GoTo(t, 1)
			r.MustVerb(r.rollout.Name, "jump", `{"toStep":1}`)
			r.approveAll(1)
			r.endsNew()
		})
	}
}

// What a provider cannot express is refused at the door, with the field, and nothing is written.
func TestRolloutMatchesRefused(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	cases := map[string]struct {
		reason   string
		provider harness.Provider
		match    strategy.Match
	}{
		"PathByIngress":  {"the canary annotations of nginx know no path", harness.Nginx, strategy.Match{Path: &strategy.PathMatch{Type: strategy.MatchPathPrefix, Value: "/beta"}}},
		"QueryByIngress": {"nor a query parameter", harness.Nginx, strategy.Match{QueryParams: []strategy.ValueMatch{{Type: strategy.MatchExact, Name: "beta", Value: "1"}}}},
		"Unreadable":     {"a pattern that is none", harness.Istio, strategy.Match{Headers: []strategy.ValueMatch{{Type: strategy.MatchRegularExpression, Name: "x-tag", Value: "("}}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := prepare(t, e, deploymentBy(strategy.StylePartition, tc.provider), func(_ map[string]any, r *harness.Rollout) {
				r.Strategy.Steps[0].Traffic, r.Strategy.Steps[0].Matches = nil, []strategy.Match{tc.match}
			})
			a := r.TryStartRollout(r.rollout)
			require.Contains(t, []int{http.StatusBadRequest, http.StatusUnprocessableEntity}, a.Status, "%s: %s", tc.reason, a.Body)
			require.NotEmpty(t, a.Problem().Errors, tc.reason)
			require.Contains(t, a.Problem().Errors[0].Field, "steps[0].matches", "%s: %s", tc.reason, a.Body)
			r.watch.RequireNothingOfOurs(t)
		})
	}
}
