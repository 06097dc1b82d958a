package serving

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/party"
)

func TestUnreachableParties(t *testing.T) {
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
		"back": {"a party with a heartbeat is present", map[string]party.Presence{"queue-a": there, "queue-b": there},
			map[string]string{}},
		"missing": {"a silent party is unreachable, with the reason",
			map[string]party.Presence{"queue-a": {Reachable: party.Unreachable, Reason: "no worker"}, "queue-b": there},
			map[string]string{"alice": "no worker"}},
		"unknown": {"if Temporal does not answer, the last state is kept: an unreachable party must not look present",
			map[string]party.Presence{"queue-a": {Reachable: party.Unknown}, "queue-b": {Reachable: party.Unknown}},
			map[string]string{"alice": "", "bob": "silent since noon"}},
		"not asked": {"the same if the queue is unknown", nil,
			map[string]string{"alice": "", "bob": "silent since noon"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, unreachableParties(kd, of, tc.found), tc.reason)
		})
	}
}

// Engine and workers start together: a worker that has not reported yet is not reported as unreachable.
func TestWithoutUnreachable(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)
	there := party.PresenceOf("a", []party.Worker{{LastSeenAt: noon}}, noon)
	got := withoutUnreachable(map[string]party.Presence{"a": there, "b": party.PresenceOf("b", nil, noon),
		"c": party.PresenceOf("c", []party.Worker{{Stopping: true, LastSeenAt: noon}}, noon)})
	require.Equal(t, there, got["a"], "a present party stays present")
	for _, queue := range []string{"b", "c"} {
		require.Equal(t, party.Unknown, got[queue].Reachable, "it is not known yet whether a worker will report")
		require.Contains(t, got[queue].Reason, "the server has just started: ",
			"the reason contains the finding and why it does not count")
	}
}

func TestNextCheck(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)
	seen := func(before time.Duration) party.Presence {
		return party.PresenceOf("q", []party.Worker{{LastSeenAt: noon.Add(-before)}}, noon)
	}
	for name, tc := range map[string]struct {
		reason string
		found  map[string]party.Presence
		want   time.Duration
	}{
		"nobody": {"without servings there is no hurry", nil, party.HeartbeatInterval},
		"fresh": {"after a recent heartbeat a party cannot become unreachable before the next check",
			map[string]party.Presence{"a": seen(time.Second)}, party.HeartbeatInterval},
		"missing": {"an unreachable party is already reported", map[string]party.Presence{"a": seen(time.Minute)},
			party.HeartbeatInterval},
		"silent": {"a silence is checked when it reaches its limit, not an interval later",
			map[string]party.Presence{"a": seen(18 * time.Second)}, 2*time.Second + checkDelay},
		"the first": {"the silence that reaches its limit first",
			map[string]party.Presence{"a": seen(17 * time.Second), "b": seen(19 * time.Second), "c": seen(0)},
			time.Second + checkDelay},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, noon.Add(tc.want), nextCheck(tc.found, noon), tc.reason)
		})
	}
}
