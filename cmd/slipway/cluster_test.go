package main

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	authv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/kube"
)

// logFor returns the log for an account that lacks these rights.
func logFor(t *testing.T, s settings.Settings, denied ...kube.Permission) string {
	t.Helper()
	client := fake.NewClientset()
	client.PrependReactor("create", "selfsubjectrulesreviews",
		func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, &authv1.SelfSubjectRulesReview{}, nil
		})
	client.PrependReactor("create", "selfsubjectaccessreviews",
		func(action clienttesting.Action) (bool, runtime.Object, error) {
			review := action.(clienttesting.CreateAction).GetObject().(*authv1.SelfSubjectAccessReview).DeepCopy()
			review.Status.Allowed = !slices.ContainsFunc(denied, func(p kube.Permission) bool {
				asked := *review.Spec.ResourceAttributes
				return p == asked || p.Verb == "*" && p.Group == asked.Group
			})
			return true, review, nil
		})
	wanted, err := centreRights(s)
	require.NoError(t, err)
	server, err := serverRights(s)
	require.NoError(t, err)
	wanted = append(wanted, server...)
	var log bytes.Buffer
	logMissingRights(context.Background(), kube.NewPermissions(client), wanted,
		slog.New(slog.NewTextHandler(&log, nil)))
	return log.String()
}

func TestMissingRights_AreLogged(t *testing.T) {
	t.Parallel()
	s := settings.Settings{Namespace: "home", ServingNamespace: "servings", WatchNamespaces: []string{"shop"}}
	require.Empty(t, logFor(t, s), "nothing is logged if no right is missing")
	require.Contains(t, logFor(t, s, kube.Permission{Verb: "get", Resource: "configmaps", Name: "slipway-engine",
		Namespace: "home"}),
		`apply deploy/rbac/centre.yaml, or grant them by other means" lacks="get configmaps slipway-engine in namespace home"`)
	status := kube.Permission{Verb: "update", Group: "kuscia.secretflow", Resource: "kusciadeployments",
		Subresource: "status", Namespace: "servings"}
	require.Contains(t, logFor(t, s, status),
		`lacks="update kusciadeployments/status.kuscia.secretflow in namespace servings"`)
	require.Contains(t, logFor(t, s, kube.Permission{Verb: "get", Resource: "namespaces"}),
		`apply deploy/rbac/server.yaml, or grant them by other means" lacks="get namespaces in all namespaces"`)
	require.Contains(t, logFor(t, s, kube.Permission{Verb: "update", Group: "rollouts.kruise.io",
		Resource: "trafficroutings", Namespace: "shop"}),
		`lacks="update trafficroutings.rollouts.kruise.io in namespace shop"`)
	require.Contains(t, logFor(t, s, kube.Permission{Verb: "update", Group: "rollouts.kruise.io", Resource: "rollouts",
		Subresource: "status", Namespace: "shop"}),
		`apply deploy/rbac/rollouts.yaml, or grant them by other means" lacks="update rollouts/status.rollouts.kruise.io in namespace shop"`)
}

// Rights that these settings do not need are not reported.
func TestUnneededRights_AreNotLogged(t *testing.T) {
	t.Parallel()
	s := settings.Settings{Namespace: "home", ServingNamespace: "servings", WatchNamespaces: []string{"shop"}}
	webhooks := kube.Permission{Verb: "delete", Group: "admissionregistration.k8s.io",
		Resource: "mutatingwebhookconfigurations", Name: "slipway-gate-home"}
	require.Empty(t, logFor(t, s, webhooks))
	s.WebhookListen = ":9443"
	require.Empty(t, logFor(t, s, webhooks), "an administrator registers them")
	s.RegisterWebhooks = true
	require.Contains(t, logFor(t, s, webhooks), "delete mutatingwebhookconfigurations.admissionregistration.k8s.io "+
		"slipway-gate-home in all namespaces")
	definitions := kube.Permission{Verb: "create", Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
	require.Empty(t, logFor(t, s, definitions))
	s.InstallCRDs = true
	require.Contains(t, logFor(t, s, definitions),
		"create customresourcedefinitions.apiextensions.k8s.io in all namespaces")
	require.NotContains(t, logFor(t, s, kube.Permission{Verb: "*", Group: "rollouts.kruise.io"}),
		"deploy/rbac/rollouts.yaml",
		"an engine without any right for Rollouts does not manage them")
}
