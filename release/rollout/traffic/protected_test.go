package traffic_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/rollout/traffic"
)

// marked is an object with what tools and people have marked it with.
const marked = `
kind: %s
metadata:
  name: order
  labels: {app.kubernetes.io/managed-by: Helm, kustomize.toolkit.fluxcd.io/name: shop, team: shop}
  annotations:
    argocd.argoproj.io/tracking-id: shop
    meta.helm.sh/release-name: shop
    nginx.ingress.kubernetes.io/auth-url: https://login.example
    nginx.ingress.kubernetes.io/configuration-snippet: more_set_headers "a";
    mine: "yes"
spec: {a: 1}
`

var (
	tenants        = traffic.FoundScript{Name: "mine of ConfigMap shop/slipway-traffic-scripts", Tenant: true}
	administrators = traffic.FoundScript{Name: "theirs of ConfigMap slipway/slipway-traffic-scripts"}
)

// returned is a script's data for the object, with these changes; nil removes a key.
func returned(t *testing.T, o traffic.Object, part string, changes map[string]any) []byte {
	t.Helper()
	data := map[string]any{"labels": maps.Clone(jsonpatch.DigObject(o, "metadata", "labels")),
		"annotations": maps.Clone(jsonpatch.DigObject(o, "metadata", "annotations"))}
	for key, value := range changes {
		data[part].(traffic.Object)[key] = value
		if value == nil {
			delete(data[part].(traffic.Object), key)
		}
	}
	raw, err := json.Marshal(data)
	require.NoError(t, err)
	return raw
}

func TestCustomScript_MayNotChangeProtectedKeys(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason, part, key string
		value             any
		refused           bool
	}{
		{"the engine's", "annotations", "slipway.io/held-by", "me", true},
		{"the engine's", "labels", "slipway.io/gate", "on", true},
		{"Rollouts' own", "annotations", "rollouts.kruise.io/original-spec-configuration", "{}", true},
		{"kubectl's", "annotations", "kubectl.kubernetes.io/last-applied-configuration", "{}", true},
		{"kubectl's", "annotations", "kubectl.kubernetes.io/restartedAt", "now", true},
		{"Helm's", "annotations", "meta.helm.sh/release-name", "other", true},
		{"Helm's, removed", "annotations", "meta.helm.sh/release-name", nil, true},
		{"Argo CD's", "annotations", "argocd.argoproj.io/sync-options", "Prune=false", true},
		{"Flux's", "labels", "kustomize.toolkit.fluxcd.io/name", "other", true},
		{"Flux's", "annotations", "helm.toolkit.fluxcd.io/driftDetection", "disabled", true},
		{"Pod Security's", "labels", "pod-security.kubernetes.io/enforce", "privileged", true},
		{"the owner", "labels", "app.kubernetes.io/managed-by", "me", true},
		{"the owner, removed", "labels", "app.kubernetes.io/managed-by", nil, true},
		{"unchanged is no change", "labels", "app.kubernetes.io/managed-by", "Helm", false},
		{"another's annotation", "annotations", "example.com/weight", "20", false},
		{"the user's own", "annotations", "mine", "no", false},
		{"the user's own, removed", "labels", "team", nil, false},
		{"no domain of Flux's", "labels", "notfluxcd.io/name", "x", false},
		{"another key of that domain", "labels", "app.kubernetes.io/part-of", "shop", false},
		{"on an Ingress only", "annotations", "nginx.ingress.kubernetes.io/auth-url", "", false},
	} {
		for _, script := range []traffic.FoundScript{tenants, administrators} {
			original := object(t, fmt.Sprintf(marked, "VirtualService"))
			raw := returned(t, original, c.part, map[string]any{c.key: c.value})
			_, _, err := traffic.Custom(script, raw)(original)
			if !c.refused {
				require.NoError(t, err, "%s %s: %s", c.part, c.key, c.reason)
				continue
			}
			require.True(t, failure.Is(err, failure.Refused), "%s %s: %s: %v", c.part, c.key, c.reason, err)
			require.ErrorContains(t, err, script.Name+" changes "+c.part+"."+c.key)
		}
	}
}

func TestIngressScript_MayNotChangeProtectedKeys(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason, key            string
		value                  any
		tenant, administrators bool
	}{
		{"Argo CD's", "argocd.argoproj.io/tracking-id", "other", false, false},
		{"the canary need not be marked", "argocd.argoproj.io/tracking-id", nil, true, true},
		{"the engine's", "slipway.io/repair", "me", false, false},
		{"a canary annotation", "nginx.ingress.kubernetes.io/canary-weight", "20", true, true},
		{"a snippet", "nginx.ingress.kubernetes.io/server-snippet", "return 200;", false, true},
		{"a snippet of another controller", "nginx.org/location-snippets", "return 200;", false, true},
		{"another snippet", "nginx.ingress.kubernetes.io/configuration-snippet", "return 200;", false, true},
		{"the login is left out", "nginx.ingress.kubernetes.io/auth-url", nil, false, true},
		{"another login", "nginx.ingress.kubernetes.io/auth-url", "https://evil.example", false, true},
		{"a login of another controller", "alb.ingress.kubernetes.io/auth-type", "none", false, true},
		{"unchanged", "nginx.ingress.kubernetes.io/auth-url", "https://login.example", true, true},
	} {
		stable := object(t, fmt.Sprintf(marked, "Ingress"))
		var whole map[string]any
		require.NoError(t, json.Unmarshal(returned(t, stable, "annotations", map[string]any{c.key: c.value}), &whole))
		raw, err := json.Marshal(whole["annotations"])
		require.NoError(t, err)
		for script, allowed := range map[traffic.FoundScript]bool{tenants: c.tenant, administrators: c.administrators} {
			_, err := traffic.IngressOutput(script, stable, raw)
			require.Equal(t, allowed, err == nil, "%s by %s: %s: %v", c.key, script.Name, c.reason, err)
			if !allowed {
				require.ErrorContains(t, err, script.Name+" changes annotations."+c.key)
			}
		}
		if c.value == nil && c.tenant { // the rule on the user's own object is stricter
			continue
		}
		_, _, err = traffic.Custom(tenants, returned(t, stable, "annotations", map[string]any{c.key: c.value}))(stable)
		require.Equal(t, c.tenant, err == nil, "an Ingress in customNetworkRefs: %s: %v", c.key, err)
	}
}

// Every built-in script goes on working on an object with marks of tools, logins and snippets, and leaves them.
func TestBuiltInScripts_LeaveProtectedKeys(t *testing.T) {
	t.Parallel()
	for _, class := range []string{"nginx", "higress", "mse", "aliyun-alb"} {
		stable := object(t, fmt.Sprintf(marked, "Ingress"))
		script := traffic.IngressScript(class)
		for _, asks := range []strategy.Traffic{weight(20), matches(headerIs("u", "t"))} {
			response := evaluate(t, script, traffic.IngressInput(stable, class, pair, asks))
			require.Nil(t, response.Trouble)
			found := traffic.FoundScript{Name: class, Tenant: true}
			got, err := traffic.IngressOutput(found, stable, response.Output)
			require.NoError(t, err, class)
			for key, value := range jsonpatch.DigObject(stable, "metadata", "annotations") {
				require.Equal(t, value, got[key], "%s: %s", class, key)
			}
		}
	}
}
