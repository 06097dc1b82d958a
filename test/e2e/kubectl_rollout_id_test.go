package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/release/kruise"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// A new rollout-id alone is a release, too: it goes through the steps with their approvals, each of which gives its pods
// the ID and their batch number. No pod is replaced, and no Service or Ingress is made. A new pod template replaces it
// at any step.
func TestLongKubectlRolloutIDChange_WalksSteps_WithoutReplacing(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e, g := harness.StartGuarded(t)
	for _, c := range []cell{deploymentCell(strategy.StylePartition, harness.Nginx),
		deploymentCell(strategy.StyleCanary, harness.NoProvider),
		deploymentCell(strategy.StyleBlueGreen, harness.NoProvider),
		{harness.StatefulSet, strategy.StylePartition, harness.NoProvider},
		{harness.CloneSet, strategy.StylePartition, harness.NoProvider}} {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			d := &declared{release: prepareUnobserved(t, e, c, nil), guard: g}
			g.EnforceOn(t, d.Apps)
			d.create(d.document(), "owner")
			d.waitObject("Healthy", func(r *v1beta1.Rollout) bool { return r.Status.Phase == v1beta1.PhaseHealthy })
			d.waitGate()
			before := d.PodUIDs(d.rollout.Name)
			d.setRolloutID("one")
			d.walkNumbering(c, before)
			r := d.waitEnd(true)
			require.Equal(t, "one", commonStatus(r).ObservedRolloutID)
			require.Equal(t, commonStatus(r).StableRevision, revisionOf(r), "the revision is the stable one")
			require.Equal(t, before, d.PodUIDs(d.rollout.Name), "no pod is replaced")
			require.Len(t, d.withRolloutID("one"), len(before), "every pod has the ID")
			require.Empty(t, d.claim())

			d.setRolloutID("two")
			numbering := d.waitStep(1).Status.Slipway.Release
			require.Equal(t, before, d.PodUIDs(d.rollout.Name))
			d.setImage("alice", d.rollout.NewestImage())
			d.waitObject("at step 1 of the new version", func(r *v1beta1.Rollout) bool {
				return r.Status.Slipway.Release != numbering && commonStatus(r).CurrentStepState == "StepPaused"
			})
			require.Positive(t, d.podsOf(d.rollout.NewestImage()), "the new version has pods")
			require.NotEqual(t, before, d.PodUIDs(d.rollout.Name))
		})
	}
}

// walkNumbering approves the steps of a release that only numbers pods. before are the workload's pods.
func (d *declared) walkNumbering(c cell, before map[string]string) {
	d.t.Helper()
	steps, numbered := c.steps(), int32(0)
	batches := map[string]int{}
	for i, step := range steps {
		if i == len(steps)-1 && c.style != strategy.StyleBlueGreen {
			return // a last step of 100 % does not wait
		}
		r := d.waitStep(i + 1)
		if target := strategy.Target(c.style, step.Replicas, harness.SubjectSize); target > numbered {
			batches[fmt.Sprint(i+1)], numbered = int(target-numbered), target
		}
		require.Equal(d.t, batches, d.batches(r), "step %d", i+1)
		require.Equal(d.t, before, d.PodUIDs(d.rollout.Name), "step %d replaces no pod", i+1)
		require.Nil(d.t, d.getObject(services, d.rollout.Name+strategy.CanarySuffix), "no traffic is moved")
		require.Nil(d.t, d.getObject(deployments, d.rollout.Name+strategy.CanarySuffix), "there is no extra workload")
		require.Equal(d.t, rollout.WaitApproval, d.Rollout(d.rollout.Name).WaitingFor.Kind, "HTTP shows it, too")
		d.approveUnwatched(i + 1)
	}
}

// setRolloutID labels the workload with a rollout-id, as a pipeline that numbers its releases does.
func (d *declared) setRolloutID(id string) {
	d.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, kruise.KeyRolloutID, id)
	_, err := d.Dynamic(d.t).Resource(d.rollout.Kind.GVR).Namespace(d.Apps).Patch(context.Background(), d.rollout.Name,
		types.MergePatchType, []byte(patch),
		metav1.PatchOptions{})
	require.NoError(d.t, err)
}

// withRolloutID returns the names of the pods that have a rollout-id.
func (d *declared) withRolloutID(id string) (names []string) {
	d.t.Helper()
	pods, err := d.Kube.CoreV1().Pods(d.Apps).List(context.Background(),
		metav1.ListOptions{LabelSelector: rollout.LabelRolloutID + "=" + id})
	require.NoError(d.t, err)
	for _, p := range pods.Items {
		names = append(names, p.Name)
	}
	return names
}
