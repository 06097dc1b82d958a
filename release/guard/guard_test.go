package guard

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/rollout/traffic"
	"slipway.io/slipway/release/workload"
)

// The manifest in deploy/guard is the output of this package.
func TestManifestIsCurrent(t *testing.T) {
	t.Parallel()
	want, err := YAML(Policies(Options{}, "v1", "v1"))
	require.NoError(t, err)
	have, err := os.ReadFile("../../deploy/guard/policies.yaml")
	require.NoError(t, err)
	head, body, _ := strings.Cut(string(have), "---\n")
	require.NotContains(t, head, "\nkind:", "the head is a comment")
	require.Equal(t, string(want), "---\n"+body, "run `go generate ./release/guard`")
}

func byName(objects []*unstructured.Unstructured) map[string]*unstructured.Unstructured {
	out := map[string]*unstructured.Unstructured{}
	for _, o := range objects {
		out[o.GetKind()+" "+o.GetName()] = o
	}
	return out
}

func expressionsOf(t *testing.T, policy *unstructured.Unstructured) string {
	t.Helper()
	require.NotNil(t, policy)
	mutations, _, err := unstructured.NestedSlice(policy.Object, "spec", "mutations")
	require.NoError(t, err)
	var out []string
	for _, m := range mutations {
		expression, _, _ := unstructured.NestedString(m.(map[string]any), "jsonPatch", "expression")
		out = append(out, expression)
	}
	return strings.Join(out, "\n")
}

// Each field that the code borrows has its own patch, in the policy of its kind.
func TestEveryBorrowedFieldIsRestored(t *testing.T) {
	t.Parallel()
	policies := byName(Policies(Options{}, "v1", "v1"))
	for _, k := range workload.Kinds {
		key, pointers := k.Key(), pods.BorrowedFields(k)
		text := expressionsOf(t, policies["MutatingAdmissionPolicy slipway-guard-"+k.Resource.GroupResource().String()])
		require.NotEmpty(t, pointers, key)
		for _, pointer := range pointers {
			require.Contains(t, text, `{op: "add", path: "`+pointer+`"`, key)
			require.Contains(t, text, `{op: "remove", path: "`+pointer+`"`, key)
		}
	}
	for _, k := range traffic.Kinds() {
		text := expressionsOf(t, policies["MutatingAdmissionPolicy slipway-guard-"+kind{Kind: k}.name()])
		for _, pointer := range k.Pointers {
			require.Contains(t, text, `"`+pointer+`"`, k.Resource)
		}
		require.Equal(t, k.Metadata, strings.Contains(text, `borrowed.contains('"/metadata/annotations/'`), k.Resource)
	}
	for _, field := range pods.AutoscalerLimits() {
		text := expressionsOf(t, policies["MutatingAdmissionPolicy slipway-guard-horizontalpodautoscalers.autoscaling"])
		require.Contains(t, text, `"/spec/`+field+`"`)
	}
}

// Each policy applies to edits of the objects themselves: not to deletions, status or scale.
func TestOnlyEditsAreGuarded(t *testing.T) {
	t.Parallel()
	for _, o := range Policies(Options{}, "v1", "v1") {
		if strings.HasSuffix(o.GetKind(), "Binding") {
			continue
		}
		rules, _, err := unstructured.NestedSlice(o.Object, "spec", "matchConstraints", "resourceRules")
		require.NoError(t, err)
		require.NotEmpty(t, rules)
		for _, rule := range rules {
			want := []any{"UPDATE"}
			switch part := strings.TrimPrefix(o.GetName(), "slipway-guard-"); {
			case part == startingName: // an edit of a Rollout is never refused
				want = []any{"CREATE"}
			// these concern new objects too: their label, the name of a user on them, and what they refer to
			case slices.Contains([]string{changerName, authorsName}, part) || strings.HasPrefix(part, namedPrefix):
				want = []any{"CREATE", "UPDATE"}
			}
			require.Equal(t, want, rule.(map[string]any)["operations"])
			for _, resource := range rule.(map[string]any)["resources"].([]any) {
				if strings.HasPrefix(o.GetName(), "slipway-guard-"+commandsName) {
					require.Equal(t, "rollouts/status", resource, "commands are sent in the status of Rollouts")
					continue
				}
				require.NotContains(t, resource, "/", "no subresource")
				require.NotEqual(t, "*", resource)
			}
		}
	}
}

func unstructureds(objects []*unstructured.Unstructured) []unstructured.Unstructured {
	var out []unstructured.Unstructured
	for _, o := range objects {
		out = append(out, *o)
	}
	return out
}

