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
	"slipway.io/slipway/release/workloadops"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/observer"
)

// At rest the fields that decide how pods move are the workload's own, and it is paused: what a neighbour writes into them moves no pod, the split holds
// exactly, and what differs is put back. The first row is what a GitOps controller does that takes away a field which its manifest does not declare.
func TestRolloutAtRestAmongNeighbours(t *testing.T) {
	t.Parallel()
	editAtRest(t, map[string]string{"MinReadySecondsTakenAway": `{"spec":{"minReadySeconds":null}}`})
	moveAtRest(t, map[string]moving{"Resumed": {`{"spec":{"paused":null}}`, harness.Nginx}})
}

// The other fields.
func TestLongRolloutAtRestAmongNeighbours(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	editAtRest(t, map[string]string{
		"MinReadySecondsOfTheirs": `{"spec":{"minReadySeconds":5,"progressDeadlineSeconds":700}}`,
		"TheirLimit":              `{"spec":{"strategy":{"rollingUpdate":{"maxUnavailable":"60%"}}}}`,
		"TheirHistory":            `{"spec":{"revisionHistoryLimit":1}}`,
	})
	moveAtRest(t, map[string]moving{"TheirSurge": {`{"spec":{"strategy":{"rollingUpdate":{"maxSurge":1}}}}`, harness.Nginx}})
}

func editAtRest(t *testing.T, patches map[string]string) {
	t.Helper()
	e := harness.Shared(t)
	for name, patch := range patches {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := begin(t, e, deploymentBy(strategy.StylePartition, harness.Nginx), nil)
			r.rest(1)
			left := r.spec()
			r.PatchObject(r.rollout.Kind, r.rollout.Name, patch)
			require.Eventually(t, func() bool { return reflect.DeepEqual(left, r.spec()) }, harness.Patience, harness.Tick, "it is put back")
			r.watch.WaitStill(t)
			r.watch.RequirePromises(t)
			r.approveAll(1)
			r.endsNew()
		})
	}
}

// Of a step's pods that are still coming none is taken for more than it is: who takes away what holds the others moves none of them. Behind that field alone
// as many of the others went at once as there were new ones.
func TestRolloutAmongNeighboursWhilePodsCome(t *testing.T) {
	t.Parallel()
	r := begin(t, harness.Shared(t), deploymentBy(strategy.StylePartition, harness.Nginx), func(object map[string]any, _ *harness.Rollout) {
		slowPods(object, 4*time.Second)
	})
	r.approve(1)
	r.watch.WaitCount(t, observer.Count{Stable: 2, StableReady: 2, New: 2, NewReady: 1})
	require.Eventually(t, func() bool { return r.spec()["paused"] == true }, harness.Patience, harness.Tick, "it is paused while they come")
	r.watch.SomebodyElse(t)
	r.PatchObject(r.rollout.Kind, r.rollout.Name, `{"spec":{"minReadySeconds":null}}`)
	r.rest(2)
	r.watch.RequirePromises(t)
	r.approveAll(2)
	r.endsNew()
}

// kubectl's undo behind a release's end puts the annotations of an old ReplicaSet in the place of the Deployment's, our claim among them. It is that of a release
// which is over: the next one takes it over, and begins with what runs.
func TestRolloutAfterAnUndo(t *testing.T) {
	t.Parallel()
	r := begin(t, harness.Shared(t), deploymentBy(strategy.StylePartition, harness.NoProvider), nil)
	r.approveAll(1)
	r.endsNew()
	r.watch.SomebodyElse(t)
	r.TryKubectl("-n", r.Apps, "rollout", "undo", "deployment/"+r.rollout.Name)
	require.Contains(t, r.object().GetAnnotations(), workloadops.AnnotationClaimedBy, "what the undo brings back")
	r.watch.WaitStill(t)
	r.StartRollout(r.rollout)
	r.rest(1)
	r.verb("rollback", "")
	r.WaitRollout(r.rollout.Name, "rolled back", func(s rollout.Status) bool { return s.Phase == rollout.PhaseRolledBack })
	r.watch.RequireNothingOfOurs(t)
}

// moving is an edit that moves pods.
type moving struct {
	patch    string
	provider harness.Provider
}

// moveAtRest: pods that their surge brings up, and those that move while it is not paused, are theirs. The workload's own limits hold, and it comes to rest again.
func moveAtRest(t *testing.T, edits map[string]moving) {
	t.Helper()
	e := harness.Shared(t)
	for name, c := range edits {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := begin(t, e, deploymentBy(strategy.StylePartition, c.provider), nil)
			r.approve(1)
			r.rest(2)
			left := r.spec()
			r.watch.SomebodyElse(t)
			r.PatchObject(r.rollout.Kind, r.rollout.Name, c.patch)
			r.waitRecorded("restored", "somebody else has changed spec.")
			require.Eventually(t, func() bool { return reflect.DeepEqual(left, r.spec()) }, harness.Patience, harness.Tick, "it is put back")
			r.watch.WaitStill(t)
			r.watch.RequirePromises(t)
			r.verb("rollback", "")
			r.endsStable()
		})
	}
}

// waitRecorded returns when the history has an entry of a verb whose message says this.
func (r *release) waitRecorded(verb rollout.Verb, message string) rollout.Status {
	r.t.Helper()
	return r.WaitRollout(r.rollout.Name, "the record of "+message, func(s rollout.Status) bool {
		return slices.ContainsFunc(s.History, func(e audit.Entry) bool { return e.Verb == audit.Verb(verb) && strings.Contains(e.Message, message) })
	})
}

// spec is the workload's spec as it stands.
func (r *release) spec() map[string]any {
	r.t.Helper()
	spec, _, err := unstructured.NestedMap(r.object().Object, "spec")
	require.NoError(r.t, err)
	return spec
}

// Nothing that alerts look at holds at a rest: every pod counts as available, and the Deployment says so.
func TestRolloutAtRestRaisesNoAlert(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	r := begin(t, e, deploymentBy(strategy.StylePartition, harness.NoProvider), nil)
	for step := 1; r.waits(step); step++ {
		r.rest(step)
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
	r.endsNew()
}
