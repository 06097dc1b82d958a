package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// cfo is the name that an attacker writes where the API server would write the attacker's own.
const cfo = "cfo@example.com"

// forgeStart starts a release as mallory, with the marks that the gate would write and the name of another user.
func (d *declared) forgeStart() {
	d.t.Helper()
	client, err := dynamic.NewForConfig(d.Impersonate("mallory"))
	require.NoError(d.t, err)
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{gate.AnnotationHeld: `{"/spec/paused":null}`,
			gate.AnnotationBy: cfo}},
		"spec": map[string]any{"paused": true, "template": map[string]any{"spec": map[string]any{
			"containers": []any{map[string]any{"name": "app", "image": d.rollout.NewestImage()}}}}}})
	require.NoError(d.t, err)
	_, err = client.Resource(d.rollout.Kind.GVR).Namespace(d.Apps).Patch(context.Background(), d.rollout.Name,
		types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	require.NoError(d.t, err)
}

// forgeApproval approves the waiting step as mallory, in the name of another user.
func (d *declared) forgeApproval() {
	d.t.Helper()
	patch := fmt.Sprintf(`{"status":{"slipway":{"by":%q},"canaryStatus":{"currentStepState":"StepReady"}}}`, cfo)
	_, err := d.rolloutClient("mallory").Patch(context.Background(), d.rollout.Name, types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{}, "status")
	require.NoError(d.t, err)
}

// declareUnguarded creates a workload and a Rollout for it in a namespace without guard and gate.
func declareUnguarded(t *testing.T, e *harness.Engine) *declared {
	t.Helper()
	d := &declared{release: prepareUnobserved(t, e, deploymentCell(strategy.StylePartition, harness.NoProvider), nil)}
	d.create(d.document(), "owner")
	d.waitObject("Healthy", func(r *v1beta1.Rollout) bool { return r.Status.Phase == v1beta1.PhaseHealthy })
	return d
}

func (d *declared) waitHistory(entry string) {
	d.t.Helper()
	var last []string
	var shown v1beta1.RolloutStatus
	require.Eventually(d.t, func() bool {
		last, shown = d.history(), d.get().Status
		return slices.Contains(last, entry)
	}, harness.Patience, harness.Tick, "%s is not on record: %v; the object shows %+v", entry, &last, &shown)
}

// Where the gate is not installed, anyone who may write a status can write another user's name next to a command. The
// record says that nothing has verified it.
func TestKubectlNames_AreUnverified_WithoutGate(t *testing.T) {
	t.Parallel()
	e, _ := harness.StartGuarded(t)
	d := declareUnguarded(t, e)
	d.forgeStart()
	d.waitStep(1)
	d.waitHistory("start by unverified: " + cfo + " (kubectl): accepted")
	d.forgeApproval()
	d.waitHistory("approve by unverified: " + cfo + " (kubectl): accepted")
	require.NotContains(t, fmt.Sprint(d.history()), "by "+cfo, "the name never counts")
}

// With --require-gate, commands in the status are refused where nothing verifies who sends them, and the status shows
// that the step still waits. Once the gate is in force, the same request is recorded with the name of who sent it.
func TestKubectlApproval_IsRefused_WithoutRequiredGate(t *testing.T) {
	t.Parallel()
	e, g := harness.StartGuardedWith(t, harness.Options{Args: []string{"--require-gate=true"}})
	d := declareUnguarded(t, e)
	d.forgeStart()
	before := d.waitStep(1)
	d.forgeApproval()
	d.waitHistory("approve by unverified: " + cfo + " (kubectl): refused")
	d.waitObject("restored", func(r *v1beta1.Rollout) bool {
		return commonStatus(r).CurrentStepState == "StepPaused" && r.Status.Slipway.Seq > before.Status.Slipway.Seq &&
			r.Status.Slipway.By == ""
	})
	history := d.Rollout(d.rollout.Name).History
	require.Contains(t, history[len(history)-1].Message, "the gate is not installed for the namespace "+d.Apps)
	require.Contains(t, history[len(history)-1].Message, "`slipway rollout approve` works meanwhile")

	next := commonStatus(before).NextStepIndex
	d.patchStatus("mallory", map[string]any{"nextStepIndex": next + 1})
	d.waitHistory("jump by unknown (kubectl): refused")
	d.waitObject("restored", func(r *v1beta1.Rollout) bool { return commonStatus(r).NextStepIndex == next })

	d.guard = g
	g.EnforceOn(t, d.Apps)
	g.WaitStatusProtected(t, d.rolloutClient("probe"), d.rollout.Name)
	d.waitStep(1)
	d.forgeApproval()
	d.waitHistory("approve by mallory (kubectl): accepted")
	require.NotContains(t, fmt.Sprint(d.history()), "by "+cfo)
}

// Behind the gate, no client can write another user's name on a workload: not when it creates the workload, nor before
// a Rollout names it. Without such a name, or with its own, and in edits that keep what the gate has written, nothing
// changes.
func TestGatedBy_CannotBeForged_BehindGate(t *testing.T) {
	t.Parallel()
	e, g := harness.StartGuarded(t)
	e = e.ForTest(t)
	g.EnforceOn(t, e.Apps)
	deployments := func(user string) dynamic.ResourceInterface {
		client, err := dynamic.NewForConfig(e.Impersonate(user))
		require.NoError(t, err)
		return client.Resource(harness.Deployment.GVR).Namespace(e.Apps)
	}
	by := func(o *unstructured.Unstructured) string { return o.GetAnnotations()[gate.AnnotationBy] }
	object := e.SubjectObject(harness.Deployment, "web")
	object.SetAnnotations(map[string]string{gate.AnnotationBy: cfo, gate.AnnotationHeld: `{"/spec/paused":null}`})
	object.SetLabels(map[string]string{gate.Label: "web"})
	var made *unstructured.Unstructured
	require.Eventually(t, func() bool { // another policy than the one that the guard's probe waits for
		var err error
		made, err = deployments("mallory").Create(context.Background(), object,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil && by(made) == "mallory"
	}, harness.Patience, harness.Tick, "the creator's own name is written: %v", &made)
	object.SetAnnotations(nil)
	object.SetLabels(nil)
	made, err := deployments("mallory").Create(context.Background(), object, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Empty(t, by(made), "a workload without a name gets none")
	annotate := func(user, name string) *unstructured.Unstructured {
		o, err := deployments(user).Patch(context.Background(), "web", types.MergePatchType, fmt.Appendf(nil,
			`{"metadata":{"annotations":{%q:%q}}}`, gate.AnnotationBy, name), metav1.PatchOptions{})
		require.NoError(t, err)
		return o
	}
	require.Equal(t, "mallory", by(annotate("mallory", cfo)), "before a Rollout names it")
	require.Equal(t, "mallory", by(annotate("anna", "mallory")), "a name that is there already may stay")
	require.Equal(t, cfo, by(annotate(harness.EngineUser, cfo)), "the engine may write any name")
}
