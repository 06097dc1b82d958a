package traffic_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/rollout/traffic"
)

func kindOf(t *testing.T, name string) traffic.Kind {
	t.Helper()
	kind, err := traffic.ParseKind(name)
	require.NoError(t, err)
	return kind
}

func TestForbiddenKinds(t *testing.T) {
	t.Parallel()
	require.Contains(t, traffic.CustomKind("", "secrets").Forbidden(), "Kubernetes' core group")
	for _, name := range []string{
		"deployments.apps", "statefulsets.apps", "jobs.batch", "horizontalpodautoscalers.autoscaling",
		"poddisruptionbudgets.policy", "deployments.extensions", "roles.rbac.authorization.k8s.io",
		"validatingadmissionpolicies.admissionregistration.k8s.io",
		"customresourcedefinitions.apiextensions.k8s.io", "apiservices.apiregistration.k8s.io",
		"certificatesigningrequests.certificates.k8s.io", "subjectaccessreviews.authorization.k8s.io",
		"tokenreviews.authentication.k8s.io", "leases.coordination.k8s.io", "networkpolicies.networking.k8s.io",
		"referencegrants.gateway.networking.k8s.io", "releaserecords.slipway.io", "things.more.slipway.io",
		"rollouts.rollouts.kruise.io", "clonesets.apps.kruise.io", "things.kruise.io",
	} {
		kind := kindOf(t, name)
		require.Contains(t, kind.Forbidden(), name, "the reason names the kind")
		for _, reach := range []traffic.Reach{{}, {Kinds: []traffic.Kind{kind}}} {
			require.Equal(t, kind.Forbidden(), reach.Refuses(kind, true), "%s: in spite of list and script", name)
		}
	}
	for _, name := range []string{"ingresses.networking.k8s.io", "httproutes.gateway.networking.k8s.io",
		"virtualservices.networking.istio.io", "httpproxies.projectcontour.io", "apisixroutes.apisix.apache.org",
		"things.notslipway.io", "things.mykruise.io", "routes.gateway.networking.x-k8s.io"} {
		require.Empty(t, kindOf(t, name).Forbidden(), name)
	}
}

func TestReach(t *testing.T) {
	t.Parallel()
	proxy := kindOf(t, "httpproxies.projectcontour.io")
	for _, c := range []struct {
		reason   string
		reach    traffic.Reach
		kind     string
		scripted bool
		refused  string
	}{
		{"built-in scripts know it", traffic.Reach{}, "virtualservices.networking.istio.io", false, ""},
		{"built-in scripts know it", traffic.Reach{}, "destinationrules.networking.istio.io", false, ""},
		{"built-in scripts know it", traffic.Reach{}, "ingresses.networking.k8s.io", false, ""},
		{"a route of the Gateway API", traffic.Reach{}, "grpcroutes.gateway.networking.k8s.io", false, ""},
		{"no route of it", traffic.Reach{}, "gateways.gateway.networking.k8s.io", false,
			"gateways.gateway.networking.k8s.io is no kind that"},
		{"no script knows it", traffic.Reach{}, proxy.Name(), false, "httpproxies.projectcontour.io is no kind that"},
		{"the administrator's script knows it", traffic.Reach{}, proxy.Name(), true, ""},
		{"it is listed", traffic.Reach{Kinds: []traffic.Kind{proxy}}, proxy.Name(), false, ""},
		{"a list replaces the default", traffic.Reach{Kinds: []traffic.Kind{proxy}},
			"virtualservices.networking.istio.io", true, "is not in --traffic-kinds"},
		{"tenants' scripts permit no kind", traffic.Reach{TenantScripts: []string{"shop"}}, proxy.Name(), false,
			"is no kind that"},
	} {
		got := c.reach.Refuses(kindOf(t, c.kind), c.scripted)
		if c.refused == "" {
			require.Empty(t, got, "%s: %s", c.kind, c.reason)
			continue
		}
		require.Contains(t, got, c.refused, "%s: %s", c.kind, c.reason)
	}
}

func TestParseKind_RefusesOtherForms(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "services", "services.", ".apps", "VirtualService.networking.istio.io"} {
		_, err := traffic.ParseKind(text)
		require.ErrorContains(t, err, "use RESOURCE.GROUP", text)
	}
}
