package rollouts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/test/harness"
)

// withPolicies returns a cluster on which the policies are in force.
func withPolicies(t *testing.T) cluster {
	t.Helper()
	c := newCluster(t)
	require.Eventually(t, func() bool {
		c.warnings.take()
		_, err := c.beta().Create(testContext(t), c.parse(t, beta("[{replicas: 1, traffic: 5%}]", "[]")), dryRun)
		return err == nil && strings.Contains(c.warnings.take(), "move pods only")
	}, harness.Patience, harness.Tick, "the policies are not in force")
	return c
}

// Questionable specs that Kruise Rollouts accepts silently are accepted with a warning.
func TestQuestionableSpecs_AreAcceptedWithWarning(t *testing.T) {
	t.Parallel()
	c := withPolicies(t)
	for _, test := range []struct {
		name, reason, text, says string
	}{
		{"Unrouted", "traffic without a route has no effect", beta("[{replicas: 1, traffic: 5%}]", "[]"),
			"they move pods only"},
		{"UnroutedMatches", "matches without a route have no effect",
			blueGreen("[{replicas: 1, matches: [{headers: [{name: a, value: b}]}]}]"), "they move pods only"},
		{"Routed", "with a route", beta("[{replicas: 1, traffic: 5%}]", routed), ""},
		{"RoutedByRef", "with a TrafficRouting", refBeta +
			"{canary: {steps: [{replicas: 1, traffic: 5%}], trafficRoutingRef: mse}}", ""},
		{"RoutedByRefNextToCanary", "as in the specification",
			refBeta + "{trafficRoutingRef: mse, canary: {steps: [{replicas: 1, traffic: 5%}]}}", ""},
		{"RoutedByAnnotation", "the older form of a reference",
			strings.Replace(beta("[{replicas: 1, traffic: 5%}]", "[]"), "spec:",
				"metadata: {annotations: {rollouts.kruise.io/trafficrouting: mse}}\nspec:", 1), ""},
		{"PodsOnly", "without traffic there is no warning", beta("[{replicas: 1}, {replicas: 5}]", "[]"), ""},
		{"Providers", "all providers are changed",
			beta(oneStep, "[{service: a, ingress: {name: a}, gateway: {httpRouteName: b}}]"), "all of them apply"},
		{"Shrinks", "shrinking traffic is valid", beta("[{replicas: 1, traffic: 50%}, {replicas: 1, traffic: 5%}]",
			routed), "traffic shrinks"},
		{"Grows", "a step without traffic is not compared",
			beta("[{replicas: 1, traffic: 50%}, {replicas: 1}, {replicas: 1, traffic: 5%}]", routed), ""},
		{"Both", "matches take precedence over traffic",
			beta("[{replicas: 1, traffic: 5%, matches: [{headers: [{name: a, value: b}]}]}]", routed),
			"matches decide alone"},
		{"Pause", "a negative pause does not wait", beta("[{replicas: 1, pause: {duration: -1}}]", "[]"),
			"negative duration"},
		{"PauseEmpty", "as in the specification", beta("[{replicas: 1, pause: {duration: {}}}]", "[]"), ""},
	} {
		c.warnings.take()
		_, err := c.beta().Create(testContext(t), c.parse(t, test.text), dryRun)
		require.NoError(t, err, "%s: %s", test.name, test.reason)
		said := c.warnings.take()
		if test.says == "" {
			require.Empty(t, said, "%s: %s", test.name, test.reason)
		}
		require.Contains(t, said, test.says, "%s: %s", test.name, test.reason)
	}
	stored, err := c.beta().Create(testContext(t), c.parseOwn(t, beta("[{replicas: 1, traffic: 5%}]", "[]")),
		metav1.CreateOptions{})
	require.NoError(t, err)
	c.warnings.take()
	_, err = c.beta().Patch(testContext(t), stored.GetName(), types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	c.setStatus(t, stored, `{"status":{"phase":"Healthy"}}`)
	require.Empty(t, c.warnings.take(), "changes of labels or status give no warning")
}

// A workload can have only one Rollout.
func TestSecondRolloutOfWorkload_IsRefused(t *testing.T) {
	t.Parallel()
	c := withPolicies(t)
	first, err := c.beta().Create(testContext(t), c.parse(t,
		strings.Replace(beta(oneStep, "[]"), "spec:\n", "spec:\n  disabled: true\n", 1)), metav1.CreateOptions{})
	require.NoError(t, err)
	says := "the Rollout " + first.GetName() + " of this namespace names the same workload"
	require.Eventually(t, func() bool {
		_, err := c.beta().Create(testContext(t), c.parse(t, beta(oneStep, "[]")), dryRun)
		return err != nil && strings.Contains(err.Error(), says)
	}, harness.Patience, harness.Tick, "a second Rollout is refused, although the first is disabled")

	other, err := c.beta().Create(testContext(t), c.parse(t,
		strings.Replace(beta(oneStep, "[]"), "name: echo", "name: other", 1)), metav1.CreateOptions{})
	require.NoError(t, err, "another workload")
	change := func(name, patch string) error {
		_, err := c.beta().Patch(testContext(t), name, types.MergePatchType, []byte(patch),
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	require.ErrorContains(t, change(other.GetName(), `{"spec":{"workloadRef":{"name":"echo"}}}`), says,
		"a change to the same workload is refused too")
	require.NoError(t, change(other.GetName(), `{"spec":{"workloadRef":{"kind":"StatefulSet","name":"echo"}}}`),
		"another kind is another workload")
	require.NoError(t, change(first.GetName(), `{"spec":{"disabled":false}}`), "the first itself may be changed")

	elsewhere := c.parse(t, beta(oneStep, "[]"))
	elsewhere.SetNamespace(c.Namespace(t, "rollouts"))
	c.namespace = elsewhere.GetNamespace()
	_, err = c.beta().Create(testContext(t), elsewhere, dryRun)
	require.NoError(t, err, "the same name in another namespace is another workload")
}

// styled returns a canary of v1alpha1 with this style in its annotation.
func styled(style, steps string) string {
	return strings.Replace(alphaOf(steps, "[]"), "spec:",
		fmt.Sprintf("metadata: {annotations: {rollouts.kruise.io/rolling-style: %q}}\nspec:", style), 1)
}

// The rules of v1alpha1 that depend on the style are those of Kruise Rollouts.
func TestAlphaStyle_IsValidated(t *testing.T) {
	t.Parallel()
	c := withPolicies(t)
	alpha := c.startConverting(t)
	set := func(kind, text string) string { return strings.Replace(text, "kind: Deployment", "kind: "+kind, 1) }
	for name, test := range map[string]struct{ reason, text, says string }{
		"Unknown": {"only two styles exist", styled("blue", oneStep),
			"rolling-style is blue: it must be canary or partition"},
		"Case":  {"the style is case-insensitive", styled("Partition", oneStep), ""},
		"Empty": {"an empty style is the default", styled("", oneStep), ""},
		"Canary": {"an extra workload replaces no old pod", styled("canary", "[{replicas: 100%, weight: 50}]"),
			""},
		"Default": {"canary is the default of a Deployment", alphaOf("[{weight: 100}]", "[]"), ""},
		"Weight": {"the old pods must be able to take all traffic back", styled("partition", "[{weight: 51}]"),
			"at most 50% of the pods"},
		"WeightMet": {"50% is allowed", styled("partition", "[{weight: 50}]"), ""},
		"Replicas": {"a step with traffic", styled("partition", "[{replicas: 60%, weight: 5}]"),
			"at most 50% of the pods"},
		"Matches": {"a step with matches", styled("partition",
			"[{replicas: 60%, matches: [{headers: [{name: a, value: b}]}]}]"), "at most 50% of the pods"},
		"ReplicasOnly": {"a step without traffic and matches", styled("partition", "[{replicas: 60%}]"), ""},
		"Number":       {"a number is not compared", styled("partition", "[{replicas: 60, weight: 5}]"), ""},
		"StatefulSet": {"other kinds have no extra workload", set("StatefulSet", alphaOf("[{weight: 51}]", "[]")),
			"at most 50% of the pods"},
		"NotCanary": {"the annotation does not matter for other kinds",
			set("StatefulSet", styled("canary", "[{weight: 51}]")), "at most 50% of the pods"},
	} {
		_, err := alpha.Create(testContext(t), c.parse(t, test.text), dryRun)
		requireVerdict(t, err, test.says, name+": "+test.reason)
	}

	stored, err := alpha.Create(testContext(t), c.parseOwn(t, styled("canary", oneStep)), metav1.CreateOptions{})
	require.NoError(t, err)
	restyle := `{"metadata":{"annotations":{"rollouts.kruise.io/rolling-style":"partition"}}}`
	c.setStatus(t, stored, `{"status":{"phase":"Progressing"}}`)
	require.ErrorContains(t, alphaPatch(t, c, stored.GetName(), restyle), "can't change while a release is under way")
	c.setStatus(t, stored, `{"status":{"phase":"Healthy"}}`)
	require.NoError(t, alphaPatch(t, c, stored.GetName(), restyle))
}

// A blue-green of a CloneSet reads in v1alpha1 as an in-place canary of all pods, which would be invalid; edits in
// v1alpha1 are accepted nevertheless.
func TestBlueGreenOfCloneSet_CanBeEditedInAlpha(t *testing.T) {
	t.Parallel()
	c := withPolicies(t)
	c.startConverting(t)
	stored, err := c.beta().Create(testContext(t),
		c.parse(t, headBeta+"  workloadRef: {apiVersion: apps.kruise.io/v1alpha1, kind: CloneSet, name: echo}\n"+
			"  strategy: {blueGreen: {steps: [{replicas: 100%, traffic: 50%}]}}"), metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, alphaPatch(t, c, stored.GetName(), `{"spec":{"strategy":{"paused":true}}}`))
	_, is, _ := unstructured.NestedMap(c.betaOf(t, stored.GetName()).Object, "spec", "strategy", "blueGreen")
	require.True(t, is, "it stays a blue-green")
}
