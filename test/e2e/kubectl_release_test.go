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

// declared is a release by a Rollout object, which has the workload's name.
type declared struct {
	*release
	guard *harness.Guard
}

// declare creates a workload, its routes and a Rollout for it, behind a guard with its gate, and waits until the
// Rollout is Healthy. change may alter the workload and the rollout.
func declare(t *testing.T, e *harness.Engine, g *harness.Guard, c cell,
	change func(object map[string]any, r *harness.Rollout)) *declared {
	t.Helper()
	d := &declared{release: prepareUnobserved(t, e, c, change), guard: g}
	g.EnforceOn(t, d.Apps)
	d.create(d.document(), "owner")
	d.waitObject("Healthy", func(r *v1beta1.Rollout) bool { return r.Status.Phase == v1beta1.PhaseHealthy })
	d.waitGate()
	d.startObserver()
	return d
}

// document returns the Rollout object as its owner writes it.
func (d *declared) document() map[string]any {
	body := d.rollout.Body(d.Apps)
	return map[string]any{"apiVersion": v1beta1.GroupVersion.String(), "kind": v1beta1.Kind,
		"metadata": map[string]any{"name": d.rollout.Name, "namespace": d.Apps},
		"spec":     map[string]any{"workloadRef": body["workloadRef"], "strategy": body["strategy"]}}
}

// rolloutClient returns a client of the namespace's Rollouts as a user.
func (d *declared) rolloutClient(user string) dynamic.ResourceInterface {
	client, err := dynamic.NewForConfig(d.Impersonate(user))
	require.NoError(d.t, err)
	return client.Resource(v1beta1.Resource).Namespace(d.Apps)
}

func (d *declared) create(document map[string]any, user string) {
	d.t.Helper()
	raw, err := json.Marshal(document)
	require.NoError(d.t, err)
	var object unstructured.Unstructured
	require.NoError(d.t, object.UnmarshalJSON(raw))
	_, err = d.rolloutClient(user).Create(context.Background(), &object, metav1.CreateOptions{})
	require.NoError(d.t, err)
	d.t.Cleanup(func() {
		_ = d.rolloutClient(user).Delete(context.Background(), d.rollout.Name, metav1.DeleteOptions{})
	})
}

// get reads the current object.
func (d *declared) get() *v1beta1.Rollout {
	d.t.Helper()
	found, err := d.rolloutClient("reader").Get(context.Background(), d.rollout.Name, metav1.GetOptions{})
	require.NoError(d.t, err)
	r, err := store.ReadRollout(found)
	require.NoError(d.t, err)
	return r
}

// waitObject waits until the object fulfils a condition.
func (d *declared) waitObject(what string, is func(*v1beta1.Rollout) bool) *v1beta1.Rollout {
	d.t.Helper()
	var last *v1beta1.Rollout
	require.Eventually(d.t, func() bool {
		last = d.get()
		return is(last)
	}, harness.Patience/2, harness.Tick, "%s", lazily(func() string {
		raw, _ := json.MarshalIndent(last, "", " ")
		return fmt.Sprintf("the Rollout was never %s: %s\nworkload: %v %v\n%s", what, raw, d.object().GetLabels(),
			d.object().GetAnnotations(), d.Processes[0].Output())
	}))
	return last
}

// lazily is a text that is computed when it is printed.
type lazily func() string

func (l lazily) String() string { return l() }

// waitGate waits until the workload is marked; from then on its template changes are held.
func (d *declared) waitGate() {
	d.t.Helper()
	require.Eventually(d.t, func() bool {
		return d.object().GetLabels()["slipway.io/gate"] == d.rollout.Name
	}, harness.Patience, harness.Tick,
		"the workload is never marked")
}

// setImage is `kubectl set image` by a user.
func (d *declared) setImage(user, image string) {
	d.t.Helper()
	client, err := dynamic.NewForConfig(d.Impersonate(user))
	require.NoError(d.t, err)
	patch, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/spec/template/spec/containers/0/image",
		"value": image}})
	require.NoError(d.t, err)
	_, err = client.Resource(d.rollout.Kind.GVR).Namespace(d.Apps).Patch(context.Background(), d.rollout.Name,
		types.JSONPatchType, patch,
		metav1.PatchOptions{FieldManager: "kubectl-set"})
	require.NoError(d.t, err)
}

