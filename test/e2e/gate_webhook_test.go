package e2e

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admission "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

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

// serveGateWebhook serves the gate's webhook for one namespace, as on clusters without mutating admission policies.
func serveGateWebhook(t *testing.T, e *harness.Engine) *webhook.Server {
	t.Helper()
	return serveWebhook(t, e, func(s servedWebhook) webhook.Endpoint {
		return webhook.NewGate(webhook.Gate{Engine: isEngine, Rollouts: s.home.RolloutsIn,
			Publish: s.publish(guard.Webhooks)})
	})
}

// servedWebhook is what an endpoint reads and where it registers itself.
type servedWebhook struct {
	home    *store.Store
	cluster kube.Cluster
	options guard.Options
}

// publish returns the function by which an endpoint registers the webhooks that configure returns.
func (s servedWebhook) publish(
	configure func(guard.Options, admission.WebhookClientConfig) *admission.MutatingWebhookConfiguration,
) func(context.Context, admission.WebhookClientConfig) (time.Duration, error) {
	return func(ctx context.Context, client admission.WebhookClientConfig) (time.Duration, error) {
		return 0, s.cluster.PutGate(ctx, configure(s.options, client))
	}
}

func isEngine(user, _ string) bool { return user == harness.EngineUser }

// serveWebhook serves an endpoint for the engine's namespace until the end of the test.
func serveWebhook(t *testing.T, e *harness.Engine, endpoint func(servedWebhook) webhook.Endpoint) *webhook.Server {
	t.Helper()
	harness.LabelNamespace(t, e.Kube, e.Apps, guard.LabelGuard, e.Apps)
	home, err := store.New(e.REST, e.Apps, e.Apps)
	require.NoError(t, err)
	s := servedWebhook{home: home, cluster: kube.NewCluster(e.Kube, e.Dynamic(t), nil),
		options: guard.Options{Name: e.Apps, Identities: []string{harness.EngineUser},
			Namespaces: &metav1.LabelSelector{MatchLabels: map[string]string{guard.LabelGuard: e.Apps}}}}
	t.Cleanup(func() { require.NoError(t, s.cluster.RemoveGate(context.Background(), s.options.Name)) })
	address := net.JoinHostPort("127.0.0.1", harness.FreePort(t))
	local, _ := webhook.LocalAddress(address)
	server := webhook.NewServer(webhook.Options{Listen: address, Address: local,
		Source:    webhook.SelfSigned{Secrets: home, Now: time.Now},
		Endpoints: []webhook.Endpoint{endpoint(s)}, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	require.NoError(t, server.Start(context.Background()))
	t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })
	return server
}

// The webhook holds the same changes as the policies. While its server is down, template changes of labelled workloads
// are refused, and all other edits pass.
func TestLongGateWebhook_HoldsTemplateChange(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e := harness.NewWithoutProcesses(t)
	kruise.Install(t, e.REST)
	e.InstallRollouts(t)
	kruise.Start(t, e.REST, e.Apps)
	server := serveGateWebhook(t, e)
	t.Run("Holds", func(t *testing.T) {
		for _, kind := range []harness.Kind{harness.Deployment, harness.StatefulSet, harness.DaemonSet,
			harness.CloneSet} {
			t.Run(kind.Title, func(t *testing.T) {
				t.Parallel()
				newGated(t, e, kind).testHold()
			})
			t.Run("ByRollout/"+kind.Title, func(t *testing.T) {
				t.Parallel()
				testHoldByRollout(t, e, kind, false)
			})
		}
		t.Run("Passes", func(t *testing.T) {
			t.Parallel()
			testPasses(t, newGated(t, e, harness.Deployment))
		})
		t.Run("Large", func(t *testing.T) {
			t.Parallel()
			testLarge(t, newGated(t, e, harness.Deployment))
		})
	})
	c := commandedRollout{t: t, stack: e.Stack, namespace: e.Apps}
	w := describeGated(t, e, harness.Deployment)
	w.name = "web"
	w.createRollout("web")
	c.resetToPaused()
	o, err := c.patch(anna, `{"status":{"slipway":{"by":"the boss"},"canaryStatus":{"currentStepState":"StepReady"}}}`)
	require.NoError(t, err)
	require.Equal(t, anna, valueAt(o, "/status/slipway/by"), "commands carry their sender's name")

	labelled := newGated(t, e, harness.Deployment)
	require.NoError(t, server.Stop(context.Background()))
	_, err = labelled.try(anna, metav1.PatchOptions{}, labelled.image("v2"))
	require.True(t, apierrors.IsInternalError(err), "without its server, a labelled template can't be changed: %v", err)
	after := labelled.edit(anna, jsonpatch.Add("/spec/replicas", 2), jsonpatch.Add("/metadata/labels/team", "pay"),
		jsonpatch.Add("/spec/minReadySeconds", 1))
	require.EqualValues(t, 2, valueAt(after, "/spec/replicas"), "everything else can be edited")
	labelled.edit(harness.EngineUser, labelled.image("v2"))
	free := describeGated(t, e, harness.Deployment)
	free.Subject(free.kind, free.name, nil)
	require.NotContains(t, free.edit(anna, free.image("v2")).GetLabels(), gate.Label,
		"and a workload without a Rollout is created and edited as usual")
	_, err = c.patch(anna, approval)
	require.Error(t, err, "a command whose sender is unknown is refused")
}

