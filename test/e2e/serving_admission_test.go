package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/serving/admission"
	"slipway.io/slipway/test/harness"
)

// A party whose namespace lacks the servings label refuses a serving, in the status and in Kuscia's answer. It takes
// the same update after the namespace was labelled.
func TestServing_IsRefused_WhenNamespaceIsNotLabelled(t *testing.T) {
	t.Parallel()
	u := newTwoParties(t, harness.Shared(t))
	harness.LabelNamespace(t, u.Kube, u.bob, admission.LabelServings, "")
	u.create("guest", serving.Policy{})
	kd := u.WaitServing("guest", "bob's refusal", func(kd *kuscia.KusciaDeployment) bool {
		return harness.ServingDone(kd) && kd.Status.Phase == kuscia.PhaseFailed
	})
	require.Equal(t, serving.ReasonPartyFailed, kd.Status.Reason)
	require.Contains(t, kd.Status.Message, "kubectl label namespace "+u.bob+" slipway.io/servings=allowed")
	q := u.query("guest")
	require.Equal(t, "Failed", q.Status.State)
	require.Contains(t, q.Status.Message, "namespace "+u.bob+" does not take servings")
	require.Zero(t, remainingObjects(t, u.Engine, u.bob, "guest"))

	harness.LabelNamespace(t, u.Kube, u.bob, admission.LabelServings, admission.ServingsAllowed)
	u.update("guest", u.good, u.good)
	u.WaitServing("guest", "Available", harness.ServingAvailable)

	harness.LabelNamespace(t, u.Kube, u.bob, admission.LabelServings, "")
	u.update("guest", u.better, u.better)
	kd = u.WaitServing("guest", "the refused update", harness.ServingDone)
	require.Equal(t, serving.ReasonUpdateRolledBack, kd.Status.Reason)
	require.Contains(t, kd.Status.Message, "namespace "+u.bob+" does not take servings")
	require.Equal(t, kuscia.PhaseAvailable, kd.Status.Phase, "the previous version keeps running")
	require.Equal(t, []string{"v1", "v1"}, []string{u.tag(u.alice, "guest"), u.tag(u.bob, "guest")},
		"no party was changed")
	u.remove("guest")
	require.Eventually(t, func() bool {
		return u.Serving(u.Home, "guest") == nil
	}, harness.Patience, harness.Tick, "a deletion does not need the label")
	require.Zero(t, remainingObjects(t, u.Engine, u.alice, "guest")+remainingObjects(t, u.Engine, u.bob, "guest"))
}

// A namespace that forbids the pods (Pod Security) makes its party refuse the update within seconds, with the API
// server's message; every party rolls back.
func TestServingUpdate_IsRolledBack_WhenNamespaceForbidsPods(t *testing.T) {
	t.Parallel()
	u := newTwoParties(t, harness.Shared(t))
	u.create("strict", serving.Policy{})
	u.WaitServing("strict", "Available", harness.ServingAvailable)
	harness.LabelNamespace(t, u.Kube, u.bob, "pod-security.kubernetes.io/enforce", "restricted")
	u.update("strict", u.better, u.better)
	kd := u.WaitServing("strict", "the previous version", func(kd *kuscia.KusciaDeployment) bool {
		return harness.ServingDone(kd) && kd.Status.Phase == kuscia.PhaseAvailable
	})
	require.Equal(t, serving.ReasonUpdateRolledBack, kd.Status.Reason)
	require.Contains(t, kd.Status.Message, "party "+u.bob+": namespace "+u.bob+
		" does not allow the pods of Deployment strict")
	require.Contains(t, kd.Status.Message, `violates PodSecurity "restricted:latest"`)
	require.Contains(t, u.query("strict").Status.Message, "violates PodSecurity")
	require.Equal(t, []string{"v1", "v1"}, []string{u.tag(u.alice, "strict"), u.tag(u.bob, "strict")})
}

// A party's worker with its own policy refuses what the policy forbids, regardless of the centre; the status and
// Kuscia's answer name the rule. The setting --servings-in-any-namespace admits servings into a namespace without the
// label.
func TestServingUpdate_IsRolledBack_WhenPartyPolicyForbidsIt(t *testing.T) {
	t.Parallel()
	policy := writeFile(t, "images:\n  allowedPrefixes: [x]\nsecrets:\n  allowed: []\n")
	u := newTwoParties(t, harness.Start(t, harness.Options{Args: []string{"--serving-policy-file", policy,
		"--servings-in-any-namespace"}}))
	harness.LabelNamespace(t, u.Kube, u.bob, admission.LabelServings, "")
	const id = "ruled"
	u.create(id, serving.Policy{})
	u.WaitServing(id, "Available", harness.ServingAvailable)
	for _, tc := range []struct{ rule, spec string }{
		{"images.allowedPrefixes", `{"image":{"name":"evil.example/x","tag":"v2"},"deployTemplates":[{"name":"app","spec":{"containers":[{"name":"app"}]}}]}`},
		{"privileged", `{"image":{"name":"x","tag":"v2"},"deployTemplates":[{"name":"app","spec":{"containers":[{"name":"app","securityContext":{"privileged":true}}]}}]}`},
		{"privileged", `{"image":{"name":"x","tag":"v2"},"deployTemplates":[{"name":"app","spec":{"containers":[{"name":"app","livenessProbe":{"httpGet":{"host":"169.254.169.254","port":80}}}]}}]}`},
		{"secrets.allowed", `{"image":{"name":"x","tag":"v2"},"deployTemplates":[{"name":"app","spec":{"containers":[{"name":"app","envFrom":[{"secretRef":{"name":"db"}}]}]}}]}`},
	} {
		image := harness.RandomName("image")
		u.Kubectl("apply", "-f",
			writeFile(t, `{"apiVersion":"kuscia.secretflow/v1alpha1","kind":"AppImage","metadata":{"name":"`+image+
				`"},"spec":`+tc.spec+`}`))
		u.deleteAfterTest(image)
		u.update(id, u.better, image)
		kd := u.WaitServing(id, "the refusal by "+tc.rule, harness.ServingDone)
		require.Equal(t, serving.ReasonUpdateRolledBack, kd.Status.Reason, "%s: %+v", tc.rule, kd.Status)
		require.Contains(t, kd.Status.Message, "the party's policy refuses Deployment "+u.bob+"/"+id+
			": container app: ")
		require.Contains(t, u.query(id).Status.Message, "(rule "+tc.rule+")")
		require.Equal(t, []string{"v1", "v1"}, []string{u.tag(u.alice, id), u.tag(u.bob, id)}, "no party was changed")
	}
}
