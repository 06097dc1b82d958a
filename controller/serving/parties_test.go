package serving

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/party"
)

func TestAbsent(t *testing.T) {
	t.Parallel()
	kd := &kuscia.KusciaDeployment{ObjectMeta: metav1.ObjectMeta{Name: "s"},
		Spec: kuscia.KusciaDeploymentSpec{Parties: []kuscia.Party{{DomainID: "alice"}, {DomainID: "bob"}}},
		Status: kuscia.KusciaDeploymentStatus{PartyDeploymentStatuses: map[string]map[string]kuscia.PartyDeploymentStatus{
			"bob": {"s": {Unreachable: "silent since noon"}}}}}
	of := map[string]string{"alice": "queue-a", "bob": "queue-b"}
	there := party.Presence{Reachable: party.Reachable}
	for name, tc := range map[string]struct {
		reason string
		found  map[string]party.Presence
		want   map[string]string
	}{
		"back": {"who is heard again is there", map[string]party.Presence{"queue-a": there, "queue-b": there}, map[string]string{}},
		"gone": {"who is silent is away, with the reason", map[string]party.Presence{"queue-a": {Reachable: party.Unreachable, Reason: "no worker"}, "queue-b": there},
			map[string]string{"alice": "no worker"}},
		"unknown": {"what Temporal cannot say now stays as it was said last: an absent party must not look present for that",
			map[string]party.Presence{"queue-a": {Reachable: party.Unknown}, "queue-b": {Reachable: party.Unknown}}, map[string]string{"alice": "", "bob": "silent since noon"}},
		"not asked": {"so does what was not asked, since its queue is not known", nil, map[string]string{"alice": "", "bob": "silent since noon"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, absent(kd, of, tc.found), tc.reason)
		})
	}
}

// TestWithoutAbsent has engine and workers start together: nobody is called away who has only not reported yet.
func TestWithoutAbsent(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)
	there := party.Judge("a", []party.Worker{{LastSeenAt: noon}}, noon)
	got := withoutAbsent(map[string]party.Presence{"a": there, "b": party.Judge("b", nil, noon), "c": party.Judge("c", []party.Worker{{Stopping: true, LastSeenAt: noon}}, noon)})
	require.Equal(t, there, got["a"], "who is there is there")
	for _, queue := range []string{"b", "c"} {
		require.Equal(t, party.Unknown, got[queue].Reachable, "whether a worker comes is not known yet")
		require.Contains(t, got[queue].Reason, "the server has just started: ", "what was found is told with why it does not count")
	}
}

func TestNextLook(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)
	seen := func(before time.Duration) party.Presence {
		return party.Judge("q", []party.Worker{{LastSeenAt: noon.Add(-before)}}, noon)
	}
	for name, tc := range map[string]struct {
		reason string
		found  map[string]party.Presence
		want   time.Duration
	}{
		"nobody":    {"without servings there is nothing to hurry for", nil, party.Interval},
		"fresh":     {"who was just heard of cannot be gone by the next look", map[string]party.Presence{"a": seen(time.Second)}, party.Interval},
		"gone":      {"who is gone already is named", map[string]party.Presence{"a": seen(time.Minute)}, party.Interval},
		"silent":    {"a silence is looked at when it reaches its limit, not at the next round", map[string]party.Presence{"a": seen(18 * time.Second)}, 2*time.Second + lookAfter},
		"the first": {"the silence that reaches it first", map[string]party.Presence{"a": seen(17 * time.Second), "b": seen(19 * time.Second), "c": seen(0)}, time.Second + lookAfter},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, noon.Add(tc.want), nextLook(tc.found, noon), tc.reason)
		})
	}
}
