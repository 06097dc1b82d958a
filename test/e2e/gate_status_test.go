package e2e

import (
	"context"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/guard"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/test/harness"
)

// rolloutStatus is the status, as the engine writes it, of a Rollout that waits at its first step.
const rolloutStatus = `{"status":{"phase":"Progressing","currentStepIndex":1,"currentStepState":"StepPaused","message":"waits",
"slipway":{"seq":7,"stepState":"StepPaused","nextStepIndex":2},
"canaryStatus":{"currentStepIndex":1,"nextStepIndex":2,"currentStepState":"StepPaused","podTemplateHash":"h","canaryReplicas":1,"canaryReadyReplicas":1}}}`

// approval is the patch that `kubectl kruise rollout approve` sends.
const approval = `{"status":{"canaryStatus":{"currentStepState":"StepReady"}}}`

// commanded is a Rollout whose steps users approve.
type commandedRollout struct {
	t         *testing.T
	stack     harness.Stack
	namespace string
}

func (c commandedRollout) as(config *rest.Config) dynamic.ResourceInterface {
	client, err := dynamic.NewForConfig(config)
	require.NoError(c.t, err)
	return client.Resource(v1beta1.Resource).Namespace(c.namespace)
}

func (c commandedRollout) patch(user, body string) (*unstructured.Unstructured, error) {
	return c.as(c.stack.Impersonate(user)).Patch(context.Background(), "web", types.MergePatchType, []byte(body),
		metav1.PatchOptions{}, "status")
}

// resetToPaused makes the Rollout wait at its first step again.
func (c commandedRollout) resetToPaused() {
	c.t.Helper()
	_, err := c.as(c.stack.Impersonate(harness.EngineUser)).Patch(context.Background(), "web", types.JSONPatchType,
		[]byte(`[{"op":"add","path":"/status","value":`+
			rolloutStatus[len(`{"status":`):len(rolloutStatus)-1]+`}]`), metav1.PatchOptions{}, "status")
	require.NoError(c.t, err)
}

func newCommandedRollout(t *testing.T, g *harness.Guard) commandedRollout {
	t.Helper()
	s := harness.SharedStack(t)
	c := commandedRollout{t: t, stack: s, namespace: s.Namespace(t, "gated")}
	g.EnforceOn(t, c.namespace)
	_, err := c.as(s.REST).Create(context.Background(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1beta1.GroupVersion.String(), "kind": v1beta1.Kind, "metadata": map[string]any{"name": "web"},
		"spec": map[string]any{"workloadRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment",
			"name": "web"},
			"strategy": map[string]any{"canary": map[string]any{"steps": []any{map[string]any{"replicas": "50%"},
				map[string]any{"replicas": "100%"}}}}}}},
		metav1.CreateOptions{})
	require.NoError(t, err)
	c.resetToPaused()
	g.WaitStatusProtected(t, c.as(s.Impersonate("probe")), "web")
	return c
}

// testRolloutStatusEdits checks that a command in the status of a Rollout carries the sender's name as authenticated by
// the API server, and that other clients cannot write anything else in the status.
func testRolloutStatusEdits(t *testing.T, g *harness.Guard) {
	c := newCommandedRollout(t, g)
	o, err := c.patch(anna,
		`{"status":{"slipway":{"by":"the boss","seq":99},"canaryStatus":{"currentStepState":"StepReady"}}}`)
	require.NoError(t, err)
	require.Equal(t, "StepReady", valueAt(o, "/status/canaryStatus/currentStepState"))
	require.Equal(t, map[string]any{"seq": int64(7), "stepState": "StepPaused", "nextStepIndex": int64(2), "by": anna},
		valueAt(o, "/status/slipway"),
		"the client's own values are overwritten")
	o, err = c.patch("bob", approval)
	require.NoError(t, err)
	require.Equal(t, anna, valueAt(o, "/status/slipway/by"), "repeating a command does not change its sender")
	o, err = c.patch("bob", `{"status":{"canaryStatus":{"nextStepIndex":1}}}`)
	require.NoError(t, err)
	require.Equal(t, "bob", valueAt(o, "/status/slipway/by"))
	require.EqualValues(t, 1, valueAt(o, "/status/canaryStatus/nextStepIndex"))
	o, err = c.patch(harness.EngineUser, rolloutStatus)
	require.NoError(t, err, "the engine may write any field")
	require.EqualValues(t, 2, valueAt(o, "/status/canaryStatus/nextStepIndex"))
	for _, refused := range []struct{ reason, patch, says string }{
		{"another field", `{"status":{"phase":"Healthy"}}`,
			"only Slipway writes phase in the status of Rollout web: others change only currentStepState"},
		{"a field of the style's status",
			`{"status":{"canaryStatus":{"currentStepState":"StepReady","canaryReplicas":4}}}`,
			"only Slipway writes canaryStatus.canaryReplicas"},
		{"a removed field", `{"status":{"message":null}}`, "only Slipway writes message in"},
		{"another style",
			`{"status":{"blueGreenStatus":{"currentStepIndex":1,"nextStepIndex":2,"currentStepState":"StepReady","podTemplateHash":"h","updatedReplicas":1,"updatedReadyReplicas":1}}}`,
			"blueGreenStatus.currentStepIndex"},
		{"another state", `{"status":{"canaryStatus":{"currentStepState":"Completed"}}}`,
			"currentStepState can not be set to Completed: set it to StepReady"},
	} {
		_, err := c.patch(anna, refused.patch)
		require.ErrorContains(t, err, refused.says, refused.reason)
	}
}

