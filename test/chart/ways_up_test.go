package chart

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// manifests reads manifests of deploy/rbac.
func manifests(t testing.TB, names ...string) (all []*unstructured.Unstructured) {
	t.Helper()
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(os.Getenv("SLIPWAY_TEST_ROOT"), "deploy/rbac", name))
		require.NoError(t, err)
		all = append(all, objectsOf(t, string(text))...)
	}
	return all
}

// partyManifests are the permissions of a party's worker with every option.
func partyManifests(t testing.TB) []*unstructured.Unstructured {
	t.Helper()
	return manifests(t, "party.yaml", "party-builds.yaml", "party-istio.yaml", "party-kruise.yaml",
		"party-scripts.yaml", "party-secrets.yaml", "party-servings.yaml", "guard-reader.yaml")
}

// asAccount returns manifests with one account as the subject of all bindings.
func asAccount(t testing.TB, namespace, name string,
	objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	t.Helper()
	for _, o := range objects {
		if strings.HasSuffix(o.GetKind(), "RoleBinding") {
			require.NoError(t, unstructured.SetNestedSlice(o.Object, []any{map[string]any{"kind": "ServiceAccount",
				"namespace": namespace, "name": name}}, "subjects"))
		}
	}
	return objects
}

// centreManifests are the permissions of an engine without the chart: of servers, and of workers, which also release
// the workloads of the namespace shop.
func centreManifests(t testing.TB) []*unstructured.Unstructured {
	t.Helper()
	return slices.Concat(manifests(t, "server.yaml"), asAccount(t, "slipway", "slipway",
		append(manifests(t, "centre.yaml", "rollouts.yaml"), partyManifests(t)...)))
}

// TestAccounts_HaveNoWayUp walks the rules of all accounts, and of those that they can reach: none of them leads to the
// rights of an administrator.
func TestAccounts_HaveNoWayUp(t *testing.T) {
	t.Parallel()
	for name, objects := range map[string]func(t *testing.T) []*unstructured.Unstructured{
		"Chart": func(t *testing.T) []*unstructured.Unstructured { return render(t) },
		"ChartWithRollouts": func(t *testing.T) []*unstructured.Unstructured {
			return render(t, "--set", "rollouts.enabled=true")
		},
		"ChartOfOlderCluster": func(t *testing.T) []*unstructured.Unstructured {
			return render(t, "--set", "rollouts.enabled=true", "--kube-version", "1.33.0")
		},
		"ChartWithEverything": func(t *testing.T) []*unstructured.Unstructured {
			return render(t, sets["Everything"]...)
		},
		"ChartOfParty":      func(t *testing.T) []*unstructured.Unstructured { return render(t, sets["Party"]...) },
		"Party":             func(t *testing.T) []*unstructured.Unstructured { return partyManifests(t) },
		"ServersAndWorkers": func(t *testing.T) []*unstructured.Unstructured { return centreManifests(t) },
		// docker-compose.yml and `slipway dev` with one account, without the switches of TestByServer_IsAWayUp
		"OneAccount": func(t *testing.T) []*unstructured.Unstructured {
			return asAccount(t, "slipway", "slipway", centreManifests(t))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := rightsOf(t, objects(t))
			for _, account := range found.accounts() {
				assert.Empty(t, found.waysUpOf(account), account)
			}
			assert.NotEmpty(t, found.accounts())
		})
	}
}

// TestServers_HaveNoRightOnWorkloads: a hole in the API is not the way to the workloads, pods and Secrets.
func TestServers_HaveNoRightOnWorkloads(t *testing.T) {
	t.Parallel()
	for name, found := range map[string]rights{"slipway/slipway-server": rightsOf(t, centreManifests(t)),
		"slipway/engine-server": rightsOf(t, render(t, sets["Everything"]...))} {
		require.NotEmpty(t, found[name])
		for _, g := range found[name] {
			assert.False(t, g.runsPods(), g)
			assert.False(t, g.may(groups(""), []string{"pods", "pods/log", "pods/eviction", "secrets", "services",
				"configmaps"}, anyVerb) && len(g.ResourceNames) == 0, g)
			readsOne := slices.Equal(g.ResourceNames, []string{"kruise-rollout-controller-manager"}) &&
				slices.Equal(g.Verbs, []string{"get"})
			assert.False(t, g.may(groups("apps", "apps.kruise.io", "batch"), g.Resources, anyVerb) && !readsOne, g)
		}
	}
}

