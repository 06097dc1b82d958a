package guard

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admission "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/release/author"
)

// A check is a policy with its binding, as old as the younger of them, or a webhook.
func TestAuthorChecks(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"team": "shop"}}
	objects := unstructureds(Policies(Options{Name: "ours", Namespaces: selector}, "v1", "v1"))
	for i := range objects {
		objects[i].SetUID(types.UID(objects[i].GetKind() + objects[i].GetName()))
		objects[i].SetCreationTimestamp(metav1.NewTime(since))
		if strings.HasSuffix(objects[i].GetKind(), "Binding") {
			objects[i].SetCreationTimestamp(metav1.NewTime(since.Add(time.Minute)))
		}
	}
	found := AuthorChecks(objects, nil)
	require.Len(t, found, 1, "one of all policies")
	require.WithinDuration(t, since.Add(time.Minute), found[0].Since, 0, "before the binding it has checked nothing")
	require.Equal(t, author.Token("ValidatingAdmissionPolicyours-authors",
		"ValidatingAdmissionPolicyBindingours-authors"), found[0].Token)
	require.Equal(t, "shop", found[0].Namespaces.MatchLabels["team"])

	var unbound []unstructured.Unstructured
	for _, o := range objects {
		if o.GetKind() != "ValidatingAdmissionPolicyBinding" {
			unbound = append(unbound, o)
		}
	}
	require.Empty(t, AuthorChecks(unbound, nil), "a policy without a binding checks nothing")

	hook := AuthorWebhooks(Options{Name: AuthorsOf("slipway"), Namespaces: selector}, admission.WebhookClientConfig{})
	hook.UID, hook.CreationTimestamp = "u", metav1.NewTime(since)
	found = AuthorChecks(nil, []admission.MutatingWebhookConfiguration{*hook,
		*Webhooks(Options{Name: GateOf("slipway")}, admission.WebhookClientConfig{})})
	require.Len(t, found, 1, "the gate's webhooks check no authors")
	require.WithinDuration(t, since, found[0].Since, 0)
	require.Equal(t, "shop", found[0].Namespaces.MatchLabels["team"])
	require.Equal(t, admission.Fail, *hook.Webhooks[0].FailurePolicy)
	require.Empty(t, WebhookProblems(hook, AuthorWebhooks(Options{Name: "other", Identities: []string{"anna"}},
		admission.WebhookClientConfig{})))
}

// An object that passes the policy counts as checked: it must not pass unseen.
func TestTheCheckOfAuthors(t *testing.T) {
	t.Parallel()
	policy := byName(Policies(Options{NoGate: true}, "", "v1"))["ValidatingAdmissionPolicy slipway-guard-authors"]
	require.NotNil(t, policy, "it is no part of the gate")
	failure, _, _ := unstructured.NestedString(policy.Object, "spec", "failurePolicy")
	require.Equal(t, "Fail", failure)
	installed := Find(unstructureds(Policies(Options{}, "v1", "v1")))[0]
	require.Equal(t, "v1", installed.Version[AuthorsChecked])
	require.Empty(t, installed.Options().Custom)
}
