package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/store"
	"slipway.io/slipway/test/harness"
)

// declared is a release by a Rollout object: the object's name is the workload's.
type declared struct {
	*release
	guard *harness.Guard
}

// declare makes a workload, its routes and a Rollout that names it, behind a guard with its gate, and returns when the Rollout is Healthy. change
// may alter the workload, the rollout and the object.
func declare(t *testing.T, e *harness.Engine, g *harness.Guard, c cell, change func(object map[string]any, r *harness.Rollout)) *declared {
	t.Helper()
	d := &declared{release: place(t, e, c, change), guard: g}
	g.Over(t, d.Apps)
	d.create(d.document(), "owner")
	d.waitObject("Healthy", func(r *v1beta1.Rollout) bool { return r.Status.Phase == v1beta1.PhaseHealthy })
	d.waitGate()
	d.follow()
	return d
}

// document is the Rollout object as its owner writes it.
func (d *declared) document() map[string]any {
	body := d.rollout.Body(d.Apps)
	return map[string]any{"apiVersion": v1beta1.GroupVersion.String(), "kind": v1beta1.Kind,
		"metadata": map[string]any{"name": d.rollout.Name, "namespace": d.Apps},
		"spec":     map[string]any{"workloadRef": body["workloadRef"], "strategy": body["strategy"]}}
}

// objects are the Rollouts of the namespace, as somebody reaches them.
func (d *declared) objects(user string) dynamic.ResourceInterface {
	client, err := dynamic.NewForConfig(d.As(user))
	require.NoError(d.t, err)
	return client.Resource(v1beta1.Resource).Namespace(d.Apps)
}

func (d *declared) create(document map[string]any, user string) {
	d.t.Helper()
	raw, err := json.Marshal(document)
	require.NoError(d.t, err)
	var object unstructured.Unstructured
	require.NoError(d.t, object.UnmarshalJSON(raw))
	_, err = d.objects(user).Create(context.Background(), &object, metav1.CreateOptions{})
	require.NoError(d.t, err)
	d.t.Cleanup(func() { _ = d.objects(user).Delete(context.Background(), d.rollout.Name, metav1.DeleteOptions{}) })
}

// asked is the object as it is now.
func (d *declared) asked() *v1beta1.Rollout {
	d.t.Helper()
	found, err := d.objects("reader").Get(context.Background(), d.rollout.Name, metav1.GetOptions{})
	require.NoError(d.t, err)
	r, err := store.ReadRollout(found)
	require.NoError(d.t, err)
	return r
}

// waitObject returns when the object is so.
func (d *declared) waitObject(what string, is func(*v1beta1.Rollout) bool) *v1beta1.Rollout {
	d.t.Helper()
	var last *v1beta1.Rollout
	require.Eventually(d.t, func() bool {
		last = d.asked()
		return is(last)
	}, harness.Patience/2, harness.Tick, "%s", lazily(func() string {
		raw, _ := json.MarshalIndent(last, "", " ")
		return fmt.Sprintf("the Rollout was never %s: %s\nworkload: %v %v\n%s", what, raw, d.object().GetLabels(), d.object().GetAnnotations(), d.Processes[0].Output())
	}))
	return last
}

// lazily is a text that is made when it is printed.
type lazily func() string

func (l lazily) String() string { return l() }

// waitGate returns when the workload is marked: by then its changes of template are held.
func (d *declared) waitGate() {
	d.t.Helper()
	require.Eventually(d.t, func() bool { return d.object().GetLabels()["slipway.io/gate"] == d.rollout.Name }, harness.Patience, harness.Tick,
		"the workload is never marked")
}

// setImage is `kubectl set image`, by somebody.
func (d *declared) setImage(user, image string) {
	d.t.Helper()
	client, err := dynamic.NewForConfig(d.As(user))
	require.NoError(d.t, err)
	patch, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": image}})
	require.NoError(d.t, err)
	_, err = client.Resource(d.rollout.Kind.GVR).Namespace(d.Apps).Patch(context.Background(), d.rollout.Name, types.JSONPatchType, patch,
		metav1.PatchOptions{FieldManager: "kubectl-set"})
	require.NoError(d.t, err)
}