// TestReleases_AreLimitedToNamespaces: whatever workers write on workloads, pods and routes, they write in the watched
// namespaces only.
func TestReleases_AreLimitedToNamespaces(t *testing.T) {
	t.Parallel()
	for name, found := range map[string]rights{"Manifests": rightsOf(t, centreManifests(t)),
		"Chart": rightsOf(t, render(t, sets["Everything"]...))} {
		for _, account := range found.accounts() {
			for _, g := range found[account] {
				if g.namespace != "" || !slices.ContainsFunc(g.Verbs, alters) {
					continue
				}
				if slices.Equal(g.APIGroups, []string{"authorization.k8s.io"}) { // a question, nothing is stored
					continue
				}
				assert.Equal(t, []string{"appimages"}, g.Resources, "%s %s: %s, of a kind without namespaces",
					name, account, g)
			}
		}
	}
}

// TestPartyAccount_IsOutsideOfReleasedNamespaces: who administers a released namespace can act as the accounts there. The
// guard lets the edits of a party's account pass.
func TestPartyAccount_IsOutsideOfReleasedNamespaces(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		objects []*unstructured.Unstructured
		account string
	}{
		"Manifests": {partyManifests(t), "slipway-party/slipway-party"},
		"Chart":     {render(t, sets["Party"]...), "slipway/slipway-party"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := rightsOf(t, c.objects)
			own, _, _ := strings.Cut(c.account, "/")
			released := 0
			for _, g := range found[c.account] {
				assert.False(t, g.namespace == own && g.hasVerb(alters), g)
				if g.runsPods() {
					released++
					assert.Equal(t, "shop", g.namespace, g)
				}
			}
			assert.Positive(t, released)
			assert.Equal(t, own, find(t, c.objects, "ServiceAccount", "slipway-party").GetNamespace())
		})
	}
}

// TestByServer_IsAWayUp: what docs/operations.md says about servers that write definitions and webhooks themselves.
func TestByServer_IsAWayUp(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		objects []*unstructured.Unstructured
		want    []string
	}{
		"Webhooks": {render(t, "--set", "rbac.byServer=true,rollouts.enabled=true,watchNamespaces={shop}"),
			[]string{"admission", "definitions", "tokens by Secrets"}},
		"Definitions": {render(t, "--set", "crds.install=false,crds.byServer=true,watchNamespaces={shop}"),
			[]string{"admission", "definitions"}},
		"OneAccount": {asAccount(t, "slipway", "slipway", append(centreManifests(t),
			manifests(t, "by-server.yaml")...)),
			[]string{"admission", "definitions", "tokens by Secrets"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := rightsOf(t, c.objects)
			ways := map[string]bool{}
			for _, account := range found.accounts() {
				for _, open := range found.waysUpOf(account) {
					way, _, _ := strings.Cut(open, ": ")
					ways[way] = true
					assert.True(t, account == "slipway/slipway-server" || name == "OneAccount",
						"the account of workers has no way: %s", open)
				}
			}
			assert.Len(t, ways, len(c.want), "%v", ways)
			for _, way := range c.want {
				assert.True(t, ways[way], way)
			}
		})
	}
}

