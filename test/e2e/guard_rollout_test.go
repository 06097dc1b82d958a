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

// beginGuarded is begin behind a guard.
func beginGuarded(t *testing.T, e *harness.Engine, g *harness.Guard, c cell, change func(object map[string]any)) *release {
	t.Helper()
	r := prepare(t, e, c, func(object map[string]any, _ *harness.Rollout) {
		if change != nil {
			change(object)
		}
	})
	g.Over(t, r.Apps)
	r.StartRollout(r.rollout)
	return r
}

// neighbour applies a manifest every second, as a GitOps controller that heals does, by server-side apply with force.
type neighbour struct {
	manifest atomic.Pointer[[]byte]
	applied  atomic.Int64
}

func (n *neighbour) sets(t *testing.T, manifest map[string]any) {
	t.Helper()
	raw, err := json.Marshal(manifest)
	require.NoError(t, err)
	n.manifest.Store(&raw)
}

// heals applies until the test ends.
func (n *neighbour) heals(t *testing.T, r *release) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	t.Cleanup(func() { cancel(); <-ended })
	workloads := r.Dynamic(t).Resource(r.rollout.Kind.GVR).Namespace(r.Apps)
	force := true
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			_, err := workloads.Patch(ctx, r.rollout.Name, types.ApplyPatchType, *n.manifest.Load(), metav1.PatchOptions{FieldManager: "gitops", Force: &force})
			if err != nil && ctx.Err() == nil {
				t.Errorf("the neighbour's apply failed: %v", err)
			}
			n.applied.Add(1)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}()
}

// waits returns when the neighbour has applied that often from now on.
func (n *neighbour) waits(t *testing.T, times int64) {
	t.Helper()
	until := n.applied.Load() + times
	require.Eventually(t, func() bool { return n.applied.Load() >= until }, harness.Patience, harness.Tick, "the neighbour applies")
}

// Behind the guard a canary in place goes to its end while somebody else applies the manifest every second, whole: strategy, limits and all. With the engine
// dead at a rest even the manifest with the old image moves no pod.
func TestLongGuardedCanaryUnderANeighbour(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e, g := harness.StartGuarded(t)
	manifest := map[string]any{}
	r := beginGuarded(t, e, g, deploymentBy(strategy.StylePartition, harness.Nginx), func(object map[string]any) {
		spec := object["spec"].(map[string]any)
		spec["minReadySeconds"], spec["progressDeadlineSeconds"], spec["paused"], spec["revisionHistoryLimit"] = int64(1), int64(600), false, int64(5)
		manifest = runtime.DeepCopyJSON(object)
	})
	fresh := runtime.DeepCopyJSON(manifest)
	containers, _, err := unstructured.NestedSlice(fresh, "spec", "template", "spec", "containers")
	require.NoError(t, err)
	containers[0].(map[string]any)["image"] = r.rollout.NewestImage()
	require.NoError(t, unstructured.SetNestedSlice(fresh, containers, "spec", "template", "spec", "containers"))
	r.rest(1)
	var n neighbour
	n.sets(t, fresh)
	n.heals(t, r)
	n.waits(t, 3)
	r.watch.RequirePromises(t)

	e.Processes[0].Kill()
	n.waits(t, 3)
	n.sets(t, manifest)
	n.waits(t, 5)
	require.Equal(t, true, at(r.object(), "/spec/paused"), "the rest is kept, whatever is applied")
	r.watch.WaitCount(t, observer.Count{Stable: 3, StableReady: 3, New: 1, NewReady: 1})
	r.watch.RequirePromises(t)
	n.sets(t, fresh)
	n.waits(t, 2)

	e.Processes[0] = e.Dev(harness.Options{})
	e.WaitReady()
	r.approve(1)
	r.approve(2)
	r.WaitPhase(r.rollout.Name, rollout.PhaseHealthy)
	r.watch.RequirePromises(t)
	require.Nil(t, at(r.object(), "/spec/paused"), "it is given back")
}

// A canary goes to its end behind the guard: nothing that the engine or a native controller writes is held up. Nor does anything begin unsaid that isn't guarded.
func TestLongGuardedRollouts(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e, g := harness.StartGuarded(t)
	t.Run("Preflight", func(t *testing.T) {
		t.Parallel()
		saysWhatIsNotGuarded(t, e, g)
	})
	guardedToTheEnd(t, e, g, deploymentBy(strategy.StylePartition, harness.Nginx), deploymentBy(strategy.StyleBlueGreen, harness.NoProvider),
		cell{harness.StatefulSet, strategy.StylePartition, harness.Istio})
}

// The style and the kinds that TestLongGuardedRollouts leaves out.
func TestSoakGuardedRollouts(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	e, g := harness.StartGuarded(t)
	guardedToTheEnd(t, e, g, deploymentBy(strategy.StyleCanary, harness.Gateway), cell{harness.DaemonSet, strategy.StylePartition, harness.NoProvider},
		cell{harness.CloneSet, strategy.StylePartition, harness.Nginx})
}

func guardedToTheEnd(t *testing.T, e *harness.Engine, g *harness.Guard, cells ...cell) {
	t.Helper()
	for _, c := range cells {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			goesToItsEnd(t, e, g, c)
		})
	}
}