// testApproverRole checks that a user with only the role of deploy/rbac/approver.yaml can approve by kubectl and do
// nothing else.
func testApproverRole(t *testing.T, g *harness.Guard) {
	c := newCommandedRollout(t, g)
	c.stack.Grant(t, "approver.yaml", c.namespace)
	user := harness.RandomName("approver")
	kubectl := func(args ...string) (string, error) {
		out, err := exec.Command(c.stack.Binary("kubectl"),
			append(args, "-n", c.namespace, "--kubeconfig", c.stack.Kubeconfig)...).CombinedOutput()
		return string(out), err
	}
	out, err := kubectl("create", "rolebinding", "approvers", "--clusterrole",
		"slipway-rollout-approver-"+c.namespace, "--user", user)
	require.NoError(t, err, out)
	config := rest.CopyConfig(c.stack.REST)
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	approver := c.as(config)
	patch := func(body string, subresource ...string) error {
		_, err := approver.Patch(context.Background(), "web", types.MergePatchType, []byte(body), metav1.PatchOptions{},
			subresource...)
		return err
	}
	require.Eventually(t, func() bool {
		return patch(approval, "status") == nil
	}, harness.Patience, harness.Tick, "an approval")
	c.resetToPaused()
	out, err = kubectl("patch", "rollout", "web", "--subresource", "status", "--type", "merge", "-p", approval,
		"--as", user)
	require.NoError(t, err, "the command of deploy/rbac/approver.yaml: %s", out)
	o, err := approver.Get(context.Background(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, user, valueAt(o, "/status/slipway/by"))
	require.Equal(t, "StepReady", valueAt(o, "/status/canaryStatus/currentStepState"))
	_, err = approver.List(context.Background(), metav1.ListOptions{})
	require.NoError(t, err)
	require.ErrorContains(t, patch(`{"spec":{"disabled":true}}`), "forbidden", "no change of the Rollout")
	require.ErrorContains(t, approver.Delete(context.Background(), "web", metav1.DeleteOptions{}), "forbidden")
	require.ErrorContains(t, patch(`{"status":{"phase":"Healthy"}}`, "status"), "only Slipway writes phase")
}

// On a cluster without the Rollout kind, policies that refer to Rollouts fail open. If they failed closed, no client
// could create a Deployment.
func TestGate_FailsOpen_WithoutRolloutKind(t *testing.T) {
	t.Parallel()
	s := harness.SharedStack(t)
	s.InstallRollouts(t)
	w := describeGated(t, harness.NewWithoutProcesses(t), harness.Deployment)
	harness.LabelNamespace(t, s.Kube, w.Apps, guard.LabelGuard, w.Apps)
	w.createRollout(w.name)
	var policy *unstructured.Unstructured
	for _, o := range guard.Policies(guard.Options{Name: w.Apps,
		Namespaces: &metav1.LabelSelector{MatchLabels: map[string]string{guard.LabelGuard: w.Apps}}}, "v1", "") {
		if o.GetName() != w.Apps+"-rollouts-deployments.apps" {
			continue
		}
		client := s.Dynamic(t).Resource(kube.ResourceOf(o))
		_, err := client.Create(context.Background(), o, metav1.CreateOptions{})
		require.NoError(t, err)
		t.Cleanup(func() {
			require.NoError(t, client.Delete(context.Background(), o.GetName(), metav1.DeleteOptions{}))
		})
		if o.GetKind() == "MutatingAdmissionPolicy" {
			policy = o
		}
	}
	labelled := func() bool {
		o, err := s.Dynamic(t).Resource(w.kind.GVR).Namespace(w.Apps).Create(context.Background(),
			w.SubjectObject(w.kind, w.name), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		require.NoError(t, err, "no edit is refused")
		return o.GetLabels()[gate.Label] != ""
	}
	require.Eventually(t, labelled, harness.Patience, harness.Tick, "the policy is in force")
	_, err := s.Dynamic(t).Resource(kube.ResourceOf(policy)).Patch(context.Background(), policy.GetName(),
		types.MergePatchType,
		[]byte(`{"spec":{"paramKind":{"apiVersion":"absent.example.com/v1","kind":"Rollout"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return !labelled() }, harness.Patience, harness.Tick, "the policy fails open")
}
