package kube_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admission "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordination "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"

	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/kruise/reference"
)

func TestKruiseRolloutsIsFound(t *testing.T) {
	t.Parallel()
	now := metav1.NowMicro()
	hooks := &admission.MutatingWebhookConfiguration{TypeMeta: metav1.TypeMeta{
		APIVersion: "admissionregistration.k8s.io/v1", Kind: "MutatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: "kruise-rollout-mutating-webhook-configuration"}}
	checks := &admission.ValidatingWebhookConfiguration{TypeMeta: metav1.TypeMeta{
		APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: "renamed"},
		Webhooks: []admission.ValidatingWebhook{{ClientConfig: admission.WebhookClientConfig{
			Service: &admission.ServiceReference{Namespace: "a", Name: "b",
				Path: new("/validate-rollouts-kruise-io-rollout")}}}}}
	others := &admission.MutatingWebhookConfiguration{TypeMeta: hooks.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{Name: "slipway-gate-slipway"}}
	controller := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: reference.Namespace,
		Name: reference.Deployment}}
	lease := &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: reference.Lease},
		Spec: coordination.LeaseSpec{HolderIdentity: new("manager-0_5ae9"), RenewTime: &now}}
	stale := lease.DeepCopy()
	stale.Spec.RenewTime = &metav1.MicroTime{Time: now.Add(-time.Hour)}
	for name, c := range map[string]struct {
		reason   string
		webhooks []runtime.Object
		others   []runtime.Object
		want     []string
	}{
		"Absent": {"Another product's webhooks and a stale lease do not count.", []runtime.Object{others},
			[]runtime.Object{stale}, nil},
		"Webhooks": {"Its webhooks exist although no controller runs.", []runtime.Object{hooks, checks}, nil,
			[]string{"MutatingWebhookConfiguration " + hooks.Name, "ValidatingWebhookConfiguration renamed"}},
		"Controller": {"Its controller runs under the usual name.", nil, []runtime.Object{controller},
			[]string{"Deployment kruise-rollout/kruise-rollout-controller-manager"}},
		"Elsewhere": {"Its controller runs under another name.", nil, []runtime.Object{lease},
			[]string{"its controller, pod elsewhere/manager-0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := kube.NewCluster(fake.NewClientset(c.others...),
				dynamicfake.NewSimpleDynamicClient(scheme.Scheme, c.webhooks...), nil)
			found, err := cluster.KruiseRollouts(context.Background())
			require.NoError(t, err, c.reason)
			var what []string
			for _, part := range found {
				what = append(what, part.What)
			}
			require.Equal(t, c.want, what, c.reason)
		})
	}
}

// If the engine's account lacks the permission, nothing is found and nothing is refused.
func TestKruiseRolloutsIsNotFound_WhenReadForbidden(t *testing.T) {
	t.Parallel()
	typed, objects := fake.NewClientset(), dynamicfake.NewSimpleDynamicClient(scheme.Scheme)
	forbid := func(a clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: a.GetResource().Resource}, "", nil)
	}
	typed.PrependReactor("*", "*", forbid)
	objects.PrependReactor("*", "*", forbid)
	found, err := kube.NewCluster(typed, objects, nil).KruiseRollouts(context.Background())
	require.NoError(t, err)
	require.Empty(t, found)
}
