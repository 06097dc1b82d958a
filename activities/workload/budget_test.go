package workload_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/activities/workload"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/observer"
)

// addBudget makes a PodDisruptionBudget with this minimum of pods for a workload, and returns once its controller has
// counted them.
func (b *bench) addBudget(name string, pods int) {
	b.t.Helper()
	least := intstr.FromInt(pods)
	budgets := b.kube.PolicyV1().PodDisruptionBudgets(b.namespace)
	_, err := budgets.Create(b.t.Context(), &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name +
		"-budget"}, Spec: policyv1.PodDisruptionBudgetSpec{
		MinAvailable: &least, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}}},
		metav1.CreateOptions{})
	require.NoError(b.t, err)
	ready := 0
	for _, p := range b.pods(name) {
		if isReady(p) {
			ready++
		}
	}
	require.Eventually(b.t, func() bool {
		found, err := budgets.Get(b.t.Context(), name+"-budget", metav1.GetOptions{})
		return err == nil && found.Status.ObservedGeneration > 0 && int(found.Status.CurrentHealthy) == ready
	}, patience, tick, "the budget was not counted")
}

// deleteBudget deletes the budget.
func (b *bench) deleteBudget(name string) {
	b.t.Helper()
	require.NoError(b.t, b.kube.PolicyV1().PodDisruptionBudgets(b.namespace).Delete(context.Background(),
		name+"-budget", metav1.DeleteOptions{}))
}

func (b *bench) uids(name string) map[string]bool {
	uids := map[string]bool{}
	for _, p := range b.pods(name) {
		uids[string(p.UID)] = true
	}
	return uids
}

var setOfTest = observer.Name{Kind: "StatefulSet", Name: "order"}

// Ready pods are evicted. While a budget forbids that, they stay and the reason names the budget; the restart continues
// when the budget allows it.
func TestDisruptionBudget_DelaysRestart(t *testing.T) {
	b := newBench(t)
	b.use(b.config, workload.Options{ListenFor: 3 * time.Second})
	b.statefulSet("order", 3, burst)
	b.settled(setOfTest, 3)
	b.addBudget("order", 3)
	before := b.uids("order")
	req := b.request(setOfTest, plan.Restart, plan.Parallel)
	checked, err := b.acts.Preflight(t.Context(), operation.PreflightRequest{Requests: []operation.Request{req}})
	require.NoError(t, err)
	require.Empty(t, checked.Refusals)
	require.Len(t, checked.Warnings, 1)
	require.Contains(t, checked.Warnings[0].Reason,
		"PodDisruptionBudget order-budget lets none of its pods go now: RESTART PARALLEL waits until it does")

	d := b.driver(req)
	_, err = d.attempt()
	waits := requireNotReady(t, err)
	require.Contains(t, waits.Message(), "3 of 3 pods are ready, 3 pods still to go: PodDisruptionBudget "+
		"order-budget doesn't allow it now")
	require.Equal(t, before, b.uids("order"), "no pod was removed")
	b.deleteBudget("order")
	result, err := d.run()
	require.NoError(t, err)
	require.Equal(t, "restarted: 3 of 3 pods are ready", result.Message)
	for uid := range b.uids("order") {
		require.NotContains(t, before, uid)
	}
}

// A budget that allows one disruption at a time makes PARALLEL replace one pod at a time.
func TestDisruptionBudget_PacesParallelRestart(t *testing.T) {
	b := newBench(t)
	b.statefulSet("order", 3, burst)
	b.settled(setOfTest, 3)
	b.addBudget("order", 2)
	stop := b.watchFloor("order", 2, 3)
	require.Equal(t, "restarted: 3 of 3 pods are ready",
		b.must(b.request(setOfTest, plan.Restart, plan.Parallel)).Message)
	stop()
}

// The failure names the budget, and the borrowed settings are restored.
func TestDisruptionBudget_IsNamedAtDeadline(t *testing.T) {
	b := newBench(t)
	b.statefulSet("order", 2, burst)
	b.settled(setOfTest, 2)
	b.addBudget("order", 2)
	before := b.state(setOfTest)
	req := b.request(setOfTest, plan.Restart, plan.Parallel)
	req.DeadlineSeconds = 3
	app := b.fails(req, failure.WorkloadFailed)
	require.Contains(t, app.Message(), "after 3 s: PodDisruptionBudget order-budget doesn't allow it now")
	b.requireTidy(setOfTest, before)
}

// An unready pod is deleted despite the budget.
func TestDisruptionBudget_IgnoresUnreadyPods(t *testing.T) {
	b := newBench(t)
	b.statefulSet("order", 2, func(s *appsv1.StatefulSet) {
		burst(s)
		s.Spec.Template.Spec.Containers[0].Image = "x:never-ready"
	})
	require.Eventually(t, func() bool { return len(b.pods("order")) == 2 }, patience, tick)
	b.addBudget("order", 2)
	before := b.uids("order")
	req := b.request(setOfTest, plan.Restart, plan.Parallel)
	req.DeadlineSeconds = 5
	app := b.fails(req, failure.WorkloadFailed)
	require.NotContains(t, app.Message(), "PodDisruptionBudget")
	for uid := range b.uids("order") {
		require.NotContains(t, before, uid, "each was replaced")
	}
}

// A DaemonSet's rollout evicts its pods one by one, too.
func TestDisruptionBudget_DelaysRollout(t *testing.T) {
	b := newBench(t)
	b.use(b.config, workload.Options{ListenFor: 3 * time.Second})
	b.daemonSet("order", nil)
	b.settled(observer.Name{Kind: "DaemonSet", Name: "order"}, 4)
	b.addBudget("order", 4)
	r := b.release("order", strategy.StylePartition, "x:new")
	r.name.Kind = "DaemonSet"
	found := r.preflight()
	require.Empty(t, found.Refusals)
	require.Contains(t, found.Notices, "DaemonSet "+b.namespace+
		"/order: PodDisruptionBudget order-budget lets none of its pods go now: each step "+
		"waits until it does, and fails at its deadline")
	r.begin()
	before := b.uids("order")
	req := r.moveRequest(1, "50%")
	stuck := req
	stuck.ReportStuck = true
	require.Contains(t, r.moved(stuck).Stuck, "PodDisruptionBudget order-budget doesn't allow it now",
		"the workflow reports it at once")
	waits := requireNotReady(t, r.attempt(activityMove, req, &rollout.MoveResult{}))
	require.Contains(t, waits.Message(), "step 1: 0 of 2 new pods are ready: PodDisruptionBudget order-budget "+
		"doesn't allow it now")
	require.Equal(t, before, b.uids("order"))
	expired := req
	expired.DeadlineSeconds = 2
	require.Contains(t, r.moveFails(expired, failure.WorkloadFailed).Message(),
		"after 2 s: PodDisruptionBudget order-budget doesn't allow it now")
	b.deleteBudget("order")
	r.moved(req)
	b.reaches("order", map[string]int{"x:good": 2, "x:new": 2})
}