// statusField returns the name of the style's part of the status.
func (d *declared) statusField() string {
	if d.rollout.Strategy.Style == "blueGreen" {
		return "blueGreenStatus"
	}
	return "canaryStatus"
}

// patchStatus patches the style's part of the status as a client does.
func (d *declared) patchStatus(user string, fields map[string]any) {
	d.t.Helper()
	patch, err := json.Marshal(map[string]any{"status": map[string]any{d.statusField(): fields}})
	require.NoError(d.t, err)
	_, err = d.rolloutClient(user).Patch(context.Background(), d.rollout.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: "kubectl"}, "status")
	require.NoError(d.t, err)
}

// patchSpec patches the spec of the object.
func (d *declared) patchSpec(user string, spec map[string]any) {
	d.t.Helper()
	patch, err := json.Marshal(map[string]any{"spec": spec})
	require.NoError(d.t, err)
	_, err = d.rolloutClient(user).Patch(context.Background(), d.rollout.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: "kubectl"})
	require.NoError(d.t, err)
}

// commonStatus returns the status fields that both styles share.
func commonStatus(r *v1beta1.Rollout) v1beta1.CommonStatus {
	switch {
	case r.Status.CanaryStatus != nil:
		return r.Status.CanaryStatus.CommonStatus
	case r.Status.BlueGreenStatus != nil:
		return r.Status.BlueGreenStatus.CommonStatus
	}
	return v1beta1.CommonStatus{}
}

// waitStep waits until the object is paused at a step.
func (d *declared) waitStep(step int) *v1beta1.Rollout {
	d.t.Helper()
	return d.waitObject(fmt.Sprintf("paused at step %d", step), func(r *v1beta1.Rollout) bool {
		c := commonStatus(r)
		return int(c.CurrentStepIndex) == step && c.CurrentStepState == "StepPaused"
	})
}

// approve approves a step as `kubectl kruise rollout approve` does and waits until the step is left.
func (d *declared) approve(step int) {
	d.t.Helper()
	d.waitStep(step)
	d.watch.MarkPaused(d.t, step)
	d.sendApproval(step)
}

// sendApproval approves a paused step and waits until it is left.
func (d *declared) sendApproval(step int) {
	d.t.Helper()
	d.watch.AllowStep(d.t, step+1)
	d.patchStatus("approver", map[string]any{"currentStepState": "StepReady"})
	d.waitObject("approved", func(r *v1beta1.Rollout) bool { return commonStatus(r).CurrentStepState != "StepPaused" })
}

// waitEnd waits until the release has ended: at the new version, or rolled back.
func (d *declared) waitEnd(succeeded bool) *v1beta1.Rollout {
	d.t.Helper()
	want := "False"
	if succeeded {
		want = "True"
	}
	return d.waitObject("ended, succeeded "+want, func(r *v1beta1.Rollout) bool {
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

// waitDeleted waits until the object is deleted.
func (d *declared) waitDeleted() {
	d.t.Helper()
	require.Eventually(d.t, func() bool {
		_, err := d.rolloutClient("reader").Get(context.Background(), d.rollout.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, harness.Patience, harness.Tick, "%s", lazily(func() string {
		raw, _ := json.MarshalIndent(d.get(), "", " ")
		return fmt.Sprintf("the Rollout is never deleted: %s\nworkload: %v %v", raw, d.object().GetLabels(),
			d.object().GetAnnotations())
	}))
}

// history returns the release's recorded commands as the HTTP API shows them: "approve by approver (kubectl):
// accepted".
func (d *declared) history() (all []string) {
	for _, e := range d.Rollout(d.rollout.Name).History {
		all = append(all, fmt.Sprintf("%s by %s (%s): %s", e.Verb, e.Actor, e.Via, e.Outcome))
	}
	return all
}

// maxDelayWithoutPods is the longest time for an action that waits for no pods.
const maxDelayWithoutPods = 5 * time.Second
