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

// rolloutStatus is the status of a Rollout that waits at its first step, as the engine has written it.
const rolloutStatus = `{"status":{"phase":"Progressing","currentStepIndex":1,"currentStepState":"StepPaused","message":"waits",
"slipway":{"seq":7,"stepState":"StepPaused","nextStepIndex":2},
"canaryStatus":{"currentStepIndex":1,"nextStepIndex":2,"currentStepState":"StepPaused","podTemplateHash":"h","canaryReplicas":1,"canaryReadyReplicas":1}}}`

// approval is what kubectl kruise rollout approve sends.
const approval = `{"status":{"canaryStatus":{"currentStepState":"StepReady"}}}`

// commanded is one Rollout whose steps people approve.
type commanded struct {
	t         *testing.T
	stack     harness.Stack
	namespace string
}

func (c commanded) as(config *rest.Config) dynamic.ResourceInterface {
	client, err := dynamic.NewForConfig(config)
	require.NoError(c.t, err)
	return client.Resource(v1beta1.Resource).Namespace(c.namespace)
}

func (c commanded) patch(user, body string) (*unstructured.Unstructured, error) {
	return c.as(c.stack.As(user)).Patch(context.Background(), "web", types.MergePatchType, []byte(body), metav1.PatchOptions{}, "status")
}

// waiting has the Rollout wait at its first step again.
func (c commanded) waiting() {
	c.t.Helper()
	_, err := c.as(c.stack.As(harness.EngineUser)).Patch(context.Background(), "web", types.JSONPatchType, []byte(`[{"op":"add","path":"/status","value":`+
		rolloutStatus[len(`{"status":`):len(rolloutStatus)-1]+`}]`), metav1.PatchOptions{}, "status")
	require.NoError(c.t, err)
}

func newCommanded(t *testing.T, g *harness.Guard) commanded {
	t.Helper()
	s := harness.SharedStack(t)
	c := commanded{t: t, stack: s, namespace: s.Namespace(t, "gated")}
	g.Over(t, c.namespace)
	_, err := c.as(s.REST).Create(context.Background(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1beta1.GroupVersion.String(), "kind": v1beta1.Kind, "metadata": map[string]any{"name": "web"},
		"spec": map[string]any{"workloadRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
			"strategy": map[string]any{"canary": map[string]any{"steps": []any{map[string]any{"replicas": "50%"}, map[string]any{"replicas": "100%"}}}}}}},
		metav1.CreateOptions{})
	require.NoError(t, err)
	c.waiting()
	g.OverStatus(t, c.as(s.As("probe")), "web")
	return c
}

// A command in the status of a Rollout has the name of who sent it, as the API server knows them, and nothing else can be written there.
func statusOfRollouts(t *testing.T, g *harness.Guard) {
	c := newCommanded(t, g)
	o, err := c.patch(anna, `{"status":{"slipway":{"by":"the boss","seq":99},"canaryStatus":{"currentStepState":"StepReady"}}}`)
	require.NoError(t, err)
	require.Equal(t, "StepReady", at(o, "/status/canaryStatus/currentStepState"))
	require.Equal(t, map[string]any{"seq": int64(7), "stepState": "StepPaused", "nextStepIndex": int64(2), "by": anna}, at(o, "/status/slipway"),
		"whatever they say of themselves, or of the engine")
	o, err = c.patch("bob", approval)
	require.NoError(t, err)
	require.Equal(t, anna, at(o, "/status/slipway/by"), "who repeats a command has not sent it")
	o, err = c.patch("bob", `{"status":{"canaryStatus":{"nextStepIndex":1}}}`)
	require.NoError(t, err)
	require.Equal(t, "bob", at(o, "/status/slipway/by"))
	require.EqualValues(t, 1, at(o, "/status/canaryStatus/nextStepIndex"))
	o, err = c.patch(harness.EngineUser, rolloutStatus)
	require.NoError(t, err, "the engine writes what it likes")
	require.EqualValues(t, 2, at(o, "/status/canaryStatus/nextStepIndex"))
	for _, refused := range []struct{ reason, patch, says string }{
		{"another field", `{"status":{"phase":"Healthy"}}`, "only Slipway writes phase in the status of Rollout web: others change only currentStepState"},
		{"a field of the style's status", `{"status":{"canaryStatus":{"currentStepState":"StepReady","canaryReplicas":4}}}`, "only Slipway writes canaryStatus.canaryReplicas"},
		{"a field taken away", `{"status":{"message":null}}`, "only Slipway writes message in"},
		{"another style", `{"status":{"blueGreenStatus":{"currentStepIndex":1,"nextStepIndex":2,"currentStepState":"StepReady","podTemplateHash":"h","updatedReplicas":1,"updatedReadyReplicas":1}}}`,
			"blueGreenStatus.currentStepIndex"},
		{"another state", `{"status":{"canaryStatus":{"currentStepState":"Completed"}}}`, "currentStepState can not be set to Completed: set it to StepReady"},
	} {
		_, err := c.patch(anna, refused.patch)
		require.ErrorContains(t, err, refused.says, refused.reason)
	}
}

