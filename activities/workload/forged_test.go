package workload_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// A user who may edit a workload can replace what a release has saved on it. In these tests the activities find such
// values: they write no field that is not borrowed, and the failure names it.

func TestForgedOriginal_OfOperationIsRefused(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 2, nil)
	b.settled(order, 2)
	b.abandon(b.request(order, plan.Restart, plan.Parallel), order, func(w workloadState) bool {
		return w.marker == "t0/1"
	})
	before := b.state(order)
	b.merge(order, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, workload.AnnotationOriginal,
		`{"operation":"RESTART","begun":true,"borrowed":[{"path":"/spec/template/spec/serviceAccountName","own":"admin","lent":null}]}`))
	req := b.request(order, plan.Restart, plan.Sequential)
	req.TakeOver = dead
	app := b.fails(req, failure.Refused)
	require.Contains(t, app.Message(), "another client added /spec/template/spec/serviceAccountName, which no "+
		"operation borrows")
	require.Equal(t, before.spec, b.state(order).spec)
}

func TestForgedOriginal_OfRolloutIsRefused(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 2, nil)
	b.settled(order, 2)
	r := b.release("order", strategy.StylePartition, "x:new")
	r.begin()
	saved := b.state(order).annotations[workload.AnnotationRollout]
	forge := func(settings string) {
		b.merge(order, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, workload.AnnotationRollout,
			`{"name":"order","style":"partition","stable":"s","replicas":2,"settings":{`+settings+`}}`))
	}
	forge(`"/spec/template/spec/serviceAccountName":"admin"`)
	before := b.state(order)
	said := "another client has added /spec/template/spec/serviceAccountName, which no rollout of a Deployment borrows"
	require.Contains(t, r.moveFails(r.moveRequest(1, "50%"), failure.Refused).Message(), said)
	for _, action := range []rollout.FinishAction{rollout.FinishResume, rollout.FinishRelease,
		rollout.FinishResumeAndRelease} {
		err := r.call(activityFinish, r.finishRequest(action, rollout.SideStable), &rollout.MoveResult{})
		require.Contains(t, requireFailure(t, err, failure.Refused).Message(), said, action)
	}
	require.Equal(t, before.spec, b.state(order).spec)
	b.merge(order, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, workload.AnnotationRollout, saved))
	r.finish(rollout.FinishResumeAndRelease, rollout.SideStable)
	require.NotContains(t, b.state(order).annotations, workload.AnnotationClaimedBy)
}

// A paused rollout restores its borrowed fields when another client changes them, but not fields that were added to its
// annotation.
func TestForgedPauseState_IsIgnored(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 4, own("25%", "25%"))
	b.settled(order, 4)
	r := b.release("order", strategy.StylePartition, "x:new")
	r.begin()
	r.move(1, "50%")
	w := b.state(order)
	forged := w.annotations[rollout.AnnotationSettled]
	require.Contains(t, forged, `"settings":{`)
	forged = strings.Replace(forged, `"settings":{`, `"settings":{"/spec/template/spec/serviceAccountName":"admin",`, 1)
	b.merge(order, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, rollout.AnnotationSettled, forged))
	req := r.moveRequest(1, "50%")
	req.Inspect = true
	r.moved(req)
	require.Equal(t, w.spec, b.state(order).spec)
	r.finish(rollout.FinishResumeAndRelease, rollout.SideStable)
}

func TestForgedOriginal_OfAutoscalerIsRefused(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 2, nil)
	b.settled(order, 2)
	least := int32(1)
	scalers := b.kube.AutoscalingV2().HorizontalPodAutoscalers(b.namespace)
	_, err := scalers.Create(t.Context(),
		&autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: "order"},
			Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
				MinReplicas: &least, MaxReplicas: 5,
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment",
					Name: "order"}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	r := b.release("order", strategy.StyleBlueGreen, "x:new")
	r.begin()
	r.move(1, "100%")
	scaler, err := scalers.Get(t.Context(), "order", metav1.GetOptions{})
	require.NoError(t, err)
	saved := scaler.Annotations[rollout.AnnotationRestore]
	require.NotEmpty(t, saved)
	set := func(patch string) {
		found, err := scalers.Get(t.Context(), "order", metav1.GetOptions{})
		require.NoError(t, err)
		found.Annotations[rollout.AnnotationRestore] = patch
		_, err = scalers.Update(t.Context(), found, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	set(`[{"op":"add","path":"/spec/scaleTargetRef","value":{"kind":"Deployment","name":"other"}}]`)
	err = r.call(activityFinish, r.finishRequest(rollout.FinishResumeAndRelease, rollout.SideStable),
		&rollout.MoveResult{})
	require.Contains(t, requireFailure(t, err, failure.Refused).Message(),
		"operation 1 changes /spec/scaleTargetRef, which no release borrows")
	scaler, err = scalers.Get(t.Context(), "order", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "order", scaler.Spec.ScaleTargetRef.Name)
	set(saved)
	r.finish(rollout.FinishResumeAndRelease, rollout.SideStable)
	scaler, err = scalers.Get(t.Context(), "order", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, int32(5), scaler.Spec.MaxReplicas)
}
