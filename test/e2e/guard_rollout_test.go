package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/release/guard"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/observer"
)

// beginGuarded starts a release behind a guard.
func beginGuarded(t *testing.T, e *harness.Engine, g *harness.Guard, c cell,
	change func(object map[string]any)) *release {
	t.Helper()
	r := prepare(t, e, c, func(object map[string]any, _ *harness.Rollout) {
		if change != nil {
			change(object)
		}
	})
	g.EnforceOn(t, r.Apps)
	r.StartRollout(r.rollout)
	return r
}

// manifestApplier applies a manifest every second by server-side apply with force, as a GitOps controller with
// self-healing does.
type manifestApplier struct {
	manifest atomic.Pointer[[]byte]
	applied  atomic.Int64
}

func (n *manifestApplier) setManifest(t *testing.T, manifest map[string]any) {
	t.Helper()
	raw, err := json.Marshal(manifest)
	require.NoError(t, err)
	n.manifest.Store(&raw)
}

// start applies the manifest until the test ends.
func (n *manifestApplier) start(t *testing.T, r *release) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	t.Cleanup(func() { cancel(); <-ended })
	workloads := r.Dynamic(t).Resource(r.rollout.Kind.GVR).Namespace(r.Apps)
	force := true
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			_, err := workloads.Patch(ctx, r.rollout.Name, types.ApplyPatchType, *n.manifest.Load(),
				metav1.PatchOptions{FieldManager: "gitops", Force: &force})
			if err != nil && ctx.Err() == nil {
				t.Errorf("the apply of the manifest failed: %v", err)
			}
			n.applied.Add(1)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}()
}

// waitApplies waits for that many further applies.
func (n *manifestApplier) waitApplies(t *testing.T, times int64) {
	t.Helper()
	until := n.applied.Load() + times
	require.Eventually(t, func() bool {
		return n.applied.Load() >= until
	}, harness.Patience, harness.Tick, "the manifest is applied")
}

// Behind the guard, an in-place canary completes while another client applies the whole manifest every second,
// including strategy and limits. With the engine dead at a waiting step, even a manifest with the old image moves no
// pod.
func TestLongGuardedCanary_Completes_WhenManifestAppliedEverySecond(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e, g := harness.StartGuarded(t)
	manifest := map[string]any{}
	r := beginGuarded(t, e, g, deploymentCell(strategy.StylePartition, harness.Nginx), func(object map[string]any) {
		spec := object["spec"].(map[string]any)
		spec["minReadySeconds"], spec["progressDeadlineSeconds"], spec["paused"],
			spec["revisionHistoryLimit"] = int64(1), int64(600), false, int64(5)
		manifest = runtime.DeepCopyJSON(object)
	})
	fresh := runtime.DeepCopyJSON(manifest)
	containers, _, err := unstructured.NestedSlice(fresh, "spec", "template", "spec", "containers")
	require.NoError(t, err)
	containers[0].(map[string]any)["image"] = r.rollout.NewestImage()
	require.NoError(t, unstructured.SetNestedSlice(fresh, containers, "spec", "template", "spec", "containers"))
	r.waitPaused(1)
	var n manifestApplier
	n.setManifest(t, fresh)
	n.start(t, r)
	n.waitApplies(t, 3)
	r.watch.RequirePromises(t)

	e.Processes[0].Kill()
	n.waitApplies(t, 3)
	n.setManifest(t, manifest)
	n.waitApplies(t, 5)
	require.Equal(t, true, valueAt(r.object(), "/spec/paused"), "the Deployment stays paused, whatever is applied")
	r.watch.WaitCount(t, observer.Count{Stable: 3, StableReady: 3, New: 1, NewReady: 1})
	r.watch.RequirePromises(t)
	n.setManifest(t, fresh)
	n.waitApplies(t, 2)

	e.Processes[0] = e.Dev(harness.Options{})
	e.WaitReady()
	r.approve(1)
	r.approve(2)
	r.WaitPhase(r.rollout.Name, rollout.PhaseHealthy)
	r.watch.RequirePromises(t)
	require.Nil(t, valueAt(r.object(), "/spec/paused"), "spec.paused is restored")
}

