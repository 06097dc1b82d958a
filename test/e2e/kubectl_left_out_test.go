package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/routes"
)

// A Rollout has an Ingress beside a VirtualService, and its first step has matches that only the latter can make, as
// documents for Kruise Rollouts do. The release goes through its steps: in the first one the Ingress sends the new
// version nothing, and status and events name it; by weight both take part.
func TestLongKubectlRelease_NamesRoute_ThatCannotExpressMatches(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e, g := harness.StartGuarded(t)
	r := prepareUnobserved(t, e, deploymentCell(strategy.StyleCanary, harness.Nginx), nil)
	name := r.rollout.Name
	routes.Install(t, r.REST)
	r.VirtualService(name)
	r.rollout.Strategy.Routings = append(r.rollout.Strategy.Routings, r.RoutingOf(harness.Istio, name)...)
	first := harness.Step("25%", -1)
	first.Matches = []strategy.Match{
		{Headers: []strategy.ValueMatch{{Type: strategy.MatchExact, Name: "user-agent", Value: "pc"}}},
		{QueryParams: []strategy.ValueMatch{{Type: strategy.MatchExact, Name: "user-agent", Value: "pc"}}}}
	r.rollout.Strategy.Steps = []strategy.Step{first, harness.Step("50%", 50)}

	d := &declared{release: r, guard: g}
	g.EnforceOn(t, d.Apps)
	d.create(d.document(), "owner")
	d.waitObject("Healthy", func(r *v1beta1.Rollout) bool { return r.Status.Phase == v1beta1.PhaseHealthy })
	d.waitGate()
	d.setImage("alice", d.rollout.NewestImage())
	d.waitStep(1)
	const named = " sends the new version nothing: class nginx cannot match by query parameter"
	d.waitObject("named", func(r *v1beta1.Rollout) bool {
		return strings.Contains(r.Status.Message, "Ingress "+d.Apps+"/"+name+named)
	})
	require.Len(t, d.Rollout(name).Traffic.LeftOut, 1)
	require.Nil(t, d.getObject(ingresses, name+strategy.CanarySuffix))
	require.Len(t, valueAt(d.getObject(harness.VirtualServices, name), "/spec/http"), 3, "a rule for the matches")
	require.Eventually(t, func() bool {
		events, err := d.Kube.CoreV1().Events(d.Apps).List(t.Context(),
			metav1.ListOptions{FieldSelector: "reason=RouteLeftOut,involvedObject.name=" + name})
		require.NoError(t, err)
		return len(events.Items) > 0 && strings.Contains(events.Items[0].Message, named)
	}, harness.Patience, harness.Tick, "no event names the Ingress")

	d.approveUnwatched(1)
	require.NotContains(t, d.waitStep(2).Status.Message, named)
	require.NotNil(t, d.getObject(ingresses, name+strategy.CanarySuffix), "by weight, the Ingress takes part again")
	require.Empty(t, d.Rollout(name).Traffic.LeftOut)
	d.approveUnwatched(2)
	d.waitEnd(true)
	require.Nil(t, d.getObject(ingresses, name+strategy.CanarySuffix))
}
