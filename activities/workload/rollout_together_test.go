package workload_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/test/observer"
)

// beginsMoving claims a workload, and announces the Move that follows the claim.
func (r *releasing) beginsMoving(first rollout.MoveRequest) rollout.BeginResult {
	r.b.t.Helper()
	begin := rollout.BeginRequest{Subject: r.subject(), Strategy: r.strategy(), Change: r.change}
	begun, err := r.b.acts.BeginMoving(r.b.t.Context(), begin, func(rollout.BeginResult) *rollout.MoveRequest {
		return &first
	})
	require.NoError(r.b.t, err)
	return begun
}

// A Deployment is written once where its own controller rolls out to the end from the first step: the claim, the saved
// state, and the new template. Where the gate is borrowed, the claim is taken before.
func TestBeginMoving_ClaimsAndMovesInOneWrite(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		reason, name string
		native       bool
	}{
		{"its own controller rolls out to the end", "native", true},
		{"behind the gate", "gated", false},
	} {
		b.deployment(c.name, 5, own("1", "0"))
		b.settled(observer.Name{Kind: "Deployment", Name: c.name}, 5)
		r := b.release(c.name, strategy.StylePartition, "x:second")
		before := b.state(r.name)
		first := r.moveRequest(1, "100%")
		first.Native, first.Settle, first.Predicted = c.native, false, r.preflight().Predicted
		held := b.watchFloor(c.name, 4, 5)

		written := b.realWrites()
		r.begun = r.beginsMoving(first)
		require.Equal(t, written+1, b.realWrites(), c.reason)
		require.Equal(t, c.native, r.begun.TemplateWritten, c.reason)
		require.Equal(t, c.native, strings.Contains(b.state(r.name).spec, "x:second"), c.reason)
		require.Equal(t, c.native, r.begun.Generation > before.generation, "%s: after its write", c.reason)
		require.Equal(t, c.native, r.beginsMoving(first).TemplateWritten,
			"%s: a retry after a lost result finds it done", c.reason)
		require.Equal(t, written+1, b.realWrites(), c.reason)

		require.Equal(t, int32(5), r.moved(first).Updated, c.reason)
		r.finish(rollout.FinishResumeAndRelease, rollout.SideNew)
		held()
		b.requireFinalised(before, c.name, "x:second", 5)
	}
}

// If the cluster refuses the Move's part of the write, the Move fails: the claim is taken without it, so that the
// rollout can be retried or finalised.
func TestBeginMoving_ClaimsAlone_WhenMoveRefused(t *testing.T) {
	b := newBench(t)
	b.deployment("order", 2, nil)
	b.settled(order, 2)
	r := b.release("order", strategy.StylePartition, "x:second")
	first := r.moveRequest(1, "100%")
	first.Native, first.Settle, first.Predicted = true, false, r.preflight().Predicted
	before := b.state(r.name)
	b.forbid("object.spec.replicas > 0 && !object.spec.template.spec.containers.exists(c, c.image == 'x:second')",
		"this image is forbidden")

	r.begun = r.beginsMoving(first)
	require.False(t, r.begun.TemplateWritten)
	require.Equal(t, before.spec, b.state(r.name).spec)
	require.Contains(t, r.moveFails(first, failure.Refused).Message(), "this image is forbidden")
	r.finish(rollout.FinishResumeAndRelease, rollout.SideStable)
	b.requireFinalised(before, "order", "x:good", 2)
}