// Rollouts complete behind the guard, which blocks no write of the engine or of a native controller. The preflight
// warns about objects that the guard does not cover.
func TestLongGuardedRollouts_Complete(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e, g := harness.StartGuarded(t)
	t.Run("Preflight", func(t *testing.T) {
		t.Parallel()
		testGuardPreflight(t, e, g)
	})
	completeGuardedCells(t, e, g, deploymentCell(strategy.StylePartition, harness.Nginx),
		deploymentCell(strategy.StyleBlueGreen, harness.NoProvider),
		cell{harness.StatefulSet, strategy.StylePartition, harness.Istio})
}

// This test covers a style and kinds that TestLongGuardedRollouts_Complete omits.
func TestSoakGuardedRollouts_Complete(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	e, g := harness.StartGuarded(t)
	completeGuardedCells(t, e, g, deploymentCell(strategy.StyleCanary, harness.Gateway),
		cell{harness.DaemonSet, strategy.StylePartition, harness.NoProvider},
		cell{harness.CloneSet, strategy.StylePartition, harness.Nginx})
}

func completeGuardedCells(t *testing.T, e *harness.Engine, g *harness.Guard, cells ...cell) {
	t.Helper()
	for _, c := range cells {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			completeGuarded(t, e, g, c)
		})
	}
}

func completeGuarded(t *testing.T, e *harness.Engine, g *harness.Guard, c cell) {
	t.Helper()
	r := beginGuarded(t, e, g, c, nil)
	r.approveAll(1)
	r.requirePromoted()
}

// With the engine dead and the guard in force, a user restores the workload by `slipway repair` or by the commands in
// its annotation.
func TestLongRepair_RestoresWorkload_BehindGuardWithoutEngine(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	repairBehindGuard(t, []guardedRepair{
		{"repair", deploymentCell(strategy.StylePartition, harness.Nginx), rollout.SideStable, (*release).repair},
		{"recover", deploymentCell(strategy.StylePartition, harness.Gateway), rollout.SideNew, (*release).recover},
		{"blue-green", deploymentCell(strategy.StyleBlueGreen, harness.Nginx), rollout.SideStable, (*release).repair},
		{"blue-green-recover", deploymentCell(strategy.StyleBlueGreen, harness.NoProvider), rollout.SideStable,
			(*release).recover},
		{"extra", deploymentCell(strategy.StyleCanary, harness.Istio), rollout.SideNew, (*release).repair},
		{"partition", cell{harness.CloneSet, strategy.StylePartition, harness.Gateway}, rollout.SideStable,
			(*release).recover},
	})
}

type guardedRepair struct {
	title   string
	cell    cell
	to      rollout.Side
	restore func(r *release, to rollout.Side)
}

func repairBehindGuard(t *testing.T, cells []guardedRepair) {
	t.Helper()
	e, g := harness.StartGuarded(t)
	var waiting []*stranded
	for _, c := range cells {
		r := beginGuarded(t, e, g, c.cell, nil)
		r.waitPaused(1)
		waiting = append(waiting, &stranded{release: r, title: c.title, to: c.to, restore: c.restore})
	}
	e.Processes[0].Kill()
	for _, r := range waiting {
		t.Run(r.title, func(t *testing.T) {
			t.Parallel()
			r.requireRepaired(t)
		})
	}
}

