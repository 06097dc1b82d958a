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

// On a cluster that serves HTTPRoutes only as v1beta1, a release routes by that version and restores the route at the
// end.
func TestLongHTTPRoute_IsUsedAsV1beta1_WhenV1IsMissing(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	p := harness.NewPrivateStack(t) // on the shared one v1 is served
	routes.InstallV1Beta1Only(t, p.REST)
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
	require.Contains(t, toJSON(t, route().Object["spec"]), "order-canary", "the requests are split")
	b.must(b.request(rollout.RouteToStable, w.routing))
	require.Equal(t, own(before), own(route()), "the route is restored")
}
