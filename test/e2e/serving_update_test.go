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

// updateStrategy is a strategy as Kuscia's requests have it, and as a Deployment has it.
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

// An update goes by the strategy that a party asks for, and a strategy is changed by an update.
func TestLongServingUpdateStrategies(t *testing.T) {
	t.Parallel()
	harness.Long(t)
	e := harness.Shared(t)
	recreate := appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	for name, tc := range map[string]updateStrategy{
		"Recreate": {"no pod of the new version before the last of the old one is gone, and nothing of a rolling update", `{"type":"Recreate","max_surge":"1","max_unavailable":"1"}`,
			map[string]string{"type": "Recreate", "max_surge": "", "max_unavailable": ""}, recreate},
		"Surge": {"one more pod than asked, and none less: a number and a percentage", `{"type":"RollingUpdate","max_surge":"1","max_unavailable":"0%"}`,
			map[string]string{"type": "RollingUpdate", "max_surge": "1", "max_unavailable": "0%"}, rolling(intstr.FromInt32(1), intstr.FromString("0%"))},
		"Unavailable": {"as many pods as asked at most, half of them at a time", `{"type":"RollingUpdate","max_surge":"0","max_unavailable":"50%"}`,
			map[string]string{"type": "RollingUpdate", "max_surge": "0", "max_unavailable": "50%"}, rolling(intstr.FromInt32(0), intstr.FromString("50%"))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := unite(t, e.For(t))
			updatesBy(u, tc)
		})
	}
}

func updatesBy(u *union, s updateStrategy) {
	u.t.Helper()
	id := harness.RandomName("paced")
	u.create(id, serving.Policy{})
	u.WaitServing(id, "Available", harness.ServingAvailable)
	require.Equal(u.t, rolling(intstr.FromString("25%"), intstr.FromString("25%")), u.deployment(u.bob, id).Spec.Strategy, "what is not said is Kuscia's default")

	u.MustKuscia("/api/v1/serving/update", fmt.Sprintf(`{"serving_id":%q,"parties":[{"domain_id":%q,"app_image":%q,"update_strategy":%s}]}`, id, u.bob, u.better, s.request))
	u.WaitServing(id, "the new version", harness.ServingAvailable)
	d := u.deployment(u.bob, id)
	require.Equal(u.t, s.rendered, d.Spec.Strategy, s.reason)
	require.Equal(u.t, "v2", u.tag(u.bob, id))
	require.Equal(u.t, []int32{2, 2, 2}, []int32{d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.AvailableReplicas})
	require.Equal(u.t, "v1", u.tag(u.alice, id), "the other party was not asked to change")
	q := u.query(id)
	require.Equal(u.t, "Available", q.Status.State)
	require.Equal(u.t, s.echo, q.Parties[1].UpdateStrategy, s.reason)

	u.update(id, u.better, u.good)
	u.WaitServing(id, "a version that says nothing of the strategy", harness.ServingAvailable)
	require.Equal(u.t, s.rendered, u.deployment(u.bob, id).Spec.Strategy, "it stays as it was said last")
	require.Equal(u.t, []string{"v2", "v1"}, []string{u.tag(u.alice, id), u.tag(u.bob, id)})
}

// Who asks while a serving comes up sees it come up: Progressing with its parties, then Available.
func TestServingQuerySeesItComeUp(t *testing.T) {
	t.Parallel()
	u := unite(t, harness.Shared(t))
	u.createOf("slow", u.good, u.image("slow"), serving.Policy{})
	var states, bobs []string
	var between queried
	require.Eventually(t, func() bool {
		q := u.query("slow")
		states, bobs = append(states, q.Status.State), append(bobs, q.Status.Parties[1].State)
		if q.Status.State == "Progressing" && q.Status.Available == 1 {
			between = q
		}
		return q.Status.State == "Available"
	}, harness.Patience, harness.Tick)
	states, bobs = slices.Compact(states), slices.Compact(bobs)
	if states[0] == "Pending" { // nobody has begun with it yet
		states = states[1:]
	}
	require.Equal(t, []string{"Progressing", "Available"}, states, "it never looks done before it is")
	require.Contains(t, bobs, "Progressing")
	require.Equal(t, "Available", bobs[len(bobs)-1])
	require.Equal(t, []string{"Available", "Progressing"}, []string{between.Status.Parties[0].State, between.Status.Parties[1].State}, "who is there already is shown beside who is not")
	require.Equal(t, []int32{2, 0, 2}, []int32{between.Status.Parties[1].Replicas, between.Status.Parties[1].Available, between.Status.Parties[1].Unavailable})
}
