package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/hold"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// A change that nothing held moves pods although a Rollout names the workload. No client takes that for a release that
// has succeeded: the object says what moved, with a condition, an event, a record and a count. A release by a plan is
// none. A change that the gate held before the engine first saw the Rollout is released through the steps.
func TestKubectlChange_IsReported_IfNothingHeldIt(t *testing.T) {
	t.Parallel()
	e, g := harness.StartGuarded(t)
	cells := []cell{deploymentCell(strategy.StylePartition, harness.NoProvider),
		{harness.DaemonSet, strategy.StylePartition, harness.NoProvider}}
	var changed []*declared
	for _, c := range cells {
		d := &declared{release: prepareUnobserved(t, e, c, nil)} // no guard covers its namespace
		d.create(d.document(), "owner")
		d.waitObject("Healthy", func(r *v1beta1.Rollout) bool { return r.Status.Phase == v1beta1.PhaseHealthy })
		changed = append(changed, d)
	}
	d := changed[0]
	d.PutService("77", "", "Deployment/order")
	d.PutPlan("unheld", "deployPlanItems: [{serviceId: 77, deployment: RESTART}]")
	d.WaitTask(d.Execute("unheld"), plan.TaskSucceeded)
	restarted := d.object()
	d.waitObject("restarted", func(r *v1beta1.Rollout) bool {
		return commonStatus(r).ObservedWorkloadGeneration == restarted.GetGeneration()
	})
	require.Empty(t, conditionOf(d.get(), v1beta1.ConditionNotHeld).Message, "a plan has its own record")

	for _, d := range changed {
		d.setImage("mallory", d.rollout.NewestImage())
		d.requireReported()
	}

	unseen := &declared{release: prepareUnobserved(t, e, cells[0], nil)}
	held := &declared{release: prepareUnobserved(t, e, cells[0], nil), guard: g}
	g.EnforceOn(t, held.Apps)
	e.Processes[0].Kill()
	unseen.create(unseen.document(), "owner")
	held.create(held.document(), "owner")
	gate := &gated{Engine: held.Engine, t: t, kind: harness.Deployment, name: "order", hold: hold.Kind(
		harness.Deployment.Ref("").Lookup())}
	gate.waitInForce()
	held.setImage("alice", held.rollout.NewestImage())

	unseen.setImage("mallory", unseen.rollout.NewestImage())
	unseen.waitUpdated()
	e.Processes[0] = e.Dev(harness.Options{})
	e.WaitReady()
	unseen.requireReported()
	held.waitStep(1)
	require.Contains(t, held.history(), "start by alice (kubectl): accepted")
}

// waitUpdated waits until all pods have the newest image.
func (d *declared) waitUpdated() {
	d.t.Helper()
	require.Eventually(d.t, func() bool {
		updated, _ := valueAt(d.object(), "/status/updatedReplicas").(int64)
		return updated == harness.SubjectSize
	}, harness.Patience, harness.Tick, "pods move without a release")
}

// requireReported requires that the object, its events, its records and the metrics show a change that was not held.
func (d *declared) requireReported() {
	d.t.Helper()
	r := d.waitObject("not held", func(r *v1beta1.Rollout) bool {
		return conditionOf(r, v1beta1.ConditionNotHeld).Status == "True" &&
			strings.HasSuffix(r.Status.Message, "4 of 4 pods have it")
	})
	why := conditionOf(r, v1beta1.ConditionNotHeld).Message
	require.Contains(d.t, why, "was changed by the client \"kubectl-set\" at ")
	require.Contains(d.t, why, "app="+d.rollout.NewestImage())
	require.Contains(d.t, why, "the gate is not installed for the namespace "+d.Apps)
	require.Equal(d.t, "False", conditionOf(r, v1beta1.ConditionSucceeded).Status, "no client takes it for a success")
	require.NotEqual(d.t, v1beta1.ReasonCompleted, conditionOf(r, v1beta1.ConditionProgressing).Reason)
	require.Eventually(d.t, func() bool {
		events, err := d.Kube.CoreV1().Events(d.Apps).List(d.t.Context(),
			metav1.ListOptions{FieldSelector: "reason=ChangeNotHeld"})
		require.NoError(d.t, err)
		return len(events.Items) == 1 && strings.Contains(events.Items[0].Message, "nothing held the change")
	}, harness.Patience, harness.Tick, "no event says it")
	var list struct {
		Items []struct{ Rollout rollout.Status }
	}
	require.NoError(d.t, json.Unmarshal([]byte(d.allHistory()), &list))
	require.Len(d.t, list.Items, 1)
	recorded := list.Items[0].Rollout
	require.Equal(d.t, rollout.PhaseFailed, recorded.Phase)
	require.Equal(d.t, why, recorded.Reason)
	require.Equal(d.t, d.rollout.NewestImage(), recorded.Images["app"])
	metrics := string(d.Call(http.MethodGet, "/metrics", "").Body)
	require.NotContains(d.t, metrics, "slipway_changes_not_held_total 0\n")
	require.Contains(d.t, metrics, "slipway_changes_not_held_total ")
}
