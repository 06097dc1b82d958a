package guard

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admission "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"slipway.io/slipway/release/workload"
)

func TestLockManifestIsCurrent(t *testing.T) {
	t.Parallel()
	want, err := YAML(LockPolicies(Options{}, "v1"))
	require.NoError(t, err)
	have, err := os.ReadFile("../../deploy/guard/lock.yaml")
	require.NoError(t, err)
	_, body, _ := strings.Cut(string(have), "---\n")
	require.Equal(t, string(want), "---\n"+body, "run `go generate ./release/guard`")
}

// lockOf returns the policies of a lock and their bindings by name.
func lockOf(t *testing.T, o Options) (policies map[string]admission.ValidatingAdmissionPolicySpec,
	bindings map[string]admission.ValidatingAdmissionPolicyBindingSpec) {
	t.Helper()
	policies = map[string]admission.ValidatingAdmissionPolicySpec{}
	bindings = map[string]admission.ValidatingAdmissionPolicyBindingSpec{}
	for _, o := range LockPolicies(o, "v1") {
		content := o.Object["spec"].(map[string]any)
		if strings.HasSuffix(o.GetKind(), "Binding") {
			var binding admission.ValidatingAdmissionPolicyBindingSpec
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(content, &binding))
			require.Equal(t, o.GetName(), binding.PolicyName)
			require.Equal(t, []admission.ValidationAction{admission.Deny}, binding.ValidationActions)
			bindings[o.GetName()] = binding
			continue
		}
		var policy admission.ValidatingAdmissionPolicySpec
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(content, &policy))
		policies[o.GetName()] = policy
	}
	return policies, bindings
}

// The lock fails closed, lets nothing pass without the permission, and finds the workload of a scale by a parameter.
func TestLock_FailsClosed_AndAsksForPermission(t *testing.T) {
	t.Parallel()
	policies, bindings := lockOf(t, Options{})
	require.Len(t, bindings, len(policies))
	for name, policy := range policies {
		require.Equal(t, admission.Fail, *policy.FailurePolicy, name)
		for _, v := range policy.Validations {
			require.Contains(t, v.Expression, ".check('override').allowed()", name)
			require.Contains(t, v.MessageExpression, "needs", name)
			require.Contains(t, v.MessageExpression, "override on releases.slipway.io in namespace ", name)
		}
		require.Equal(t, strings.Contains(name, scalePrefix), policy.ParamKind != nil, name)
		require.Equal(t, policy.ParamKind != nil, bindings[name].ParamRef != nil, name)
	}
	for _, k := range workload.Kinds {
		policy, scaled := policies["slipway-guard-lock-scale-"+k.Resource.GroupResource().String()]
		require.Equal(t, !k.PerNode, scaled, "%s: all kinds with a size have one", k.Key())
		if scaled {
			require.Equal(t, &admission.ParamKind{APIVersion: k.Resource.GroupVersion().String(), Kind: k.Kind},
				policy.ParamKind)
			require.Equal(t, []string{k.Resource.Resource + "/scale"},
				policy.MatchConstraints.ResourceRules[0].Resources)
		}
	}
}

// A namespace is kept under the lock by the labels that select it, whichever those are.
func TestLock_KeepsLabels_ThatSelectNamespaces(t *testing.T) {
	t.Parallel()
	const name = "slipway-guard-lock-namespaces"
	for selector, want := range map[string]string{"": "['slipway.io/guard']",
		"team=shop":                          "['slipway.io/guard', 'team']",
		"team in (shop, pay),!stage":         "['slipway.io/guard', 'stage', 'team']",
		"slipway.io/guard=shop-guard":        "['slipway.io/guard']",
		"kubernetes.io/metadata.name in (a)": "['kubernetes.io/metadata.name', 'slipway.io/guard']"} {
		o := Options{}
		if selector != "" {
			parsed, err := metav1.ParseToLabelSelector(selector)
			require.NoError(t, err)
			o.Namespaces = parsed
		}
		policies, bindings := lockOf(t, o)
		require.True(t, strings.HasPrefix(policies[name].Variables[0].Expression, want+".filter("), "%s: %s", selector,
			policies[name].Variables[0].Expression)
		match := bindings[name].MatchResources
		require.Nil(t, match.NamespaceSelector, "API servers compare it with the labels after the edit alone")
		require.Equal(t, metav1.FormatLabelSelector(o.namespaces().NamespaceSelector),
			metav1.FormatLabelSelector(match.ObjectSelector))
	}
}

// An installation with a lock is found as such, and is installed again with it; what it lacks is known.
func TestFind_KnowsTheLock(t *testing.T) {
	t.Parallel()
	objects := Policies(Options{Lock: true}, "v1", "v1")
	i := Find(unstructureds(objects))[0]
	require.True(t, i.Locked())
	require.True(t, i.Options().Lock)
	require.Empty(t, i.Options().Custom, "no part of the lock is a kind of object")
	require.Empty(t, i.Outdated)
	require.Empty(t, i.Unbound)
	for _, part := range LockParts() {
		require.Equal(t, "v1", i.Version[part], part)
		require.NotEmpty(t, Fields(part, Options{}), part)
	}
	i = Find(unstructureds(Policies(Options{}, "v1", "v1")))[0]
	require.False(t, i.Locked())
	require.False(t, i.Options().Lock)
	require.Empty(t, i.Outdated)

	var less []*unstructured.Unstructured
	for _, o := range objects {
		if o.GetName() != "slipway-guard-lock-scale-deployments.apps" {
			less = append(less, o)
		}
	}
	i = Find(unstructureds(less))[0]
	require.True(t, i.Locked(), "a part of the lock makes the status name what is missing")
	require.Empty(t, i.Version["lock: scale of deployments.apps"])
}
