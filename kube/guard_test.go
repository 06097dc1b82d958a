package kube_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"

	"slipway.io/slipway/kube"
)

func TestFindPolicyVersions(t *testing.T) {
	t.Parallel()
	serves := func(version string, names ...string) *metav1.APIResourceList {
		list := &metav1.APIResourceList{GroupVersion: "admissionregistration.k8s.io/" + version}
		for _, name := range names {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
		}
		return list
	}
	cases := map[string]struct {
		reason    string
		lists     []*metav1.APIResourceList
		want      kube.PolicyVersions
		resources int
	}{
		"Newest": {"A current server has both in v1.", []*metav1.APIResourceList{
			serves("v1", "validatingadmissionpolicies", "mutatingadmissionpolicies"),
			serves("v1beta1", "mutatingadmissionpolicies")},
			kube.PolicyVersions{Mutating: "v1", Validating: "v1"}, 4},
		"Beta": {"An earlier one has mutating policies in v1beta1 only, if enabled.", []*metav1.APIResourceList{
			serves("v1", "validatingadmissionpolicies"), serves("v1beta1", "mutatingadmissionpolicies")},
			kube.PolicyVersions{Mutating: "v1beta1", Validating: "v1"}, 4},
		"Validating": {"An older one has validating policies only.",
			[]*metav1.APIResourceList{serves("v1", "validatingadmissionpolicies")},
			kube.PolicyVersions{Validating: "v1"}, 2},
		"None": {"A still older one has webhooks only.",
			[]*metav1.APIResourceList{serves("v1", "mutatingwebhookconfigurations")},
			kube.PolicyVersions{}, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, err := kube.FindPolicyVersions(&fake.FakeDiscovery{Fake: &clienttesting.Fake{Resources: c.lists}})
			require.NoError(t, err)
			require.Equal(t, c.want, found, c.reason)
			require.Len(t, found.Resources(), c.resources, c.reason)
		})
	}
}
