package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/party"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// ofAlice starts a rollout of the party's Deployment in two steps, the first of which waits for an approval.
func (h *hosted) ofAlice(name string, change map[string]any) harness.Answer {
	h.t.Helper()
	fields := map[string]any{"party": "alice"}
	for key, value := range change {
		fields[key] = value
	}
	r := harness.Rollout{Kind: harness.Deployment, Name: name, ExtraFields: fields, Strategy: strategy.Strategy{
		Style: strategy.StylePartition, Steps: []strategy.Step{harness.Step("1", -1), harness.Step("100%", -1)}}}
	body := r.Body(h.Apps)
	if _, patches := change["templatePatch"]; patches {
		delete(body, "images")
	}
	text, err := json.Marshal(body)
	require.NoError(h.t, err)
	return h.Call(http.MethodPost, "/api/v1/rollouts", string(text))
}

// verb sends a verb to a rollout of the party.
func (h *hosted) verb(name, verb, body string) harness.Answer {
	return h.Call(http.MethodPost, "/api/v1/rollouts/"+h.Apps+"/"+name+"/"+verb+"?party=alice", body)
}

// waitRolloutOfAlice waits until the status of a rollout of the party is as expected, and returns it.
func (h *hosted) waitRolloutOfAlice(name string, is func(rollout.Status) bool) (last rollout.Status) {
	h.t.Helper()
	require.Eventually(h.t, func() bool {
		a := h.Call(http.MethodGet, "/api/v1/rollouts/"+h.Apps+"/"+name+"?party=alice", "")
		return a.Status == http.StatusOK && json.Unmarshal(a.Body, &last) == nil && is(last)
	}, harness.Patience, harness.Tick, "rollout %s: %+v", name, &last)
	return last
}

func (h *hosted) deployment(name string) *appsv1.Deployment {
	h.t.Helper()
	d, err := h.Kube.AppsV1().Deployments(h.Apps).Get(context.Background(), name, metav1.GetOptions{})
	require.NoError(h.t, err)
	return d
}

// A release can't give a party's pods what the party's policy forbids, by any field of a pod template: nothing is
// written, and the answer names the rule. The API shows the policy.
func TestRollout_IsRefused_WhenPartyPolicyForbidsIt(t *testing.T) {
	t.Parallel()
	h := newHosted(t)
	policy := writeFile(t, "preset: baseline\nimages: {allowedPrefixes: [registry.test/]}\nsecrets: {allowed: []}\n")
	h.worker = h.PartyWorker("alice", h.alice.Kubeconfig, "--release-policy-file", policy)
	h.waitReachable(party.Reachable)
	h.Deployment("web", 2, nil)
	h.WaitReadyPods("web", 2)
	before := h.deployment("web")
	for rule, patch := range map[string]string{
		"baseline.hostNamespaces": `{"spec":{"hostPID":true}}`,
		"baseline.privileged":     `{"spec":{"containers":[{"name":"app","securityContext":{"privileged":true}}]}}`,
		"baseline.hostProbesAndHostLifecycle": `{"spec":{"containers":[{"name":"app","livenessProbe":` +
			`{"httpGet":{"host":"169.254.169.254","port":80}}}]}}`,
		"secrets.allowed":        `{"spec":{"containers":[{"name":"app","envFrom":[{"secretRef":{"name":"db"}}]}]}}`,
		"images.allowedPrefixes": `{"spec":{"containers":[{"name":"side","image":"evil.example/x:1"}]}}`,
	} {
		a := h.ofAlice("web", map[string]any{"templatePatch": json.RawMessage(patch)})
		require.Equal(t, http.StatusUnprocessableEntity, a.Status, "%s: %s", rule, a.Body)
		require.Contains(t, string(a.Body), "(rule "+rule+")")
	}
	a := h.ofAlice("web", map[string]any{"images": map[string]string{"app": "evil.example/web:2"}})
	require.Equal(t, http.StatusUnprocessableEntity, a.Status, "%s", a.Body)
	require.Contains(t, string(a.Body), "(rule images.allowedPrefixes)")
	after := h.deployment("web")
	require.Equal(t, before.Generation, after.Generation, "nothing is written")
	require.Equal(t, before.Annotations, after.Annotations, "not even a claim")

	var state struct{ Workers []struct{ Policy string } }
	require.NoError(t, json.Unmarshal(h.Call(http.MethodGet, "/api/v1/parties/alice", "").Body, &state))
	require.Len(t, state.Workers, 1)
	require.Regexp(t, `^baseline sha256:[0-9a-f]{12}$`, state.Workers[0].Policy)
}

// Under the preset baseline, which a party's worker has without a setting, a workload keeps what its live template has,
// a release of it is rolled back, and an undo to a version that violates the policy names the way to allow it.
func TestRollout_KeepsLivePrivileges_UnderBaselineOfParty(t *testing.T) {
	t.Parallel()
	h := newHosted(t)
	h.startWorker()
	h.Deployment("web", 2, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.HostPID = true
		d.Spec.Template.Spec.Containers[0].Image = "registry.test/web:v1"
	})
	h.WaitReadyPods("web", 2)
	waiting := func(s rollout.Status) bool {
		return s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitApproval
	}

	a := h.ofAlice("web", nil)
	require.Equal(t, http.StatusAccepted, a.Status, "an image is changed, hostPID is not: %s", a.Body)
	h.waitRolloutOfAlice("web", waiting)
	a = h.verb("web", "rollback", "{}")
	require.Equal(t, http.StatusOK, a.Status, "%s", a.Body)
	h.waitRolloutOfAlice("web", func(s rollout.Status) bool { return s.Phase == rollout.PhaseRolledBack })
	require.True(t, h.deployment("web").Spec.Template.Spec.HostPID, "the way back is not judged")

	a = h.ofAlice("web", map[string]any{"templatePatch": json.RawMessage(`{"spec":{"hostNetwork":true}}`)})
	require.Equal(t, http.StatusUnprocessableEntity, a.Status, "what the release adds is: %s", a.Body)
	require.Contains(t, string(a.Body), "(rule baseline.hostNamespaces)")

	a = h.ofAlice("web", map[string]any{"templatePatch": json.RawMessage(`{"spec":{"hostPID":null}}`)})
	require.Equal(t, http.StatusAccepted, a.Status, "%s", a.Body)
	gate := h.waitRolloutOfAlice("web", waiting).WaitingFor.Gate
	a = h.verb("web", "promote", fmt.Sprintf(`{"gate":%q,"reason":"it is good"}`, gate))
	require.Equal(t, http.StatusOK, a.Status, "%s", a.Body)
	h.waitRolloutOfAlice("web", func(s rollout.Status) bool { return s.Phase == rollout.PhaseHealthy })
	require.False(t, h.deployment("web").Spec.Template.Spec.HostPID)

	a = h.verb("web", "undo", "{}")
	require.Equal(t, http.StatusUnprocessableEntity, a.Status, "%s", a.Body)
	require.Contains(t, string(a.Body), "This is an earlier version: to return to it, ask the party to allow that in "+
		"--release-policy-file")
	require.False(t, h.deployment("web").Spec.Template.Spec.HostPID)
}