// Who has nothing but the role of deploy/rbac/approver.yaml approves by kubectl, and does nothing else.
func approversRole(t *testing.T, g *harness.Guard) {
	c := newCommanded(t, g)
	c.stack.Grant(t, "approver.yaml", c.namespace)
	user := harness.RandomName("approver")
	admin := func(args ...string) {
		out, err := exec.Command(c.stack.Binary("kubectl"), append(args, "--kubeconfig", c.stack.Kubeconfig)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	admin("-n", c.namespace, "create", "rolebinding", "approvers", "--clusterrole", "slipway-rollout-approver-"+c.namespace, "--user", user)
	config := rest.CopyConfig(c.stack.REST)
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	approver := c.as(config)
	patch := func(body string, subresource ...string) error {
		_, err := approver.Patch(context.Background(), "web", types.MergePatchType, []byte(body), metav1.PatchOptions{}, subresource...)
		return err
	}
	require.Eventually(t, func() bool { return patch(approval, "status") == nil }, harness.Patience, harness.Tick, "an approval")
	o, err := approver.Get(context.Background(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, user, at(o, "/status/slipway/by"))
	_, err = approver.List(context.Background(), metav1.ListOptions{})
	require.NoError(t, err)
	require.ErrorContains(t, patch(`{"spec":{"disabled":true}}`), "forbidden", "no change of the Rollout")
	require.ErrorContains(t, approver.Delete(context.Background(), "web", metav1.DeleteOptions{}), "forbidden")
	require.ErrorContains(t, patch(`{"status":{"phase":"Healthy"}}`, "status"), "only Slipway writes phase")
}

// A cluster that no longer knows Rollouts takes every edit as always: what refers to them fails open. Were it closed, nobody could make a Deployment.
func TestAGateWithoutRollouts(t *testing.T) {
	t.Parallel()
	s := harness.SharedStack(t)
	s.InstallRollouts(t)
	w := ungated(t, harness.Nobody(t), harness.Deployment)
	harness.LabelNamespace(t, s.Kube, w.Apps, guard.LabelGuard, w.Apps)
	w.rollout(w.name)
	var policy *unstructured.Unstructured
	for _, o := range guard.Policies(guard.Options{Name: w.Apps, Namespaces: &metav1.LabelSelector{MatchLabels: map[string]string{guard.LabelGuard: w.Apps}}}, "v1", "") {
		if o.GetName() != w.Apps+"-rollouts-deployments.apps" {
			continue
		}
		client := s.Dynamic(t).Resource(kube.ResourceOf(o))
		_, err := client.Create(context.Background(), o, metav1.CreateOptions{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, client.Delete(context.Background(), o.GetName(), metav1.DeleteOptions{})) })
		if o.GetKind() == "MutatingAdmissionPolicy" {
			policy = o
		}
	}
	labelled := func() bool {
		o, err := s.Dynamic(t).Resource(w.kind.GVR).Namespace(w.Apps).Create(context.Background(), w.Unmade(w.kind, w.name), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		require.NoError(t, err, "nobody is refused")
		return o.GetLabels()[gate.Label] != ""
	}
	require.Eventually(t, labelled, harness.Patience, harness.Tick, "the policy is in force")
	_, err := s.Dynamic(t).Resource(kube.ResourceOf(policy)).Patch(context.Background(), policy.GetName(), types.MergePatchType,
		[]byte(`{"spec":{"paramKind":{"apiVersion":"absent.example.com/v1","kind":"Rollout"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return !labelled() }, harness.Patience, harness.Tick, "a kind that is gone")
}
