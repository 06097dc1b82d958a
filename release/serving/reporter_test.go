package serving_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

// A party's worker reports about the parties of its queue only.
func TestOwnObservations_IgnoresReportsOfAnotherQueue(t *testing.T) {
	t.Parallel()
	kd := &kuscia.KusciaDeployment{}
	kd.Status.PartyDeploymentStatuses = map[string]map[string]kuscia.PartyDeploymentStatus{
		"carol": {"s1": {Queue: "carol.before"}}}
	queues := map[string]string{"alice": "slipway.party.alice", "bob": "slipway.party.bob", "carol": "carol.now"}
	about := func(domain string) []serving.Observation {
		return []serving.Observation{{ID: "s1", Domain: domain, Deployment: "s1"}}
	}
	for reason, c := range map[string]struct {
		domain, reporter string
		own              bool
	}{
		"bob about alice":                        {"alice", serving.StatusesWorkflowID("slipway.party.bob"), false},
		"alice about herself":                    {"alice", serving.StatusesWorkflowID("slipway.party.alice"), true},
		"a check of alice":                       {"alice", serving.CheckWorkflowID("slipway.party.alice", nil), true},
		"a check of one of her namespaces":       {"alice", serving.CheckWorkflowID("slipway.party.alice", []string{"a"}), true},
		"a check of bob":                         {"alice", serving.CheckWorkflowID("slipway.party.bob", []string{"a"}), false},
		"a workflow of any other name":           {"alice", "my-workflow", false},
		"a domain without a party":               {"dave", serving.StatusesWorkflowID(""), false},
		"a party that has got a new queue":       {"carol", serving.StatusesWorkflowID("carol.now"), true},
		"the queue of its latest operation":      {"carol", serving.StatusesWorkflowID("carol.before"), true},
		"a queue whose name begins like another": {"alice", serving.StatusesWorkflowID("slipway.party.alice2"), false},
	} {
		own, foreign := serving.OwnObservations(kd, about(c.domain), queues, c.reporter)
		if c.own {
			require.Len(t, own, 1, reason)
			require.Empty(t, foreign, reason)
			continue
		}
		require.Empty(t, own, reason)
		require.Equal(t, []string{c.domain + "/s1"}, foreign, reason)
	}
}