// part is the name of the style's own part of the status.
func (d *declared) part() string {
	if d.rollout.Strategy.Style == "blueGreen" {
		return "blueGreenStatus"
	}
	return "canaryStatus"
}

// patchStatus is what clients do to the status.
func (d *declared) patchStatus(user string, fields map[string]any) {
	d.t.Helper()
	patch, err := json.Marshal(map[string]any{"status": map[string]any{d.part(): fields}})
	require.NoError(d.t, err)
	_, err = d.objects(user).Patch(context.Background(), d.rollout.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "kubectl"}, "status")
	require.NoError(d.t, err)
}

// patchSpec edits the object.
func (d *declared) patchSpec(user string, spec map[string]any) {
	d.t.Helper()
	patch, err := json.Marshal(map[string]any{"spec": spec})
	require.NoError(d.t, err)
	_, err = d.objects(user).Patch(context.Background(), d.rollout.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "kubectl"})
	require.NoError(d.t, err)
}

// common is what both styles tell.
func common(r *v1beta1.Rollout) v1beta1.CommonStatus {
	switch {
	case r.Status.CanaryStatus != nil:
		return r.Status.CanaryStatus.CommonStatus
	case r.Status.BlueGreenStatus != nil:
		return r.Status.BlueGreenStatus.CommonStatus
	}
	return v1beta1.CommonStatus{}
}

// waitStep returns when the object waits at a step for somebody.
func (d *declared) waitStep(step int) *v1beta1.Rollout {
	d.t.Helper()
	return d.waitObject(fmt.Sprintf("at rest at step %d", step), func(r *v1beta1.Rollout) bool {
		c := common(r)
		return int(c.CurrentStepIndex) == step && c.CurrentStepState == "StepPaused"
	})
}

// approve is what `kubectl kruise rollout approve` does: it is repeated each second until the step is another.
func (d *declared) approve(step int) {
	d.t.Helper()
	d.waitStep(step)
	d.watch.Resting(d.t, step)
	d.ready(step)
}

// ready says that a step that rests may go on, and returns when it does.
func (d *declared) ready(step int) {
	d.t.Helper()
	d.watch.GoTo(d.t, step+1)
	d.patchStatus("approver", map[string]any{"currentStepState": "StepReady"})
	d.waitObject("approved", func(r *v1beta1.Rollout) bool { return common(r).CurrentStepState != "StepPaused" })
}

// ends returns when the release is over: to the new version, or taken back.
func (d *declared) ends(succeeded bool) *v1beta1.Rollout {
	d.t.Helper()
	want := "False"
	if succeeded {
		want = "True"
	}
	return d.waitObject("over, succeeded "+want, func(r *v1beta1.Rollout) bool {
		return r.Status.Phase == v1beta1.PhaseHealthy && conditionOf(r, v1beta1.ConditionSucceeded).Status == want &&
			conditionOf(r, v1beta1.ConditionProgressing).Reason == v1beta1.ReasonCompleted
	})
}

func conditionOf(r *v1beta1.Rollout, kind string) v1beta1.Condition {
	for _, c := range r.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return v1beta1.Condition{}
}

// gone returns when the object is not there any more.
func (d *declared) gone() {
	d.t.Helper()
	require.Eventually(d.t, func() bool {
		_, err := d.objects("reader").Get(context.Background(), d.rollout.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, harness.Patience, harness.Tick, "%s", lazily(func() string {
		raw, _ := json.MarshalIndent(d.asked(), "", " ")
		return fmt.Sprintf("the Rollout never goes: %s\nworkload: %v %v", raw, d.object().GetLabels(), d.object().GetAnnotations())
	}))
}

// history is what the release has on record, as the HTTP API tells it: "approve by approver (kubectl)".
func (d *declared) history() (all []string) {
	for _, e := range d.Rollout(d.rollout.Name).History {
		all = append(all, fmt.Sprintf("%s by %s (%s): %s", e.Verb, e.Actor, e.Via, e.Outcome))
	}
	return all
}

// soon is how long what needs no pods may take.
const soon = 5 * time.Second
