package bench

import (
	"context"
	"fmt"
	"os"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/test/harness"
)

// TestSoakRolloutsFloor measures the floor of TestSoakRolloutsAtOnce: what remains of a rollout when nothing is
// decided, and the cost of each thing it adds.
//
//   - «plain» is the update that all others are compared with.
//   - «pod by pod» is a plain update of Deployments that replace one pod after the other: the inherent cost of steps of
//     one pod each.
//   - «writes» is a loop that writes to each Deployment, its record and its events what a rollout writes, and waits for
//     all of them through one watch.
//   - «workflows» is the body of that loop as the only activity of a workflow, on a worker within the benchmark: the
//     minimum for an engine on Temporal.
//   - «promises» are these workflows with further promises: heartbeats, which show a step live and detect a dead
//     worker; search attributes for filtered lists; the record's end written by the workflow; uncached reads where a
//     cache may be stale; watches of the Deployments and the ReplicaSets.
//   - «checked» adds the promises for starts and parties: a request is checked before the first write, and its errors
//     are the answer; a party's worker has its own queue; the shown progress of a step is at most two seconds old.
//   - «rollouts» are Slipway's: what they take in addition is the cost of their decisions. «checked» and «rollouts» are
//     measured alternately.
func TestSoakRolloutsFloor(t *testing.T) {
	harness.Soak(t)
	measureFloor(t, 100)
}

// TestSoakTwentyRolloutsFloor measures the floor of TestSoakTwentyRolloutsAtOnce.
func TestSoakTwentyRolloutsFloor(t *testing.T) {
	harness.Soak(t)
	measureFloor(t, 20)
}

func measureFloor(t *testing.T, n int) {
	s := setting{n: n, pods: rolloutPods}
	e := harness.Start(t, harness.Options{SeparateWorker: true})
	seen := observeRollout(t, e)
	fmt.Printf("\nthe floor of %d rollouts of %d steps of Deployments of %d pods, all at once\n", s.n, rolloutSteps,
		s.pods)
	patch := func(context.Context) { each(s.n, func(i int) { setImage(t, e, deploymentName(i), ":v2") }) }
	measureWays(t, e, s, append([]way{
		{name: "plain", do: patch},
		{name: "pod by pod", do: patch, change: podByPod},
		{name: "writes", do: func(ctx context.Context) { newFloor(ctx, t, e, seen).loop(t, s.n) }},
		{name: "workflows", do: func(ctx context.Context) { newFloor(ctx, t, e, seen).workflows(t, e, s.n) }},
		{name: "promises", do: func(ctx context.Context) {
			newFloor(ctx, t, e, seen).withPromises(ctx, t).workflows(t, e, s.n)
		}},
	}, alternate(
		way{name: "checked", do: func(ctx context.Context) {
			newFloor(ctx, t, e, seen).withPromises(ctx, t).withChecks().workflows(t, e, s.n)
		}},
		way{name: "rollouts", do: func(context.Context) {
			each(s.n, func(i int) { startRollout(t, e, deploymentName(i), ":v2", 0) })
		}},
	)...))
	harness.Covered(t, s.n, "rollouts at once, and their floor")
}

// way is one way to release all Deployments at once. change alters the Deployments before they are created; nil: no
// change.
type way struct {
	name   string
	do     func(ctx context.Context)
	change func(d *appsv1.Deployment)
	// warmUp is true for a run that is not measured.
	warmUp bool
}

// withWarmUp returns the ways with the first, plain one three times. The first run on a new stack finds cold caches, so
// it is not measured. Comparing the last run with the second shows how much the machine's own speed has changed.
func withWarmUp(ways []way) []way {
	first, last := ways[0], ways[0]
	first.warmUp, last.name = true, ways[0].name+", again"
	return append(append([]way{first}, ways...), last)
}

// alternate returns Slipway and the floor with the same promises twice each: the result of a single run is within the
// variation of the machine's speed.
func alternate(floor, slipway way) []way { return []way{floor, slipway, floor, slipway} }

// measureWays measures the ways one after the other and prints each next to the plain update, which is the first.
func measureWays(t *testing.T, e *harness.Engine, s setting, ways []way) {
	t.Helper()
	var plain usage
	for _, w := range withWarmUp(ways) {
		s.change = w.change
		makeDeployments(t, e, s)
		released := way{name: w.name, warmUp: w.warmUp, do: func(ctx context.Context) {
			w.do(ctx)
			waitReleased(t, e, s.n, ":v2")
		}}
		plain = released.measure(t, e, plain)
		waitSettled(t, e)
		deleteCompared(t, e, e.Apps)
	}
}

// measure measures the way, prints it next to the plain way and returns the plain usage. For the first, plain way that
// is its own.
func (w way) measure(t *testing.T, e *harness.Engine, plain usage) usage {
	t.Helper()
	if w.warmUp {
		w.do(t.Context())
		return plain
	}
	own := cpu(os.Getpid())
	ctx, cancel := context.WithCancel(t.Context())
	used := measure(t, e, func() { w.do(ctx) })
	cancel()
	own = cpu(os.Getpid()) - own
	if plain.by == nil {
		plain = used
	}
	printWay(t, w.name, plain, used, own)
	return plain
}

// printWay prints the usage of one way. own is the CPU of the benchmark itself, in seconds.
func printWay(t *testing.T, name string, plain, used usage, own float64) {
	wall, control := used.wall.Seconds()/plain.wall.Seconds(), used.control()/plain.control()
	recordFigure(t, name+": wall time, ratio", wall)
	recordFigure(t, name+": control plane, ratio", control)
	recordFigure(t, name+": CPU of Temporal, s", used.temporal())
	recordFigure(t, name+": CPU of slipway, s", used.slipway())
	recordFigure(t, name+": CPU of the benchmark, s", own)
	fmt.Printf("  %-12s %5.1f s, %.2f times; CPU: control plane %5.1f s, %.2f times; Temporal %4.1f, slipway %4.1f, "+
		"benchmark %4.1f s\n", name, used.wall.Seconds(), wall,
		used.control(), control, used.temporal(), used.slipway(), own)
}

// podByPod makes a Deployment replace one pod after the other.
func podByPod(d *appsv1.Deployment) {
	none, one := intstr.FromInt32(0), intstr.FromInt32(1)
	d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &one, MaxUnavailable: &none}}
}
