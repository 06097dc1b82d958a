package reference

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admission "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordination "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWebhooks_AreDetectedByNameServiceOrPath(t *testing.T) {
	t.Parallel()
	client := func(namespace, name, path string) []admission.WebhookClientConfig {
		return []admission.WebhookClientConfig{{Service: &admission.ServiceReference{Namespace: namespace, Name: name,
			Path: &path}}}
	}
	for _, c := range []struct {
		reason, name string
		clients      []admission.WebhookClientConfig
		want         bool
	}{
		{"the chart's name is enough, whatever its clients are", "kruise-rollout-mutating-webhook-configuration", nil,
			true},
		{"the chart's name of the other kind", "kruise-rollout-validating-webhook-configuration", nil, true},
		{"renamed, it still calls its own Service", "ours",
			client("rollout-system", "kruise-rollout-webhook-service", "/"), true},
		{"renamed with its Service, it still serves its own paths", "ours",
			client("ours", "webhook-service", "/validate-rollouts-kruise-io-rollout"), true},
		{"Kruise's other controller releases nothing", "kruise-mutating-webhook-configuration",
			client("kruise-system", "kruise-webhook-service", "/mutate-pod"), false},
		{"a webhook with a URL belongs to another product", "slipway-gate-slipway",
			[]admission.WebhookClientConfig{{URL: new("https://10.0.0.1/mutate")}}, false},
		{"a policy engine that checks Rollouts is another product", "kyverno-resource-validating-webhook-cfg",
			client("kyverno", "kyverno-svc", "/validate/fail"), false},
	} {
		part, is := Webhooks("MutatingWebhookConfiguration", c.name, c.clients)
		require.Equal(t, c.want, is, c.reason)
		if is {
			require.Equal(t, "kubectl delete mutatingwebhookconfiguration "+c.name, part.Remove,
				"the removal is a command")
		}
	}
}

func TestController_Runs_WhileScaledUpOrLeaseIsRenewed(t *testing.T) {
	t.Parallel()
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: Deployment}}
	_, runs := Controller(d)
	require.True(t, runs, "a Deployment without replicas has one pod")
	d.Spec.Replicas = new(int32)
	_, runs = Controller(d)
	require.False(t, runs, "one of size 0 does nothing")

	now := time.Unix(1000, 0)
	renewed := metav1.NewMicroTime(now.Add(-10 * time.Second))
	lease := &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: Lease},
		Spec: coordination.LeaseSpec{HolderIdentity: new("manager-0_5ae9"), RenewTime: &renewed,
			LeaseDurationSeconds: new(int32(15))}}
	part, runs := Leader(lease, now)
	require.True(t, runs, "its leader has renewed the lease in time")
	require.Contains(t, part.What, "pod elsewhere/manager-0", "in any namespace")
	_, runs = Leader(lease, now.Add(6*time.Second))
	require.False(t, runs, "a controller that was removed leaves its lease behind")
	lease.Spec.HolderIdentity = new("")
	_, runs = Leader(lease, now)
	require.False(t, runs, "a released lease has no holder")
}

func TestRefusal_NamesPartsAndCommands(t *testing.T) {
	t.Parallel()
	require.Empty(t, Refusal(nil), "nothing detected, nothing refused")
	text := Refusal([]Part{{"Deployment a/b", "kubectl -n a delete deployment b", true},
		{"MutatingWebhookConfiguration c", "kubectl delete mutatingwebhookconfiguration c", false}})
	require.Equal(t, "Kruise Rollouts is installed on this cluster (Deployment a/b, MutatingWebhookConfiguration c), "+
		"and two controllers can't release the "+
		"same workloads. To remove it: kubectl -n a delete deployment b; kubectl delete mutatingwebhookconfiguration c",
		text)
}
