package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/test/harness"
)

// What docs/gitops.md says is tried here with the tools' own libraries.

// ignoredInPlace are the fields that docs/gitops.md has the tools ignore for a Deployment in place.
var ignoredInPlace = []string{"Deployment/spec/template/spec/containers/0/image", "Deployment/spec/strategy", "Deployment/spec/minReadySeconds",
	"Deployment/spec/progressDeadlineSeconds", "Deployment/spec/revisionHistoryLimit", "Service/spec/selector"}

// A tool that ignores them does not disturb a release that rests, whatever image Git has: nothing is restored, nobody is waited for but the approvers, the split
// is exact. Argo CD then calls the Deployment suspended, and Flux waits for it. At the end the next sync is quiet, with the old image in Git and with the new.
func TestLongGitopsIgnoring(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e := harness.Shared(t)
	for _, tool := range []harness.Tool{harness.Flux, harness.ArgoClientSide, harness.ArgoServerSide} {
		t.Run(tool.Title, func(t *testing.T) {
			t.Parallel()
			resting, over := "Suspended", "Healthy"
			if tool.Title == harness.Flux.Title {
				resting, over = "InProgress", "Current"
			}
			a := amongNeighbours(t, e, gitopsCells[0], tool.Ignoring(ignoredInPlace...), nil)
			a.StartRollout(a.rollout)
			for step := 1; a.waits(step); step++ {
				a.rest(step)
				for range 3 {
					a.neighbour.Sync(t)
				}
				require.Contains(t, a.neighbour.Health(t, "Deployment/order"), resting)
				a.approve(step)
			}
			status := a.endsNew()
			for _, entry := range status.History {
				require.NotEqual(t, rollout.Verb("restored"), entry.Verb, entry.Message)
			}
			require.Empty(t, a.neighbour.Diff(t), "the old image is still in Git")
			a.declare(a.rollout.NewestImage())
			require.Empty(t, a.neighbour.Diff(t), "the new one is")
			require.Contains(t, a.neighbour.Health(t, "Deployment/order"), over)
		})
	}
}

// Flux leaves an object alone that says so.
func TestLongGitopsFluxLeavesAlone(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e := harness.Shared(t)
	for _, annotation := range []string{"kustomize.toolkit.fluxcd.io/ssa=IfNotPresent", "kustomize.toolkit.fluxcd.io/reconcile=disabled"} {
		t.Run(annotation, func(t *testing.T) {
			t.Parallel()
			a := amongNeighbours(t, e, gitopsCells[0], harness.Flux, nil)
			var alone []*unstructured.Unstructured
			for _, o := range harness.WithImage(a.manifest, "registry.test/order:v9") {
				alone = append(alone, annotated(o, annotation))
			}
			a.neighbour.Declare(t, alone)
			before := a.object().GetGeneration()
			a.neighbour.Sync(t)
			require.Equal(t, before, a.object().GetGeneration())
		})
	}
}

func annotated(o *unstructured.Unstructured, annotation string) *unstructured.Unstructured {
	key, value, _ := strings.Cut(annotation, "=")
	o = o.DeepCopy()
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	o.SetAnnotations(annotations)
	return o
}

// Git gets a third image while a release rests: the release waits, and names the image and the tool. While the tool is suspended, a new release of that
// image supersedes the first; or a stop ends it, and the tool's next sync has Kubernetes roll the image out.
func TestLongGitopsThirdImage(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e := harness.Shared(t)
	const third = "registry.test/order:v3"
	drifted := func(t *testing.T) *among {
		a := amongNeighbours(t, e, gitopsCells[0], harness.Flux, nil)
		a.StartRollout(a.rollout)
		a.rest(1)
		a.watch.Neighbour(t)
		a.declare(third)
		a.neighbour.Sync(t)
		status := a.WaitRollout(a.rollout.Name, "drift", func(s rollout.Status) bool { return s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitDrift })
		t.Log(status.Reason)
		for _, part := range []string{"image of container app (" + third + ", was registry.test/order:v2)", "by kustomize-controller", "retry", "stop"} {
			require.Contains(t, status.Reason, part)
		}
		return a
	}
	t.Run("Superseded", func(t *testing.T) {
		t.Parallel()
		a := drifted(t)
		a.neighbour.Pause()
		a.rollout.Image, a.rollout.More = third, map[string]any{"supersede": true}
		a.StartRollout(a.rollout)
		a.WaitRollout(a.rollout.Name, "the newest", func(s rollout.Status) bool { return s.Images["app"] == third })
		a.approveAll(1)
		a.endsNew()
		require.Empty(t, a.neighbour.Diff(t), "the next sync is quiet")
	})
	t.Run("Stopped", func(t *testing.T) {
		t.Parallel()
		a := drifted(t)
		a.neighbour.Pause()
		a.MustVerb(a.rollout.Name, "stop", `{"to":"stable"}`)
		a.WaitPhase(a.rollout.Name, rollout.PhaseRolledBack)
		a.neighbour.Sync(t)
		a.watch.WaitStill(t)
		require.Empty(t, a.neighbour.Diff(t))
		a.watch.RequirePromises(t)
	})
}