// TestWaysUp_AreFound adds one rule after the other to the account of a worker: the program finds each of them.
func TestWaysUp_AreFound(t *testing.T) {
	t.Parallel()
	rule := func(group, resource, verb string, names ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{verb},
			ResourceNames: names}
	}
	for name, c := range map[string]struct {
		rule      rbacv1.PolicyRule
		namespace string
		want      string
	}{
		"Bind":        {rule(rbacv1.GroupName, "clusterroles", "bind", "cluster-admin"), "", "verbs of roles"},
		"Escalate":    {rule(rbacv1.GroupName, "roles", "escalate"), "shop", "verbs of roles"},
		"Impersonate": {rule("", "users", "impersonate"), "", "verbs of roles"},
		"RoleBinding": {rule(rbacv1.GroupName, "rolebindings", "create"), "shop", "roles"},
		"Webhook": {rule("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "create"), "",
			"admission"},
		"NamedWebhook": {rule("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "patch",
			"slipway-gate-slipway"), "", "admission"},
		"Policy": {rule("admissionregistration.k8s.io", "mutatingadmissionpolicies", "patch"), "", "admission"},
		"Binding": {rule("admissionregistration.k8s.io", "validatingadmissionpolicybindings", "delete"), "",
			"admission"},
		"Conversion":   {rule("apiextensions.k8s.io", "customresourcedefinitions", "update"), "", "definitions"},
		"Aggregated":   {rule("apiregistration.k8s.io", "apiservices", "patch"), "", "API servers"},
		"Certificate":  {rule("certificates.k8s.io", "certificatesigningrequests", "create"), "", "certificates"},
		"Token":        {rule("", "serviceaccounts/token", "create"), "slipway", "tokens"},
		"Secrets":      {rule("", "secrets", "list"), "", "tokens by Secrets"},
		"SecretsHere":  {rule("", "secrets", "get"), "slipway", "tokens by Secrets"},
		"NodeProxy":    {rule("", "nodes/proxy", "get"), "", "nodes"},
		"Node":         {rule("", "nodes", "patch"), "", "nodes"},
		"HostVolume":   {rule("", "persistentvolumes", "create"), "", "volumes of hosts"},
		"Namespace":    {rule("", "namespaces", "patch"), "", "rules for pods of a namespace"},
		"KubeSystem":   {rule("apps", "deployments", "patch"), "kube-system", "pods of administrators"},
		"Everywhere":   {rule("apps", "daemonsets", "patch"), "", "pods of administrators"},
		"Jobs":         {rule("batch", "jobs", "create"), "", "pods of administrators"},
		"Exec":         {rule("", "pods/exec", "create"), "", "pods of administrators"},
		"ConfigMaps":   {rule("", "configmaps", "patch"), "", "settings and traffic of administrators"},
		"AllVerbs":     {rule("slipway.io", "parties", "*"), "slipway", "everything"},
		"AllResources": {rule("slipway.io", "*", "get"), "slipway", "everything"},
		"AllGroups":    {rule("*", "parties", "get"), "slipway", "everything"},
		"AllOf":        {rule("", "*/scale", "patch"), "shop", "everything"},
		"Addresses": {rbacv1.PolicyRule{NonResourceURLs: []string{"/debug/*"}, Verbs: []string{"get"}}, "",
			"other addresses"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := rightsOf(t, centreManifests(t))
			found["slipway/slipway"] = append(found["slipway/slipway"], granted{c.rule, c.namespace, "attack"})
			requireWay(t, c.want, found.waysUpOf("slipway/slipway"))
			assert.Empty(t, found.waysUpOf("slipway/slipway-server"), "the server does not reach the worker's account")
		})
	}
}

// TestWaysUp_LeadOverOtherAccounts: an account that can run pods, or have a Secret filled with a token, has the rights
// of the other accounts of that namespace.
func TestWaysUp_LeadOverOtherAccounts(t *testing.T) {
	t.Parallel()
	attack := func(in string, rules ...rbacv1.PolicyRule) []string {
		found := rightsOf(t, centreManifests(t))
		found["shop/powerful"] = []granted{{rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName},
			Resources: []string{"clusterroles"}, Verbs: []string{"escalate"}}, "", "powerful"}}
		for _, r := range rules {
			found["slipway/slipway-server"] = append(found["slipway/slipway-server"], granted{r, in, "attack"})
		}
		return found.waysUpOf("slipway/slipway-server")
	}
	create := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create"}}
	read := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"},
		ResourceNames: []string{"slipway-webhook"}}
	pods := rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"patch"}}
	requireWay(t, "verbs of roles", attack("shop", pods))
	requireWay(t, "verbs of roles", attack("shop", create, read))
	requireWay(t, "tokens by Secrets", attack("slipway", create, read))
	require.Empty(t, attack("slipway", read), "a Secret that it can't write")
	require.Empty(t, attack("bank", create), "Secrets that it can't read")
	require.Empty(t, attack("bank", pods), "a namespace without other accounts")
}

func requireWay(t *testing.T, want string, found []string) {
	t.Helper()
	require.True(t, slices.ContainsFunc(found, func(way string) bool { return strings.HasPrefix(way, want+": ") }),
		"%s: %v", want, found)
}
