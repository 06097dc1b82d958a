package e2e

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// stepState is a state of a step in which somebody else does something.
type stepState struct {
	// prepare changes what is released; nil: nothing.
	prepare func(object map[string]any, r *harness.Rollout)
	reach   func(r *release)
	// moves says that pods are on their way, and the release comes to rest, or to its end, by itself.
	moves bool
	// back and through say that it is on its way to its end already.
	back, through bool
	// fits says for which cells there is the state; nil: for all.
	fits func(c cell) bool
}

var stepStates = map[string]stepState{
	"AtRest": {reach: func(r *release) { r.approve(1); r.rest(2) }},
	"ByTimer": {
		prepare: func(_ map[string]any, r *harness.Rollout) {
			r.Strategy.Steps[1] = harness.Timed(r.Strategy.Steps[1], time.Hour)
		},
		reach: func(r *release) { r.approve(1); r.waitFor(rollout.WaitTimer) },
	},
	"Paused": {reach: func(r *release) { r.approve(1); r.rest(2); r.verb("pause", ""); r.waitFor(rollout.WaitResume) }},
	"HeldHalfWay": {prepare: func(object map[string]any, _ *harness.Rollout) { slowPods(object, 3*time.Second) }, reach: func(r *release) {
		r.moves()
		r.MustVerb(r.rollout.Name, "pause", "")
		r.waitFor(rollout.WaitResume)
	}},
	// No further pod can be made, and no new one becomes ready where an old one goes for it: the step fails at its deadline.
	"Failed": {
		prepare: func(_ map[string]any, r *harness.Rollout) {
			r.Policy = map[string]any{"stepDeadlineSeconds": 8}
			if failsAtOnce(*r) {
				r.Image = "registry.test/order:bad"
			}
		},
		reach: func(r *release) {
			if !failsAtOnce(r.rollout) {
				r.rest(1)
				r.quota(r.ReadyPods(r.rollout.Name))
				r.approve(1)
			}
			r.WaitRollout(r.rollout.Name, "failed", func(s rollout.Status) bool { return s.Phase == rollout.PhaseFailed })
		},
	},
	"Moving": {prepare: func(object map[string]any, _ *harness.Rollout) { slowPods(object, 3*time.Second) }, moves: true,
		reach: func(r *release) { r.moves() }},
	"Finishing": {prepare: func(object map[string]any, _ *harness.Rollout) { slowPods(object, 2*time.Second) }, moves: true, through: true,
		reach: func(r *release) {
			last := len(r.rollout.Strategy.Steps)
			r.approve(1)
			r.approve(2)
			if r.waits(last) {
				r.approve(last)
			}
			r.WaitRollout(r.rollout.Name, "on its way to the end", func(s rollout.Status) bool {
				return s.FinalisingStep != "" || s.Phase.Final() || !r.waits(last) && s.CurrentStepState == rollout.StateUpgrade && s.CurrentStepIndex == last
			})
		}},
	"RollingBack": {prepare: func(object map[string]any, _ *harness.Rollout) { slowPods(object, 2*time.Second) }, moves: true, back: true,
		reach: func(r *release) {
			r.approve(1)
			r.rest(2)
			r.verb("rollback", "")
			r.WaitRollout(r.rollout.Name, "on its way back", func(s rollout.Status) bool { return s.FinalisingStep != "" || s.Phase.Final() })
		}},
}

// failsAtOnce says whether the first step is the last one for which new pods are made beside the others.
func failsAtOnce(r harness.Rollout) bool {
	return r.Strategy.Style == strategy.StylePartition || r.Strategy.Steps[0].Replicas == r.Strategy.Steps[1].Replicas
}

func (r *release) waitFor(kind rollout.WaitKind) {
	r.t.Helper()
	r.WaitRollout(r.rollout.Name, string(kind), func(s rollout.Status) bool { return s.WaitingFor != nil && s.WaitingFor.Kind == kind })
}

// moves waits until pods are on their way, in the second step if that makes any.
func (r *release) moves() {
	r.t.Helper()
	if r.rollout.Strategy.Steps[0].Replicas == r.rollout.Strategy.Steps[1].Replicas {
		r.underWay(1)
		return
	}
	r.approve(1)
	r.underWay(2)
}

func (r *release) underWay(step int) {
	r.t.Helper()
	r.WaitRollout(r.rollout.Name, "a step under way", func(s rollout.Status) bool {
		return s.CurrentStepIndex == step && s.CurrentStepState == rollout.StateUpgrade
	})
}

// quota has the namespace of the workloads take no pod more than there are.
func (r *release) quota(most int) {
	r.t.Helper()
	_, err := r.Kube.CoreV1().ResourceQuotas(r.Apps).Create(context.Background(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "most"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(int64(most), resource.DecimalSI)}}},
		metav1.CreateOptions{})
	require.NoError(r.t, err)
}
