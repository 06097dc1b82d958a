package traffic_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/routes"
)

// On a cluster that serves HTTPRoutes in v1beta1 alone, they are routed by in that version, and are what they were at the end.
func TestLongHTTPRoutesOfBefore(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	p := harness.NewPrivateStack(t) // on the shared one v1 is served
	routes.InstallBefore(t, p.REST)
	b, w := benchOn(t, p.Stack), ways["httproute"]
	b.shop()
	b.apply(strings.Replace(replaceSpace(routeYAML, b.namespace), "/v1", "/v1beta1", 1))
	route := func() *unstructured.Unstructured {
		gvr := gvrs["HTTPRoute"]
		gvr.Version = "v1beta1"
		found, err := b.objects.Resource(gvr).Namespace(b.namespace).Get(t.Context(), "order", metav1.GetOptions{})
		require.NoError(t, err)
		return found
	}
	before := route()
	b.apply(deploymentYAML)
	refusals, _, _ := b.preflight(w.routing, weight(20))
	require.Empty(t, refusals, "nothing is missing")
	b.must(b.twenty(w))
	require.Contains(t, toJSON(t, route().Object["spec"]), "order-canary", "the requests are divided")
	b.must(b.request(rollout.RouteToStable, w.routing))
	require.Equal(t, own(before), own(route()), "it is what it was")
}