func goesToItsEnd(t *testing.T, e *harness.Engine, g *harness.Guard, c cell) {
	t.Helper()
	r := beginGuarded(t, e, g, c, nil)
	r.approveAll(1)
	r.endsNew()
}

// With the engine dead and the guard in force, a person brings the workload home: by slipway repair, and by the commands that stand on it.
func TestLongRepairBehindTheGuard(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	repairGuarded(t, []guardedRepair{
		{"repair", deploymentBy(strategy.StylePartition, harness.Nginx), rollout.SideStable, (*release).repair},
		{"recover", deploymentBy(strategy.StylePartition, harness.Gateway), rollout.SideNew, (*release).recover},
		{"blue-green", deploymentBy(strategy.StyleBlueGreen, harness.Nginx), rollout.SideStable, (*release).repair},
		{"blue-green-recover", deploymentBy(strategy.StyleBlueGreen, harness.NoProvider), rollout.SideStable, (*release).recover},
		{"extra", deploymentBy(strategy.StyleCanary, harness.Istio), rollout.SideNew, (*release).repair},
		{"partition", cell{harness.CloneSet, strategy.StylePartition, harness.Gateway}, rollout.SideStable, (*release).recover},
	})
}

type guardedRepair struct {
	title string
	cell  cell
	to    rollout.Side
	bring func(r *release, to rollout.Side)
}

func repairGuarded(t *testing.T, cells []guardedRepair) {
	t.Helper()
	e, g := harness.StartGuarded(t)
	var waiting []*stranded
	for _, c := range cells {
		r := beginGuarded(t, e, g, c.cell, nil)
		r.rest(1)
		waiting = append(waiting, &stranded{release: r, title: c.title, to: c.to, bring: c.bring})
	}
	e.Processes[0].Kill()
	for _, r := range waiting {
		t.Run(r.title, func(t *testing.T) {
			t.Parallel()
			r.comesHome(t)
		})
	}
}

// Somebody takes the workload over while the engine lives: the engine writes nothing more to it, and says so until they give it back.
func TestSomebodyTakesTheWorkloadOver(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	r := begin(t, e, deploymentBy(strategy.StylePartition, harness.NoProvider), nil)
	r.rest(1)
	r.Kubectl("-n", r.Apps, "annotate", "deployment", r.rollout.Name, "slipway.io/repair=anna")
	status := r.WaitRollout(r.rollout.Name, "it waits for anna", func(s rollout.Status) bool { return s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitDrift })
	require.Contains(t, status.Reason, fmt.Sprintf("Deployment %s/%s is being repaired by anna: nothing is written to it", r.Apps, r.rollout.Name))
	r.PatchObject(r.rollout.Kind, r.rollout.Name, `{"spec":{"minReadySeconds":5}}`)
	r.MustVerb(r.rollout.Name, "retry", "")
	r.WaitRollout(r.rollout.Name, "it goes on waiting for anna", func(s rollout.Status) bool { return s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitDrift })
	require.EqualValues(t, 5, at(r.object(), "/spec/minReadySeconds"), "a retry changes nothing while anna works")
	r.Kubectl("-n", r.Apps, "annotate", "deployment", r.rollout.Name, "slipway.io/repair-")
	r.verb("rollback", "")
	r.endsStable()
}

// A repair while the engine lives is not disturbed by it: the engine writes nothing meanwhile, and finds its claim gone afterwards.
func TestRepairBesideALivingEngine(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	r := begin(t, e, deploymentBy(strategy.StylePartition, harness.Nginx), nil)
	r.rest(1)
	r.watch.Leaving(t)
	r.repair(rollout.SideStable)
	r.watch.WaitStill(t)
	r.requireHome(observer.End{})
	r.MustVerb(r.rollout.Name, "stop", `{"to":"frozen"}`)
	r.WaitPhase(r.rollout.Name, rollout.PhaseCancelled)
	r.requireHome(observer.End{})
}

// Before a rollout starts, people are told what the API server doesn't guard. An engine that the guard takes for somebody else is refused: it could not work.
func saysWhatIsNotGuarded(t *testing.T, engine *harness.Engine, g *harness.Guard) {
	t.Helper()
	e := engine.For(t)
	e.Subject(harness.Deployment, "web", nil)
	rollout := harness.Rollout{Kind: harness.Deployment, Name: "web", Strategy: strategy.Strategy{Style: strategy.StylePartition, Steps: deploymentBy(
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
	require.NotContains(t, warnings(e), "guard", "its namespace wants no guard")
	harness.LabelNamespace(t, e.Kube, e.Apps, guard.LabelGuard, "nobody")
	require.Contains(t, warnings(e), "the API server doesn't guard this release against edits by others")
	g.Over(t, e.Apps)
	require.Eventually(t, func() bool { return !strings.Contains(warnings(e), "guard") }, harness.Patience, harness.Tick, "everything is guarded")

	stranger := harness.Shared(t)
	stranger.Subject(harness.Deployment, "web", nil)
	g.Over(t, stranger.Apps)
	require.Eventually(t, func() bool {
		return strings.Contains(warnings(stranger), "the guard "+g.Name+" of this cluster doesn't know this engine")
	}, harness.Patience, harness.Tick, "it names the guard")
	require.Eventually(t, func() bool { return stranger.TryStartRollout(rollout).Status == 422 }, harness.Patience, harness.Tick, "and it is not started")
}