// A field that another client sets between the read and the write is saved as the workload's own, and is there again at
// the end.
func TestBeginMoving_RetriesWhenWorkloadChanged(t *testing.T) {
	b := newBench(t)
	b.deployment("app", 2, own("1", "0"))
	b.settled(observer.Name{Kind: "Deployment", Name: "app"}, 2)
	r := b.release("app", strategy.StylePartition, "x:second")
	first := r.moveRequest(1, "100%")
	first.Native, first.Settle, first.Predicted = true, false, r.preflight().Predicted
	looks := 0
	var err error
	r.begun, err = b.acts.BeginMoving(t.Context(),
		rollout.BeginRequest{Subject: r.subject(), Strategy: r.strategy(), Change: r.change},
		func(rollout.BeginResult) *rollout.MoveRequest {
			if looks++; looks == 1 {
				_, err := b.kube.AppsV1().Deployments(b.namespace).Patch(t.Context(), "app", types.MergePatchType,
					[]byte(`{"spec":{"minReadySeconds":1}}`), metav1.PatchOptions{})
				require.NoError(t, err)
			}
			return &first
		})
	require.NoError(t, err)
	require.True(t, r.begun.TemplateWritten)
	require.Greater(t, looks, 1, "it is read again")
	r.moved(first)
	r.finish(rollout.FinishResumeAndRelease, rollout.SideNew)
	d, err := b.kube.AppsV1().Deployments(b.namespace).Get(t.Context(), "app", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, int32(1), d.Spec.MinReadySeconds)
	require.Equal(t, "x:second", d.Spec.Template.Spec.Containers[0].Image)
}

// undo does what kubectl rollout undo does: the template and the annotations of an earlier ReplicaSet replace the
// Deployment's own; labels stay.
func (b *bench) undo(name, image string) {
	b.t.Helper()
	ctx := b.t.Context()
	sets, err := b.kube.AppsV1().ReplicaSets(b.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
	require.NoError(b.t, err)
	i := slices.IndexFunc(sets.Items, func(r appsv1.ReplicaSet) bool {
		return r.Spec.Template.Spec.Containers[0].Image == image
	})
	require.GreaterOrEqual(b.t, i, 0)
	template := sets.Items[i].Spec.Template
	delete(template.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	body, err := json.Marshal([]jsonpatch.Op{jsonpatch.Replace("/spec/template", template),
		jsonpatch.Replace("/metadata/annotations", sets.Items[i].Annotations)})
	require.NoError(b.t, err)
	_, err = b.kube.AppsV1().Deployments(b.namespace).Patch(ctx, name, types.JSONPatchType, body, metav1.PatchOptions{})
	require.NoError(b.t, err)
}

// A user undoes a rollout that the workload's own controller is completing. That restores the claim of the release
// before, which has ended, and its saved state: both are ignored. The rollout reports that it has lost its claim, and
// the next one begins from what runs, not from what the one before began with.
func TestUndoAfterBeginMoving_IsIgnored(t *testing.T) {
	b := newBench(t)
	b.deployment("app", 2, own("1", "0"))
	b.settled(observer.Name{Kind: "Deployment", Name: "app"}, 2)
	before := b.state(observer.Name{Kind: "Deployment", Name: "app"})
	release := func(image, run string) (*releasing, rollout.MoveRequest) {
		r := b.release("app", strategy.StylePartition, image)
		r.run = run
		first := r.moveRequest(1, "100%")
		first.Native, first.Settle, first.Predicted = true, false, r.preflight().Predicted
		return r, first
	}
	r, first := release("x:second", "first")
	r.begun = r.beginsMoving(first)
	r.moved(first)
	r.finish(rollout.FinishResumeAndRelease, rollout.SideNew)
	b.requireFinalised(before, "app", "x:second", 2)

	r, first = release("x:third", "second")
	r.begun = r.beginsMoving(first)
	require.True(t, r.begun.TemplateWritten)
	b.undo("app", "x:second")
	_ = r.moveFails(first, failure.ClaimLost)

	dead := b.state(r.name).annotations[workload.AnnotationClaimedBy]
	require.Contains(t, dead, "first", "the undo has restored its claim")
	b.reaches("app", map[string]int{"x:second": 2})
	r, first = release("x:fourth", "third")
	begin := rollout.BeginRequest{Subject: r.subject(), Strategy: r.strategy(), Change: r.change}
	begin.TakeOver = dead
	var err error
	r.begun, err = b.acts.BeginMoving(t.Context(), begin, func(rollout.BeginResult) *rollout.MoveRequest {
		return &first
	})
	require.NoError(t, err)
	require.Nil(t, r.begun.Adopted, "the saved state of the first is obsolete")
	r.moved(first)
	r.finish(rollout.FinishResumeAndRelease, rollout.SideNew)
	b.requireFinalised(before, "app", "x:fourth", 2)
}
