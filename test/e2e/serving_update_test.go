package e2e

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/test/harness"
)

// updateStrategy is a case: a strategy in a Kuscia request, the same in a query's answer, and in the Deployment.
type updateStrategy struct {
	reason   string
	request  string
	echo     map[string]string
	rendered appsv1.DeploymentStrategy
}

func rolling(surge, unavailable intstr.IntOrString) appsv1.DeploymentStrategy {
	return appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &surge, MaxUnavailable: &unavailable}}
}

// An update can set the strategy of a party and is executed with it; later updates keep it.
func TestLongServingUpdate_SetsAndKeepsStrategy(t *testing.T) {
	t.Parallel()
	harness.Long(t)
	e := harness.Shared(t)
	recreate := appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	for name, tc := range map[string]updateStrategy{
		"Recreate": {"no new pod before the last old pod is deleted, and no rolling-update settings",
			`{"type":"Recreate","max_surge":"1","max_unavailable":"1"}`,
			map[string]string{"type": "Recreate", "max_surge": "", "max_unavailable": ""}, recreate},
		"Surge": {"one pod more than requested, never fewer: a number and a percentage",
			`{"type":"RollingUpdate","max_surge":"1","max_unavailable":"0%"}`,
			map[string]string{"type": "RollingUpdate", "max_surge": "1", "max_unavailable": "0%"},
			rolling(intstr.FromInt32(1), intstr.FromString("0%"))},
		"Unavailable": {"never more pods than requested, half of them replaced at a time",
			`{"type":"RollingUpdate","max_surge":"0","max_unavailable":"50%"}`,
			map[string]string{"type": "RollingUpdate", "max_surge": "0", "max_unavailable": "50%"},
			rolling(intstr.FromInt32(0), intstr.FromString("50%"))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newTwoParties(t, e.ForTest(t))
			testUpdateStrategy(u, tc)
		})
	}
}

func testUpdateStrategy(u *twoParties, s updateStrategy) {
	u.t.Helper()
	id := harness.RandomName("paced")
	u.create(id, serving.Policy{})
	u.WaitServing(id, "Available", harness.ServingAvailable)
	require.Equal(u.t, rolling(intstr.FromString("25%"), intstr.FromString("25%")),
		u.deployment(u.bob, id).Spec.Strategy, "an unset strategy is Kuscia's default")

	u.MustKuscia("/api/v1/serving/update", fmt.Sprintf(
		`{"serving_id":%q,"parties":[{"domain_id":%q,"app_image":%q,"update_strategy":%s}]}`, id, u.bob, u.better,
		s.request))
	u.WaitServing(id, "the new version", harness.ServingAvailable)
	d := u.deployment(u.bob, id)
	require.Equal(u.t, s.rendered, d.Spec.Strategy, s.reason)
	require.Equal(u.t, "v2", u.tag(u.bob, id))
	require.Equal(u.t, []int32{2, 2, 2}, []int32{d.Status.Replicas, d.Status.UpdatedReplicas,
		d.Status.AvailableReplicas})
	require.Equal(u.t, "v1", u.tag(u.alice, id), "the update does not name the other party")
	q := u.query(id)
	require.Equal(u.t, "Available", q.Status.State)
	require.Equal(u.t, s.echo, q.Parties[1].UpdateStrategy, s.reason)

	u.update(id, u.better, u.good)
	u.WaitServing(id, "an update without a strategy", harness.ServingAvailable)
	require.Equal(u.t, s.rendered, u.deployment(u.bob, id).Spec.Strategy, "the strategy of the previous update stays")
	require.Equal(u.t, []string{"v2", "v1"}, []string{u.tag(u.alice, id), u.tag(u.bob, id)})
}

// Queries during a creation show Progressing, with the state of each party, and then Available.
func TestServingQuery_ShowsProgressDuringCreation(t *testing.T) {
	t.Parallel()
	u := newTwoParties(t, harness.Shared(t))
	u.createOf("slow", u.good, u.image("slow"), serving.Policy{})
	var states, bobs []string
	var between queryAnswer
	require.Eventually(t, func() bool {
		q := u.query("slow")
		states, bobs = append(states, q.Status.State), append(bobs, q.Status.Parties[1].State)
		if q.Status.State == "Progressing" && q.Status.Available == 1 {
			between = q
		}
		return q.Status.State == "Available"
	}, harness.Patience, harness.Tick)
	states, bobs = slices.Compact(states), slices.Compact(bobs)
	if states[0] == "Pending" { // the operation has not started yet
		states = states[1:]
	}
	require.Equal(t, []string{"Progressing", "Available"}, states, "the state is never Available too early")
	require.Contains(t, bobs, "Progressing")
	require.Equal(t, "Available", bobs[len(bobs)-1])
	require.Equal(t, []string{"Available", "Progressing"},
		[]string{between.Status.Parties[0].State, between.Status.Parties[1].State},
		"the answer shows one available and one progressing party")
	require.Equal(t, []int32{2, 0, 2}, []int32{between.Status.Parties[1].Replicas, between.Status.Parties[1].Available,
		between.Status.Parties[1].Unavailable})
}
