package e2e

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admission "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/api/webhook"
	cliguard "slipway.io/slipway/cli/guard"
	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/guard"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/store"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/kruise"
)

// serveGate serves the gate's webhook for one namespace, as clusters without policies have it.
func serveGate(t *testing.T, e *harness.Engine) *webhook.Server {
	t.Helper()
	harness.LabelNamespace(t, e.Kube, e.Apps, guard.LabelGuard, e.Apps)
	home, err := store.New(e.REST, e.Apps, e.Apps)
	require.NoError(t, err)
	cluster := kube.NewCluster(e.Kube, e.Dynamic(t), nil)
	options := guard.Options{Name: e.Apps, Identities: []string{harness.EngineUser}, Namespaces: &metav1.LabelSelector{MatchLabels: map[string]string{guard.LabelGuard: e.Apps}}}
	endpoint := webhook.NewGate(webhook.Gate{Engine: func(user, _ string) bool { return user == harness.EngineUser }, Rollouts: home.RolloutsIn,
		Publish: func(ctx context.Context, client admission.WebhookClientConfig) (time.Duration, error) {
			return 0, cluster.PutGate(ctx, guard.Webhooks(options, client))
		}})
	t.Cleanup(func() { require.NoError(t, cluster.RemoveGate(context.Background(), options.Name)) })
	address := net.JoinHostPort("127.0.0.1", harness.FreePort(t))
	local, _ := webhook.AddressOf(address)
	server := webhook.NewServer(webhook.Options{Listen: address, Address: local, Source: webhook.Own{Secrets: home, Now: time.Now},
		Endpoints: []webhook.Endpoint{endpoint}, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	require.NoError(t, server.Start(context.Background()))
	return server
}

// By webhook the gate holds what it holds by policy; without its server, a change of the template of what is labelled is refused, and all else goes on.
func TestLongGateByWebhook(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e := harness.Nobody(t)
	kruise.Install(t, e.REST)
	e.InstallRollouts(t)
	kruise.Start(t, e.REST, e.Apps)
	server := serveGate(t, e)
	t.Run("Holds", func(t *testing.T) {
		for _, kind := range []harness.Kind{harness.Deployment, harness.StatefulSet, harness.DaemonSet, harness.CloneSet} {
			t.Run(kind.Title, func(t *testing.T) {
				t.Parallel()
				newGated(t, e, kind).holds()
			})
			t.Run("ByRollout/"+kind.Title, func(t *testing.T) {
				t.Parallel()
				heldByRollout(t, e, kind, false)
			})
		}
		t.Run("Passes", func(t *testing.T) {
			t.Parallel()
			passes(t, newGated(t, e, harness.Deployment))
		})
	})
	c := commanded{t: t, stack: e.Stack, namespace: e.Apps}
	w := ungated(t, e, harness.Deployment)
	w.name = "web"
	w.rollout("web")
	c.waiting()
	o, err := c.patch(anna, `{"status":{"slipway":{"by":"the boss"},"canaryStatus":{"currentStepState":"StepReady"}}}`)
	require.NoError(t, err)
	require.Equal(t, anna, at(o, "/status/slipway/by"), "commands have a name")

	labelled := newGated(t, e, harness.Deployment)
	require.NoError(t, server.Stop(context.Background()))
	_, err = labelled.try(anna, metav1.PatchOptions{}, labelled.image("v2"))
	require.True(t, apierrors.IsInternalError(err), "without its server, a labelled template can't be changed: %v", err)
	after := labelled.edit(anna, jsonpatch.Add("/spec/replicas", 2), jsonpatch.Add("/metadata/labels/team", "pay"), jsonpatch.Add("/spec/minReadySeconds", 1))
	require.EqualValues(t, 2, at(after, "/spec/replicas"), "everything else can be edited")
	labelled.edit(harness.EngineUser, labelled.image("v2"))
	free := ungated(t, e, harness.Deployment)
	free.Subject(free.kind, free.name, nil)
	require.NotContains(t, free.edit(anna, free.image("v2")).GetLabels(), gate.Label, "and what no Rollout names is made and changed as always")
	_, err = c.patch(anna, approval)
	require.Error(t, err, "nobody sends a command without a name")
}

// The setting and the cluster say whether the API server is told of the webhook.
func TestGateIsPublishedWhereItIsWanted(t *testing.T) {
	t.Parallel()
	s := harness.SharedStack(t)
	name := harness.RandomName("gate")
	configurations := s.Kube.AdmissionregistrationV1().MutatingWebhookConfigurations()
	publish := func(by string) error {
		_, err := (&cliguard.Gate{Config: s.REST, Name: name, By: by}).Publish(context.Background(), admission.WebhookClientConfig{URL: new("https://127.0.0.1:1/mutate")})
		require.NoError(t, err, by)
		_, err = configurations.Get(context.Background(), name, metav1.GetOptions{})
		return err
	}
	t.Cleanup(func() { require.True(t, apierrors.IsNotFound(publish(settings.GateOff))) })
	require.True(t, apierrors.IsNotFound(publish(settings.GateAuto)), "this cluster has policies")
	require.NoError(t, publish(settings.GateWebhook))
	_, err := configurations.Patch(context.Background(), name, types.MergePatchType, []byte(`{"webhooks":null}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.NoError(t, publish(settings.GateWebhook))
	found, err := configurations.Get(context.Background(), name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Len(t, found.Webhooks, 13, "two for each kind, and one for commands; what somebody takes away comes back")
	version := found.ResourceVersion
	require.NoError(t, publish(settings.GateWebhook))
	found, err = configurations.Get(context.Background(), name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, version, found.ResourceVersion, "what is right is not written again")
	require.True(t, apierrors.IsNotFound(publish(settings.GatePolicy)), "a webhook that nobody serves would refuse edits")
	require.NoError(t, publish(settings.GateWebhook))
	require.NoError(t, (&cliguard.Gate{Config: s.REST, Name: name}).Withdraw(context.Background()))
	_, err = configurations.Get(context.Background(), name, metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "a server without webhooks takes back what an earlier one has said")
}
