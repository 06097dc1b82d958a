package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/test/harness"
)

// These tests check the statements of docs/gitops.md with the tools' own libraries.

// ignoredFields are the fields of an in-place Deployment that docs/gitops.md makes the tools ignore.
var ignoredFields = []string{"Deployment/spec/template/spec/containers/0/image", "Deployment/spec/strategy",
	"Deployment/spec/minReadySeconds",
	"Deployment/spec/progressDeadlineSeconds", "Deployment/spec/revisionHistoryLimit", "Service/spec/selector"}

// A tool that ignores these fields does not disturb a waiting release, whatever image Git has: the engine restores
// nothing, waits only for approvals, and the split is exact. Argo CD then reports the Deployment as suspended, and Flux
// waits for it. After the end the next sync changes nothing, with the old or the new image in Git.
func TestLongGitOpsSyncs_DisturbNoRelease_WhenFieldsIgnored(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e := harness.Shared(t)
	for _, tool := range []harness.Tool{harness.Flux, harness.ArgoClientSide, harness.ArgoServerSide} {
		t.Run(tool.Title, func(t *testing.T) {
			t.Parallel()
			waiting, ended := "Suspended", "Healthy"
			if tool.Title == harness.Flux.Title {
				waiting, ended = "InProgress", "Current"
			}
			a := newGitopsRelease(t, e, gitopsCells[0], tool.Ignoring(ignoredFields...), nil)
			a.StartRollout(a.rollout)
			for step := 1; a.needsApproval(step); step++ {
				a.waitPaused(step)
				for range 3 {
					a.tool.Sync(t)
				}
				require.Contains(t, a.tool.Health(t, "Deployment/order"), waiting)
				a.approve(step)
			}
			status := a.requirePromoted()
			for _, entry := range status.History {
				require.NotEqual(t, rollout.Verb("restored"), entry.Verb, entry.Message)
			}
			require.Empty(t, a.tool.Diff(t), "no change with the old image in Git")
			a.commitImage(a.rollout.NewestImage())
			require.Empty(t, a.tool.Diff(t), "no change with the new image in Git")
			require.Contains(t, a.tool.Health(t, "Deployment/order"), ended)
		})
	}
}

// Flux does not touch an object that carries one of these annotations.
func TestLongFlux_SkipsObject_WhenAnnotated(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e := harness.Shared(t)
	for _, annotation := range []string{"kustomize.toolkit.fluxcd.io/ssa=IfNotPresent",
		"kustomize.toolkit.fluxcd.io/reconcile=disabled"} {
		t.Run(annotation, func(t *testing.T) {
			t.Parallel()
			a := newGitopsRelease(t, e, gitopsCells[0], harness.Flux, nil)
			var alone []*unstructured.Unstructured
			for _, o := range harness.WithImage(a.manifest, "registry.test/order:v9") {
				alone = append(alone, annotated(o, annotation))
			}
			a.tool.Declare(t, alone)
			before := a.object().GetGeneration()
			a.tool.Sync(t)
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

// Git gets a third image while a release waits: the release stops and names the image and the tool. While the tool is
// suspended, either a new release of that image supersedes the first, or a stop ends it and the tool's next sync makes
// Kubernetes roll the image out.
func TestLongRelease_WaitsForUser_WhenGitHasThirdImage(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e := harness.Shared(t)
	const third = "registry.test/order:v3"
	drifted := func(t *testing.T) *gitopsRelease {
		a := newGitopsRelease(t, e, gitopsCells[0], harness.Flux, nil)
		a.StartRollout(a.rollout)
		a.waitPaused(1)
		a.watch.ForeignChanges(t)
		a.commitImage(third)
		a.tool.Sync(t)
		status := a.WaitRollout(a.rollout.Name, "drift", func(s rollout.Status) bool {
			return s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitDrift
		})
		t.Log(status.Reason)
		for _, part := range []string{"image of container app (" + third + ", was registry.test/order:v2)",
			"by kustomize-controller", "retry", "stop"} {
			require.Contains(t, status.Reason, part)
		}
		return a
	}
	t.Run("Superseded", func(t *testing.T) {
		t.Parallel()
		a := drifted(t)
		a.tool.Pause()
		a.rollout.Image, a.rollout.ExtraFields = third, map[string]any{"supersede": true}
		a.StartRollout(a.rollout)
		a.WaitRollout(a.rollout.Name, "the newest", func(s rollout.Status) bool { return s.Images["app"] == third })
		a.approveAll(1)
		a.requirePromoted()
		require.Empty(t, a.tool.Diff(t), "the next sync changes nothing")
	})
	t.Run("Stopped", func(t *testing.T) {
		t.Parallel()
		a := drifted(t)
		a.tool.Pause()
		a.MustVerb(a.rollout.Name, "stop", `{"to":"stable"}`)
		a.WaitPhase(a.rollout.Name, rollout.PhaseRolledBack)
		a.tool.Sync(t)
		a.watch.WaitSettled(t)
		require.Empty(t, a.tool.Diff(t))
		a.watch.RequirePromises(t)
	})
}
