package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/serving/admission"
	"slipway.io/slipway/test/harness"
)

// A party that has not invited servings refuses one, in the status and in Kuscia's answer, and takes the same update once it has.
func TestServingIsInvited(t *testing.T) {
	t.Parallel()
	u := unite(t, harness.Shared(t))
	harness.LabelNamespace(t, u.Kube, u.bob, admission.LabelServings, "")
	u.create("guest", serving.Policy{})
	kd := u.WaitServing("guest", "bob's refusal", func(kd *kuscia.KusciaDeployment) bool {
		return harness.ServingDone(kd) && kd.Status.Phase == kuscia.PhaseFailed
	})
	require.Equal(t, serving.ReasonPartyFailed, kd.Status.Reason)
	require.Contains(t, kd.Status.Message, "kubectl label namespace "+u.bob+" slipway.io/servings=allowed")
	q := u.query("guest")
	require.Equal(t, "Failed", q.Status.State)
	require.Contains(t, q.Status.Message, "namespace "+u.bob+" does not take servings")
	require.Zero(t, leftOf(t, u.Engine, u.bob, "guest"))

	harness.LabelNamespace(t, u.Kube, u.bob, admission.LabelServings, admission.ServingsAllowed)
	u.update("guest", u.good, u.good)
	u.WaitServing("guest", "Available", harness.ServingAvailable)

	harness.LabelNamespace(t, u.Kube, u.bob, admission.LabelServings, "")
	u.update("guest", u.better, u.better)
	kd = u.WaitServing("guest", "the refused update", harness.ServingDone)
	require.Equal(t, serving.ReasonUpdateRolledBack, kd.Status.Reason)
	require.Contains(t, kd.Status.Message, "namespace "+u.bob+" does not take servings")
	require.Equal(t, kuscia.PhaseAvailable, kd.Status.Phase, "what runs goes on")
	require.Equal(t, []string{"v1", "v1"}, []string{u.tag(u.alice, "guest"), u.tag(u.bob, "guest")}, "nobody was touched")
	u.remove("guest")
	require.Eventually(t, func() bool { return u.Serving(u.Home, "guest") == nil }, harness.Patience, harness.Tick, "a deletion asks for no invitation")
	require.Zero(t, leftOf(t, u.Engine, u.alice, "guest")+leftOf(t, u.Engine, u.bob, "guest"))
}