// testLarge edits a workload of nearly the size that the API server stores at most: it is held as usual. With padding
// that takes six times the bytes in a review, the edit is refused.
func testLarge(t *testing.T, w *gated) {
	client, err := dynamic.NewForConfig(w.Impersonate(anna))
	require.NoError(t, err)
	patch := func(value, version string) (*unstructured.Unstructured, error) {
		return client.Resource(w.kind.GVR).Namespace(w.Apps).Patch(context.Background(), w.name,
			types.StrategicMergePatchType,
			fmt.Appendf(nil, `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"registry.test/%s:%s",`+
				`"env":[%s]}]}}}}`, w.name, version, value), metav1.PatchOptions{})
	}
	env := func(name, value string) string { return fmt.Sprintf(`{"name":%q,"value":"%s"}`, name, value) }
	const size = 1_450_000
	for _, version := range []string{"v2", "v3"} { // at the second edit, the object is as large before
		o, err := patch(env("A", strings.Repeat("x", size)), version)
		require.NoError(t, err)
		w.requireHeld(o, heldValues[w.kind].original, anna, "the largest object is held")
	}
	w.createRollout(w.name) // a review that isn't read to its end shows the name, and no label
	const part = 450_000    // a request may have 3 MiB: the padding comes in parts
	control := strings.Repeat(`\u0001`, part)
	for _, name := range []string{"A", "B"} {
		o, err := patch(env(name, control), "v4")
		require.NoError(t, err)
		w.requireHeld(o, heldValues[w.kind].original, anna, "within the bound it is held")
	}
	before := w.Object(w.kind, w.name)
	_, err = patch(env("C", control), "v5")
	require.ErrorContains(t, err, "can't be held by its Rollout: the review has more than 8 MiB of JSON")
	require.Equal(t, before.GetGeneration(), w.Object(w.kind, w.name).GetGeneration())
	w.requireOldPods(harness.SubjectSize)
}

// The setting and the cluster's features decide whether the engine registers the webhook with the API server.
func TestGateWebhook_IsPublished_DependingOnSettingAndCluster(t *testing.T) {
	t.Parallel()
	s := harness.SharedStack(t)
	name := harness.RandomName("gate")
	configurations := s.Kube.AdmissionregistrationV1().MutatingWebhookConfigurations()
	var log bytes.Buffer
	engine := "engine"
	publish := func(by string) error {
		gate := &cliguard.Gate{Config: s.REST, Name: name, Mode: by, Log: slog.New(slog.NewTextHandler(&log, nil)),
			List: func(context.Context) (cliguard.List, error) {
				return cliguard.List{Identities: []string{engine}, With: "slipway server"}, nil
			}}
		_, err := gate.Publish(context.Background(),
			admission.WebhookClientConfig{URL: new("https://127.0.0.1:1/mutate")})
		require.NoError(t, err, by)
		_, err = configurations.Get(context.Background(), name, metav1.GetOptions{})
		return err
	}
	t.Cleanup(func() { require.True(t, apierrors.IsNotFound(publish(settings.GateOff))) })
	harness.SharedGuard(t)
	require.True(t, apierrors.IsNotFound(publish(settings.GateAuto)), "policies hold workloads on this cluster")
	require.NoError(t, publish(settings.GateWebhook))
	_, err := configurations.Patch(context.Background(), name, types.MergePatchType, []byte(`{"webhooks":null}`),
		metav1.PatchOptions{})
	require.NoError(t, err)
	require.NoError(t, publish(settings.GateWebhook))
	found, err := configurations.Get(context.Background(), name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Len(t, found.Webhooks, 13, "two for each kind, and one for commands; removed ones are restored")
	version := found.ResourceVersion
	require.NoError(t, publish(settings.GateWebhook))
	found, err = configurations.Get(context.Background(), name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, version, found.ResourceVersion, "an unchanged configuration is not written again")
	identities, written := guard.WebhookIdentities(found)
	require.Equal(t, []string{"engine"}, identities, "the list is the given one, without defaults")
	require.Equal(t, "slipway server", written.With)
	require.NotContains(t, log.String(), "no longer")
	engine = "other"
	require.NoError(t, publish(settings.GateWebhook))
	found, err = configurations.Get(context.Background(), name, metav1.GetOptions{})
	require.NoError(t, err)
	identities, _ = guard.WebhookIdentities(found)
	require.Equal(t, []string{"other"}, identities, "nothing of an installed list is kept")
	require.Contains(t, log.String(), "no longer on the list of users whose edits pass: engine")
	require.True(t, apierrors.IsNotFound(publish(settings.GatePolicy)), "a webhook without a server would refuse edits")
	require.NoError(t, publish(settings.GateWebhook))
	require.NoError(t, (&cliguard.Gate{Config: s.REST, Name: name}).Withdraw(context.Background()))
	_, err = configurations.Get(context.Background(), name, metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "a server without webhooks deletes an earlier server's configuration")
}

// The webhook holds until policies are installed: that the API server could have them is not enough.
func TestLongGateWebhook_IsPublished_UntilPoliciesAreInstalled(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	s := harness.NewPrivateStack(t).Stack
	s.InstallRollouts(t)
	gate := &cliguard.Gate{Config: s.REST, Name: "slipway-gate-slipway", Mode: settings.GateAuto}
	published := func() error {
		_, err := gate.Publish(context.Background(), admission.WebhookClientConfig{URL: new("https://127.0.0.1:1/mutate")})
		require.NoError(t, err)
		_, err = s.Kube.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(context.Background(), gate.Name,
			metav1.GetOptions{})
		return err
	}
	require.NoError(t, published(), "nothing else holds workloads")
	problems, err := gate.CheckPolicies(context.Background())
	require.NoError(t, err)
	require.NotContains(t, strings.Join(problems, "; "), "the gate is not installed", "the webhook holds")
	s.InstallGuard(t)
	require.True(t, apierrors.IsNotFound(published()), "policies hold now")
}
