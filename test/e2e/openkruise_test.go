package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// startOpenKruise starts an engine behind a guard on a stack of its own, on which OpenKruise's own manager runs
// CloneSets, Advanced StatefulSets and Advanced DaemonSets, with its defaults and its validation.
func startOpenKruise(t *testing.T) (*harness.Engine, *harness.Guard) {
	t.Helper()
	p := harness.NewPrivateStack(t)
	p.StartOpenKruise() // first, because a guard has policies only for kinds that exist
	p.InstallRollouts(t)
	g := p.InstallGuard(t)
	return harness.Start(t, harness.Options{Stack: &p.Stack,
		Kubeconfig: func(e *harness.Engine) string { return e.KubeconfigAs(t, harness.EngineUser) }}), g
}

// Each kind of OpenKruise in each of its styles: a release and a rollback over HTTP, and both by a Rollout, whose status
// shows the revisions as clients of Kruise Rollouts read them.
func TestLongOpenKruise_RunsReleases_ByItsOwnManager(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e, g := startOpenKruise(t)
	for _, c := range []cell{
		{harness.CloneSet, strategy.StylePartition, harness.Nginx},
		{harness.CloneSet, strategy.StyleBlueGreen, harness.Gateway},
		{harness.AdvancedStatefulSet, strategy.StylePartition, harness.Istio},
		{harness.AdvancedDaemonSet, strategy.StylePartition, harness.NoProvider},
	} {
		releaseOnOpenKruise(t, e, g, c, c.waitingSteps())
	}
	for _, kind := range []harness.Kind{harness.CloneSet, harness.AdvancedStatefulSet, harness.AdvancedDaemonSet} {
		c := cell{kind, strategy.StylePartition, harness.NoProvider}
		t.Run(c.String()+"/in place", func(t *testing.T) {
			t.Parallel()
			releaseInPlace(t, e, c)
		})
	}
}

// releaseInPlace releases a cell whose pods get the new image without being replaced.
func releaseInPlace(t *testing.T, e *harness.Engine, c cell) {
	t.Helper()
	const inPlace = "InPlaceIfPossible"
	r := startRelease(t, e, c, func(object map[string]any, _ *harness.Rollout) {
		set := func(value any, path ...string) {
			require.NoError(t, unstructured.SetNestedField(object, value, append([]string{"spec"}, path...)...))
		}
		switch c.kind {
		case harness.CloneSet: // a pod beyond its size would be a new one
			set(map[string]any{"type": inPlace, "maxUnavailable": int64(1)}, "updateStrategy")
		case harness.AdvancedStatefulSet:
			set(inPlace, "updateStrategy", "rollingUpdate", "podUpdatePolicy")
			set([]any{map[string]any{"conditionType": "InPlaceUpdateReady"}}, "template", "spec", "readinessGates")
		default:
			set(inPlace, "updateStrategy", "rollingUpdate", "rollingUpdateType")
		}
	})
	r.approveAll(1)
	r.requirePromoted()
	require.Zero(t, r.watch.PodsCreated(t), "no pod is replaced")
}

// Each kind of OpenKruise in each of its styles with every provider and without one, with rollbacks from every step.
func TestSoakOpenKruise_RunsReleases_ByItsOwnManager(t *testing.T) {
	harness.Soak(t)
	e, g := startOpenKruise(t)
	for _, c := range openKruiseCells() {
		var steps []int
		for step := 1; step <= c.waitingSteps(); step++ {
			steps = append(steps, step)
		}
		releaseOnOpenKruise(t, e, g, c, steps...)
	}
}

// What clients do during a release, with each kind of OpenKruise in each of its styles with every provider.
func TestSoakOpenKruise_KubectlActions_DuringRelease(t *testing.T) {
	harness.Soak(t)
	e, g := startOpenKruise(t)
	runClientActionsOn(t, e, g, func(int) []cell { return openKruiseCells() })
}

// openKruiseCells returns the cells of the matrix with kinds of OpenKruise.
func openKruiseCells() (all []cell) {
	for _, c := range allCells() {
		if c.kind.Custom() {
			all = append(all, c)
		}
	}
	return all
}

// releaseOnOpenKruise releases a cell and rolls it back from some steps, over HTTP and by its Rollout.
func releaseOnOpenKruise(t *testing.T, e *harness.Engine, g *harness.Guard, c cell, backFrom ...int) {
	t.Helper()
	run := func(title string, do func(t *testing.T)) {
		t.Run(c.String()+"/"+title, func(t *testing.T) {
			t.Parallel()
			do(t)
		})
	}
	run("http", func(t *testing.T) { releaseCell(t, e, c) })
	run("kubectl", func(t *testing.T) { releaseByKubectl(t, e, g, c) })
	for _, step := range backFrom {
		run(fmt.Sprintf("http/back from %d", step), func(t *testing.T) { rollBackCell(t, e, c, step) })
		run(fmt.Sprintf("kubectl/back from %d", step), func(t *testing.T) { rollBackByKubectl(t, e, g, c, step) })
	}
}

// rollBackByKubectl declares the stable image of a cell again at a step of its release.
func rollBackByKubectl(t *testing.T, e *harness.Engine, g *harness.Guard, c cell, step int) {
	t.Helper()
	d := declare(t, e, g, c, nil)
	d.setImage("alice", d.rollout.NewestImage())
	for n := 1; n < step; n++ {
		d.approve(n)
	}
	d.waitStep(step)
	d.watch.MarkPaused(t, step)
	d.revertImage("alice", harness.StableImage(d.rollout.Name))
	d.requireRolledBack()
}
