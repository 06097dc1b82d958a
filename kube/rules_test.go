package kube_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	authv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"slipway.io/slipway/kube"
)

func TestPermissionsUseOneReviewOfRules(t *testing.T) {
	t.Parallel()
	list := kube.Permission{Verb: "list", Group: "apps", Resource: "deployments", Namespace: "shop"}
	evict := kube.Permission{Verb: "create", Resource: "pods", Subresource: "eviction", Namespace: "shop"}
	rule := func(verb, group, resource string, names ...string) authv1.ResourceRule {
		return authv1.ResourceRule{Verbs: []string{verb}, APIGroups: []string{group}, Resources: []string{resource},
			ResourceNames: names}
	}
	for name, c := range map[string]struct {
		reason string
		rules  []authv1.ResourceRule
		need   kube.Permission
		// single is the answer of a review of that one permission, singles the number of such reviews.
		single  bool
		singles int
		lacks   bool
	}{
		"Granted": {"A rule that names it grants it.",
			[]authv1.ResourceRule{rule("list", "apps", "deployments")}, list, false, 0, false},
		"Everything": {"An administrator's rule grants it.", []authv1.ResourceRule{rule("*", "*", "*")}, evict,
			false, 0, false},
		"Subresource": {"A rule for the resource alone does not grant its subresource.",
			[]authv1.ResourceRule{rule("create", "", "pods")}, evict, false, 1, true},
		"ItsSubresource": {"One for the subresource does.", []authv1.ResourceRule{rule("create", "", "pods/eviction")},
			evict, false, 0, false},
		"AllSubresources": {"So does one for that subresource of everything.",
			[]authv1.ResourceRule{rule("create", "", "*/eviction")}, evict, false, 0, false},
		"SomeNames": {"A rule for some names grants no list.",
			[]authv1.ResourceRule{rule("list", "apps", "deployments", "web")}, list, false, 1, true},
		"AnotherGroup": {"A rule of another group grants nothing here.",
			[]authv1.ResourceRule{rule("list", "extensions", "deployments")}, list, false, 1, true},
		"RulesNotListed": {"An authorizer that does not list its rules is asked for the one permission.", nil, list,
			true, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := fake.NewClientset()
			singles := 0
			client.PrependReactor("create", "selfsubjectrulesreviews",
				func(clienttesting.Action) (bool, runtime.Object, error) {
					return true,
						&authv1.SelfSubjectRulesReview{Status: authv1.SubjectRulesReviewStatus{ResourceRules: c.rules}},
						nil
				})
			client.PrependReactor("create", "selfsubjectaccessreviews",
				func(clienttesting.Action) (bool, runtime.Object, error) {
					singles++
					return true,
						&authv1.SelfSubjectAccessReview{Status: authv1.SubjectAccessReviewStatus{Allowed: c.single}},
						nil
				})
			lacking, err := kube.NewPermissions(client).Lacking(t.Context(), []kube.Permission{c.need})
			require.NoError(t, err)
			require.Equal(t, c.lacks, lacking != "", c.reason)
			require.Equal(t, c.singles, singles, c.reason)
		})
	}
}
