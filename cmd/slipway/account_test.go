package main

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/kube"
	own "slipway.io/slipway/kube/account"
	"slipway.io/slipway/release/account"
)

var accountSettings = settings.Settings{Namespace: "home", ServingNamespace: "servings", InstallCRDs: true,
	RegisterWebhooks: true, WebhookListen: "127.0.0.1:9443", OwnAccount: settings.OwnAccountAuto}

// The account of each role has exactly the rules of its manifests, in the namespaces that it watches.
func TestOwnAccounts_HaveTheRulesOfDeployRBAC(t *testing.T) {
	t.Parallel()
	manifestsOf := map[role][]string{
		roleServer: {"server.yaml", "by-server.yaml"},
		roleWorker: {"centre.yaml", "rollouts.yaml", "party"},
		roleDev:    {"server.yaml", "by-server.yaml", "centre.yaml", "rollouts.yaml", "party"},
		roleParty:  {"party"},
	}
	for as, names := range manifestsOf {
		for _, watched := range [][]string{{"shop", "pay"}, nil} {
			t.Run(string(as)+"/"+strings.Join(watched, "-"), func(t *testing.T) {
				t.Parallel()
				s := accountSettings
				s.WatchNamespaces = watched
				o := accountOptions(s, as, &rest.Config{}, slog.Default())
				want, have := map[kube.Permission]bool{}, map[kube.Permission]bool{}
				var read []string
				for _, m := range o.Manifests {
					read = append(read, m.Name)
					addRights(t, want, m, s)
					objects, err := o.Account.Objects(m)
					require.NoError(t, err)
					addGranted(t, have, objects)
				}
				require.Equal(t, want, have)
				for _, name := range names {
					require.True(t, slices.ContainsFunc(read, func(r string) bool { return strings.HasPrefix(r, name) }), name)
				}
			})
		}
	}
}

// addRights adds what a manifest grants, as the log of missing rights reads it.
func addRights(t *testing.T, to map[kube.Permission]bool, m account.Manifest, s settings.Settings) {
	t.Helper()
	where := s.WatchNamespaces
	if len(where) == 0 {
		where = []string{""}
	}
	for _, shop := range where {
		names := maps.Clone(accountNames(s))
		names["shop"] = shop
		roles, err := kube.Rights(m.Text, names, s.WatchNamespaces...)
		require.NoError(t, err)
		for name, rights := range roles {
			for _, right := range rights {
				if !slices.Contains(m.Omit, name) {
					to[right] = true
				}
			}
		}
	}
}

// addGranted adds what bindings grant.
func addGranted(t *testing.T, to map[kube.Permission]bool, objects []*unstructured.Unstructured) {
	t.Helper()
	for _, binding := range objects {
		if binding.Object["roleRef"] == nil {
			continue
		}
		var bound rbacv1.RoleBinding
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(binding.Object, &bound))
		found := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool {
			return o.GetKind() == bound.RoleRef.Kind && o.GetName() == bound.RoleRef.Name &&
				(o.GetNamespace() == bound.Namespace || o.GetNamespace() == "")
		})
		require.GreaterOrEqual(t, found, 0, bound.Name)
		var rules rbacv1.Role
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(objects[found].Object, &rules))
		for _, rule := range rules.Rules {
			names := rule.ResourceNames
			if len(names) == 0 {
				names = []string{""}
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					resource, subresource, _ := strings.Cut(resource, "/")
					for _, verb := range rule.Verbs {
						for _, name := range names {
							to[kube.Permission{Verb: verb, Group: group, Resource: resource, Subresource: subresource,
								Name: name, Namespace: bound.Namespace}] = true
						}
					}
				}
			}
		}
	}
}

// A worker whose own namespace is also its tenants' reads no administrator's script there.
func TestOwnAccount_DoesNotReadScriptsOfTenants(t *testing.T) {
	t.Parallel()
	s := accountSettings
	s.WatchNamespaces = []string{"home"}
	for _, m := range accountManifests(s, roleWorker) {
		objects, err := accountOptions(s, roleWorker, &rest.Config{}, slog.Default()).Account.Objects(m)
		require.NoError(t, err)
		for _, o := range objects {
			require.NotContains(t, o.GetName(), "slipway-own-scripts")
		}
	}
}

// Identities that the process would write nowhere are refused.
func TestEngineIdentity_NeedsAnInstaller(t *testing.T) {
	t.Parallel()
	s := settings.Settings{EngineIdentity: []string{"anna"}}
	require.ErrorContains(t, checkIdentities(s, false), "--engine-identity has no effect")
	require.NoError(t, checkIdentities(s, true))
	s.RegisterWebhooks = true
	require.NoError(t, checkIdentities(s, false))
	require.ErrorContains(t, runServer(context.Background(), settings.Settings{EngineIdentity: []string{"anna"}}),
		"--engine-identity has no effect")
}

// A start writes its own accounts and those that it was given.
func TestIdentities_AreOwnAndGiven(t *testing.T) {
	t.Parallel()
	const worker, dev, other = "system:serviceaccount:home:slipway", "system:serviceaccount:home:slipway-dev",
		"system:serviceaccount:other:engine"
	for name, c := range map[string]struct {
		reason string
		who    own.Who
		as     role
		given  []string
		want   []string
	}{
		"Made": {"The engine may run in one process or in two.", own.Who{User: dev, Own: true}, roleDev, nil,
			[]string{worker, dev}},
		"MadeAndGiven": {"Others are added, once.", own.Who{User: dev, Own: true}, roleDev, []string{other, worker},
			[]string{worker, dev, other}},
		"ServiceAccount": {"An administrator has made the account.", own.Who{User: other}, roleDev, nil,
			[]string{other}},
		"Person": {"Without a list that has the person, the engine could not work.", own.Who{User: "anna"}, roleDev, nil,
			[]string{"anna"}},
		"Server": {"Servers change no workload: workers do.", own.Who{User: other}, roleServer, nil,
			[]string{worker, other}},
		"ServerOfGivenWorker": {"The workers' account replaces the default.", own.Who{User: other}, roleServer,
			[]string{"system:serviceaccount:home:blue"}, []string{"system:serviceaccount:home:blue", other}},
		"MadeServer": {"Its account changes no workload.",
			own.Who{User: "system:serviceaccount:home:slipway-server", Own: true}, roleServer, nil,
			[]string{worker, dev}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := settings.Settings{Namespace: "home", EngineIdentity: c.given}
			require.Equal(t, c.want, identities(c.who, s, c.as), c.reason)
		})
	}
}
