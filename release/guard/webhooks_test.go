package guard

import (
	"testing"

	"github.com/stretchr/testify/require"
	admission "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An engine that may not write the configuration says what an administrator has changed in it, or has not updated.
func TestWebhookProblems(t *testing.T) {
	t.Parallel()
	client := admission.WebhookClientConfig{CABundle: []byte("one"), Service: &admission.ServiceReference{
		Namespace: "slipway", Name: "webhooks", Path: new("/mutate"), Port: new(int32(443))}}
	want := Webhooks(Options{Name: "gate"}, client)
	for name, c := range map[string]struct {
		change func(*admission.MutatingWebhookConfiguration)
		says   string
	}{
		"Same": {func(*admission.MutatingWebhookConfiguration) {}, ""},
		"ChoicesOfAdministrators": {func(have *admission.MutatingWebhookConfiguration) {
			*have = *Webhooks(Options{Name: "gate", Identities: []string{"anna"},
				Namespaces: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "shop"}}}, client)
			for i := range have.Webhooks {
				have.Webhooks[i].ClientConfig.CABundle = []byte("another")
			}
		}, ""},
		"StoredDefaults": {func(have *admission.MutatingWebhookConfiguration) {
			for i := range have.Webhooks {
				if have.Webhooks[i].ObjectSelector == nil {
					have.Webhooks[i].ObjectSelector = &metav1.LabelSelector{}
				}
			}
		}, ""},
		"Missing": {func(have *admission.MutatingWebhookConfiguration) { have.Webhooks = have.Webhooks[1:] },
			"it lacks the webhook deployments.apps.gate.slipway.io"},
		"Condition": {func(have *admission.MutatingWebhookConfiguration) {
			have.Webhooks[0].MatchConditions = have.Webhooks[0].MatchConditions[:1]
		}, "is of another version of Slipway"},
		"FailsOpen": {func(have *admission.MutatingWebhookConfiguration) {
			have.Webhooks[0].FailurePolicy = new(admission.Ignore)
		}, "is of another version of Slipway"},
		"AllObjects": {func(have *admission.MutatingWebhookConfiguration) { have.Webhooks[0].ObjectSelector = nil },
			"is of another version of Slipway"},
		"OtherServer": {func(have *admission.MutatingWebhookConfiguration) {
			have.Webhooks[0].ClientConfig = admission.WebhookClientConfig{URL: new("https://other.example/mutate")}
		}, "calls another server: https://other.example/mutate"},
		"OtherService": {func(have *admission.MutatingWebhookConfiguration) {
			have.Webhooks[0].ClientConfig.Service.Namespace = "green"
		}, "calls another server: Service green/webhooks"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			have := Webhooks(Options{Name: "gate"}, client).DeepCopy()
			c.change(have)
			problems := WebhookProblems(have, want)
			if c.says == "" {
				require.Empty(t, problems)
				return
			}
			require.Len(t, problems, 1)
			require.Contains(t, problems[0], c.says)
		})
	}
	identities, written := WebhookIdentities(want)
	require.Equal(t, DefaultIdentities(), identities)
	require.Empty(t, written)
}