func TestFind_DescribesInstallation(t *testing.T) {
	t.Parallel()
	selector, err := metav1.ParseToLabelSelector("team=shop")
	require.NoError(t, err)
	mesh := traffic.CustomKind("mesh.example.com", "canaries")
	objects := Policies(Options{Name: "ours", Namespaces: selector, Custom: []traffic.Kind{mesh}}, "v1beta1", "v1")
	i := Find(unstructureds(objects))[0]
	require.Equal(t, "ours", i.Name)
	require.Equal(t, DefaultIdentities(), i.Identities)
	require.Equal(t, "v1beta1", i.Version["deployments.apps"], "each kind in the version that the server has")
	require.Equal(t, "v1", i.Version[Marks])
	require.Equal(t, "v1beta1", i.Version["canaries.mesh.example.com"])
	require.Empty(t, i.Outdated, "it is what this program writes, custom kinds included")
	require.Empty(t, i.Unbound)
	require.True(t, i.Guards(map[string]string{"team": "shop"}))
	require.False(t, i.Guards(map[string]string{"team": "pay"}), "a namespace that is not selected")
	require.False(t, i.Guards(map[string]string{"team": "shop", LabelGuard: NamespaceOff}), "a namespace that opts out")

	selector, err = metav1.ParseToLabelSelector(LabelGuard + "=ours")
	require.NoError(t, err)
	chosen := Find(unstructureds(Policies(Options{Name: "ours", Namespaces: selector}, "v1", "v1")))[0]
	require.True(t, chosen.Guards(map[string]string{LabelGuard: "ours"}), "a namespace that asks for this guard")
	require.False(t, chosen.Guards(nil))

	begun := slices.DeleteFunc(slices.Clone(objects), func(o *unstructured.Unstructured) bool {
		return strings.HasSuffix(o.GetKind(), "Binding")
	})
	require.False(t, Find(unstructureds(begun))[0].Guards(map[string]string{"team": "shop"}),
		"an installation without bindings does nothing yet")

	without := slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
		return o.GetName() == "ours-services" && strings.HasSuffix(o.GetKind(), "Binding")
	})
	for _, o := range without {
		if o.GetName() == "ours-deployments.apps" && !strings.HasSuffix(o.GetKind(), "Binding") {
			require.NoError(t, unstructured.SetNestedField(o.Object, "Fail", "spec", "failurePolicy"))
		}
	}
	i = Find(unstructureds(without))[0]
	require.Equal(t, []string{"services"}, i.Unbound, "a policy without a binding does nothing")
	require.Equal(t, []string{"deployments.apps"}, i.Outdated, "it was edited, or written by another version")
}

func TestPolicies_OmitKindsThatServerLacks(t *testing.T) {
	t.Parallel()
	for _, o := range Policies(Options{}, "", "v1") {
		require.NotContains(t, o.GetKind(), "Mutating")
	}
	require.Empty(t, Policies(Options{}, "", ""))
}

// The policies that hold by the label fail closed and need only the API server. Those that refer to Rollouts fail open:
// a server without the definition of Rollouts would reject every edit of every workload.
func TestTheGate(t *testing.T) {
	t.Parallel()
	policies := byName(Policies(Options{}, "v1", "v1"))
	for _, k := range workloads() {
		for prefix, want := range map[string]string{gatePrefix: "Fail", namedPrefix: "Ignore"} {
			name := "slipway-guard-" + prefix + k.name()
			policy := policies["MutatingAdmissionPolicy "+name]
			require.NotNil(t, policy, name)
			failure, _, _ := unstructured.NestedString(policy.Object, "spec", "failurePolicy")
			require.Equal(t, want, failure, name)
			_, params, _ := unstructured.NestedMap(policy.Object, "spec", "paramKind")
			require.Equal(t, prefix == namedPrefix, params, name)
			_, bound, _ := unstructured.NestedMap(policies["MutatingAdmissionPolicyBinding "+name].Object, "spec",
				"paramRef")
			require.Equal(t, prefix == namedPrefix, bound, name)
			labelled, _, _ := unstructured.NestedSlice(policy.Object, "spec", "matchConstraints", "objectSelector",
				"matchExpressions")
			operator := map[string]string{gatePrefix: "Exists", namedPrefix: "DoesNotExist"}[prefix]
			require.Equal(t, []any{map[string]any{"key": gate.Label, "operator": operator}}, labelled,
				"%s: only workloads with the label can be refused an edit, and only the others are looked up in the "+
					"Rollouts", name)
			require.Contains(t, expressionsOf(t, policy), `{op: "add", path: "`+k.workload.Pointer+`"`, name)
		}
	}
	for _, o := range Policies(Options{NoGate: true}, "v1", "v1") {
		require.NotContains(t, o.GetName(), gatePrefix, "a guard without a gate")
		require.NotContains(t, o.GetName(), namedPrefix)
	}
	for _, o := range Policies(Options{NoRollouts: true}, "v1", "v1") {
		require.NotContains(t, o.GetName(), namedPrefix, "a cluster without Rollouts, or with those of another product")
		require.NotContains(t, o.GetName(), "-"+commandsName)
		require.NotContains(t, o.GetName(), "-"+authorsName)
	}
	gated := Find(unstructureds(Policies(Options{}, "v1", "v1")))[0]
	require.True(t, gated.Gates())
	require.Empty(t, gated.Outdated)
	ungated := Find(unstructureds(Policies(Options{NoGate: true}, "v1", "v1")))[0]
	require.False(t, ungated.Gates())
	require.True(t, ungated.Options().NoGate, "it is installed again without a gate")
}
