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

// stepState is a state of a step in which another client changes something.
type stepState struct {
	// prepare changes the manifest and the rollout before the start; may be nil.
	prepare func(object map[string]any, r *harness.Rollout)
	// reach brings the release into the state.
	reach func(r *release)
	// podsMoving is true when pods are being replaced; the release then pauses or ends by itself.
	podsMoving bool
	// rollingBack and promoting are true when the release is already ending: at the stable version or at the new one.
	rollingBack, promoting bool
	// fits reports whether the state exists for a cell; nil means for all cells.
	fits func(c cell) bool
}

var stepStates = map[string]stepState{
	"AtApproval": {reach: func(r *release) { r.approve(1); r.waitPaused(2) }},
	"TimedPause": {
		prepare: func(_ map[string]any, r *harness.Rollout) {
			r.Strategy.Steps[1] = harness.TimedStep(r.Strategy.Steps[1], time.Hour)
		},
		reach: func(r *release) { r.approve(1); r.waitFor(rollout.WaitTimer) },
	},
	"Paused": {reach: func(r *release) {
		r.approve(1)
		r.waitPaused(2)
		r.sendVerb("pause", "")
		r.waitFor(rollout.WaitResume)
	}},
	"PausedMidStep": {prepare: func(object map[string]any, _ *harness.Rollout) {
		slowPods(object, 3*time.Second)
	}, reach: func(r *release) {
		r.waitPodsMoving()
		r.MustVerb(r.rollout.Name, "pause", "")
		r.waitFor(rollout.WaitResume)
	}},
	// The step fails at its deadline: the quota allows no further pod, or, where a new pod replaces an old one, the new
	// pod never becomes ready.
	"Failed": {
		prepare: func(_ map[string]any, r *harness.Rollout) {
			r.Policy = map[string]any{"stepDeadlineSeconds": 8}
			if secondStepAddsNoPods(*r) {
				r.Image = "registry.test/order:bad"
			}
		},
		reach: func(r *release) {
			if !secondStepAddsNoPods(r.rollout) {
				r.waitPaused(1)
				r.limitPods(r.ReadyPods(r.rollout.Name))
				r.approve(1)
			}
			r.WaitRollout(r.rollout.Name, "failed", func(s rollout.Status) bool {
				return s.Phase == rollout.PhaseFailed
			})
		},
	},
	"Moving": {prepare: func(object map[string]any, _ *harness.Rollout) {
		slowPods(object, 3*time.Second)
	}, podsMoving: true,
		reach: func(r *release) { r.waitPodsMoving() }},
	"Finishing": {prepare: func(object map[string]any, _ *harness.Rollout) {
		slowPods(object, 2*time.Second)
	}, podsMoving: true, promoting: true,
		reach: func(r *release) {
			last := len(r.rollout.Strategy.Steps)
			r.approve(1)
			r.approve(2)
			if r.needsApproval(last) {
				r.approve(last)
			}
			r.WaitRollout(r.rollout.Name, "finishing", func(s rollout.Status) bool {
				return s.FinalisingStep != "" || s.Phase.Final() || !r.needsApproval(last) &&
					s.CurrentStepState == rollout.StateUpgrade && s.CurrentStepIndex == last
			})
		}},
	"RollingBack": {prepare: func(object map[string]any, _ *harness.Rollout) {
		slowPods(object, 2*time.Second)
	}, podsMoving: true, rollingBack: true,
		reach: func(r *release) {
			r.approve(1)
			r.waitPaused(2)
			r.sendVerb("rollback", "")
			r.WaitRollout(r.rollout.Name, "rolling back", func(s rollout.Status) bool {
				return s.FinalisingStep != "" || s.Phase.Final()
			})
		}},
}

// secondStepAddsNoPods reports whether the second step adds no pods to the existing ones. A quota cannot make it fail:
// the first step fails on a bad image instead.
func secondStepAddsNoPods(r harness.Rollout) bool {
	return r.Strategy.Style == strategy.StylePartition || r.Strategy.Steps[0].Replicas == r.Strategy.Steps[1].Replicas
}

// waitFor waits until the rollout reports that it waits for kind.
func (r *release) waitFor(kind rollout.WaitKind) {
	r.t.Helper()
	r.WaitRollout(r.rollout.Name, string(kind), func(s rollout.Status) bool {
		return s.WaitingFor != nil && s.WaitingFor.Kind == kind
	})
}

// waitPodsMoving waits until pods are being replaced: in the second step if it moves any pods, otherwise in the first.
func (r *release) waitPodsMoving() {
	r.t.Helper()
	if r.rollout.Strategy.Steps[0].Replicas == r.rollout.Strategy.Steps[1].Replicas {
		r.waitUpgrading(1)
		return
	}
	r.approve(1)
	r.waitUpgrading(2)
}

// waitUpgrading waits until the step is replacing pods.
func (r *release) waitUpgrading(step int) {
	r.t.Helper()
	r.WaitRollout(r.rollout.Name, "the step to replace pods", func(s rollout.Status) bool {
		return s.CurrentStepIndex == step && s.CurrentStepState == rollout.StateUpgrade
	})
}

// limitPods sets a quota of at most that many pods on the namespace of the workloads.
func (r *release) limitPods(most int) {
	r.t.Helper()
	_, err := r.Kube.CoreV1().ResourceQuotas(r.Apps).Create(context.Background(),
		&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "most"},
			Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(
				int64(most),
				resource.DecimalSI)}}},
		metav1.CreateOptions{})
	require.NoError(r.t, err)
}