// A user takes the workload over while the engine runs: the engine writes nothing to it, and reports so, until the user
// removes the annotation.
func TestEngine_WritesNothing_WhileUserRepairsWorkload(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	r := startRelease(t, e, deploymentCell(strategy.StylePartition, harness.NoProvider), nil)
	r.waitPaused(1)
	r.Kubectl("-n", r.Apps, "annotate", "deployment", r.rollout.Name, "slipway.io/repair=anna")
	status := r.WaitRollout(r.rollout.Name, "it waits for anna", func(s rollout.Status) bool {
		return s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitDrift
	})
	require.Contains(t, status.Reason, fmt.Sprintf(
		"Deployment %s/%s is being repaired by anna: nothing is written to it", r.Apps, r.rollout.Name))
	r.PatchObject(r.rollout.Kind, r.rollout.Name, `{"spec":{"minReadySeconds":5}}`)
	r.MustVerb(r.rollout.Name, "retry", "")
	r.WaitRollout(r.rollout.Name, "it still waits for anna", func(s rollout.Status) bool {
		return s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitDrift
	})
	require.EqualValues(t, 5, valueAt(r.object(), "/spec/minReadySeconds"), "a retry changes nothing while anna works")
	r.Kubectl("-n", r.Apps, "annotate", "deployment", r.rollout.Name, "slipway.io/repair-")
	r.sendVerb("rollback", "")
	r.requireRolledBack()
}

// A running engine does not disturb a repair: it writes nothing meanwhile, and finds its claim deleted afterwards.
func TestRepair_IsNotDisturbed_ByRunningEngine(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	r := startRelease(t, e, deploymentCell(strategy.StylePartition, harness.Nginx), nil)
	r.waitPaused(1)
	r.watch.MarkMoving(t)
	r.repair(rollout.SideStable)
	r.watch.WaitSettled(t)
	r.requireRestored(observer.End{})
	r.MustVerb(r.rollout.Name, "stop", `{"to":"frozen"}`)
	r.WaitPhase(r.rollout.Name, rollout.PhaseCancelled)
	r.requireRestored(observer.End{})
}

// testGuardPreflight checks that the preflight warns about objects that the API server does not guard, and that an
// engine unknown to the guard is refused, because the guard would block its writes.
func testGuardPreflight(t *testing.T, engine *harness.Engine, g *harness.Guard) {
	t.Helper()
	e := engine.ForTest(t)
	e.Subject(harness.Deployment, "web", nil)
	rollout := harness.Rollout{Kind: harness.Deployment, Name: "web",
		Strategy: strategy.Strategy{Style: strategy.StylePartition, Steps: deploymentCell(
			strategy.StylePartition, harness.NoProvider).steps()}}
	warnings := func(e *harness.Engine) string {
		body, err := json.Marshal(rollout.Body(e.Apps))
		require.NoError(t, err)
		var answer harness.Answer
		require.Eventually(t, func() bool {
			answer = e.Call("POST", "/api/v1/rollouts/validate", string(body))
			return answer.Status == 200
		}, harness.Patience, harness.Tick, "the check is answered")
		return string(answer.Body)
	}
	require.NotContains(t, warnings(e), "guard", "its namespace asks for no guard")
	harness.LabelNamespace(t, e.Kube, e.Apps, guard.LabelGuard, "nobody")
	require.Contains(t, warnings(e), "the API server doesn't guard this release against edits by others")
	g.EnforceOn(t, e.Apps)
	require.Eventually(t, func() bool {
		return !strings.Contains(warnings(e), "guard")
	}, harness.Patience, harness.Tick, "everything is guarded")

	stranger := harness.Shared(t)
	stranger.Subject(harness.Deployment, "web", nil)
	g.EnforceOn(t, stranger.Apps)
	require.Eventually(t, func() bool {
		return strings.Contains(warnings(stranger), "the guard "+g.Name+" of this cluster doesn't know this worker's account")
	}, harness.Patience, harness.Tick, "it names the guard")
	require.Eventually(t, func() bool {
		return stranger.TryStartRollout(rollout).Status == 422
	}, harness.Patience, harness.Tick, "and the rollout is not started")
}
