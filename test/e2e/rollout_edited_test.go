package e2e

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/observer"
)

// While a step waits, the fields that decide how pods move have the workload's own values, and the workload is paused.
// An edit of them by another client moves no pod, the split stays exact, and the engine restores what differs. The
// first row is a GitOps controller that removes a field which its manifest does not declare.
func TestRolloutRestoresFields_WhenEditedWhileWaiting(t *testing.T) {
	t.Parallel()
	testEditWhileWaiting(t, map[string]string{"MinReadySecondsRemoved": `{"spec":{"minReadySeconds":null}}`})
	testPodMoveWhileWaiting(t, map[string]podMovingEdit{"Resumed": {`{"spec":{"paused":null}}`, harness.Nginx}})
}

// This test covers the other fields.
func TestLongRolloutRestoresFields_WhenEditedWhileWaiting(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	testEditWhileWaiting(t, map[string]string{
		"MinReadySecondsSet":      `{"spec":{"minReadySeconds":5,"progressDeadlineSeconds":700}}`,
		"MaxUnavailableSet":       `{"spec":{"strategy":{"rollingUpdate":{"maxUnavailable":"60%"}}}}`,
		"RevisionHistoryLimitSet": `{"spec":{"revisionHistoryLimit":1}}`,
	})
	testPodMoveWhileWaiting(t,
		map[string]podMovingEdit{"MaxSurgeSet": {`{"spec":{"strategy":{"rollingUpdate":{"maxSurge":1}}}}`,
			harness.Nginx}})
}

func testEditWhileWaiting(t *testing.T, patches map[string]string) {
	t.Helper()
	e := harness.Shared(t)
	for name, patch := range patches {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startRelease(t, e, deploymentCell(strategy.StylePartition, harness.Nginx), nil)
			r.waitPaused(1)
			settled := r.spec()
			r.PatchObject(r.rollout.Kind, r.rollout.Name, patch)
			require.Eventually(t, func() bool {
				return reflect.DeepEqual(settled, r.spec())
			}, harness.Patience, harness.Tick, "the field is restored")
			r.watch.WaitSettled(t)
			r.watch.RequirePromises(t)
			r.approveAll(1)
			r.requirePromoted()
		})
	}
}

// While a step's pods become ready, no further pod moves when another client removes minReadySeconds: the workload is
// also paused. With minReadySeconds as the only hold, as many old pods were removed at once as there were new ones.
func TestRolloutMovesNoFurtherPod_WhenMinReadySecondsRemoved(t *testing.T) {
	t.Parallel()
	r := startRelease(t, harness.Shared(t), deploymentCell(strategy.StylePartition, harness.Nginx),
		func(object map[string]any, _ *harness.Rollout) {
			slowPods(object, 4*time.Second)
		})
	r.approve(1)
	r.watch.WaitCount(t, observer.Count{Stable: 2, StableReady: 2, New: 2, NewReady: 1})
	require.Eventually(t, func() bool {
		return r.spec()["paused"] == true
	}, harness.Patience, harness.Tick, "it is paused until they are ready")
	r.watch.ForeignChange(t)
	r.PatchObject(r.rollout.Kind, r.rollout.Name, `{"spec":{"minReadySeconds":null}}`)
	r.waitPaused(2)
	r.watch.RequirePromises(t)
	r.approveAll(2)
	r.requirePromoted()
}

// kubectl's undo after a release replaces the Deployment's annotations by those of an old ReplicaSet, which include the
// ended release's claim. The next release takes that claim over and begins from the current pods.
func TestRolloutTakesOverStaleClaim_AfterKubectlUndo(t *testing.T) {
	t.Parallel()
	r := startRelease(t, harness.Shared(t), deploymentCell(strategy.StylePartition, harness.NoProvider), nil)
	r.approveAll(1)
	r.requirePromoted()
	r.watch.ForeignChange(t)
	r.TryKubectl("-n", r.Apps, "rollout", "undo", "deployment/"+r.rollout.Name)
	require.Contains(t, r.object().GetAnnotations(), workload.AnnotationClaimedBy, "the undo restores the old claim")
	r.watch.WaitSettled(t)
	r.StartRollout(r.rollout)
	r.waitPaused(1)
	r.sendVerb("rollback", "")
	r.WaitRollout(r.rollout.Name, "rolled back", func(s rollout.Status) bool {
		return s.Phase == rollout.PhaseRolledBack
	})
	r.watch.RequireNoLeftovers(t)
}

// podMovingEdit is an edit that moves pods.
type podMovingEdit struct {
	patch    string
	provider harness.Provider
}

// testPodMoveWhileWaiting: the observer attributes pods of the edit's surge, and pods that move while the workload is
// not paused, to the other client. The workload's own limits hold, and the step settles again.
func testPodMoveWhileWaiting(t *testing.T, edits map[string]podMovingEdit) {
	t.Helper()
	e := harness.Shared(t)
	for name, c := range edits {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startRelease(t, e, deploymentCell(strategy.StylePartition, c.provider), nil)
			r.approve(1)
			r.waitPaused(2)
			settled := r.spec()
			r.watch.ForeignChange(t)
			r.PatchObject(r.rollout.Kind, r.rollout.Name, c.patch)
			r.waitRecorded("restored", "has changed spec.")
			require.Eventually(t, func() bool {
				return reflect.DeepEqual(settled, r.spec())
			}, harness.Patience, harness.Tick, "the field is restored")
			r.watch.WaitSettled(t)
			r.watch.RequirePromises(t)
			r.sendVerb("rollback", "")
			r.requireRolledBack()
		})
	}
}

// waitRecorded waits until the history has an entry of a verb whose message contains this text.
func (r *release) waitRecorded(verb rollout.Verb, message string) rollout.Status {
	r.t.Helper()
	return r.WaitRollout(r.rollout.Name, "the record of "+message, func(s rollout.Status) bool {
		return slices.ContainsFunc(s.History, func(e audit.Entry) bool {
			return e.Verb == audit.Verb(verb) && strings.Contains(e.Message, message)
		})
	})
}

// spec returns the workload's current spec.
func (r *release) spec() map[string]any {
	r.t.Helper()
	spec, _, err := unstructured.NestedMap(r.object().Object, "spec")
	require.NoError(r.t, err)
	return spec
}

// While a step waits, no condition that common alerts check is true: every pod is available, and the Deployment reports
// so.
func TestRolloutRaisesNoAlert_WhileWaiting(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	r := startRelease(t, e, deploymentCell(strategy.StylePartition, harness.NoProvider), nil)
	for step := 1; r.needsApproval(step); step++ {
		r.waitPaused(step)
		d, err := r.Kube.AppsV1().Deployments(r.Apps).Get(context.Background(), r.rollout.Name, metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, d.Generation, d.Status.ObservedGeneration)
		require.Equal(t, *d.Spec.Replicas, d.Status.AvailableReplicas, "KubeDeploymentReplicasMismatch")
		for _, condition := range d.Status.Conditions {
			switch condition.Type {
			case "Available":
				require.Equal(t, "True", string(condition.Status), condition.Message)
			case "Progressing":
				require.NotEqual(t, "False", string(condition.Status), condition.Message)
			}
		}
		r.approve(step)
	}
	r.requirePromoted()
}
