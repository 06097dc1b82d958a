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

// The floor of TestSoakRolloutsAtOnce: what of a rollout is left when nothing is decided, and what each thing that it does adds.
//
//   - «plain» is the update that everything is compared with.
//   - «pod by pod» is a plain update of Deployments that bring one pod after the other: what steps of one pod each come to, whoever makes them.
//   - «writes» is a loop that writes to each Deployment, its record and its events what a rollout writes, and waits for all of them by one watch.
//   - «workflows» is the body of that loop as the only activity of a workflow, on a worker within the benchmark: the least that an engine on Temporal does.
//   - «promises» are these workflows with what is promised besides: heartbeats, so that a step is seen live and a dead worker is missed; attributes that lists are
//     filtered by; the record's end by the workflow; reads of what must not be stale; watches of the Deployments and the ReplicaSets as they are.
//   - «checked» are these with what is promised of starts and of parties: what is asked for is checked before the first write, and its errors are the answer; a party's
//     worker has a queue of its own; and what is shown of a step is two seconds old at most.
//   - «rollouts» are Slipway's: what they take more than that is what they decide. The two are measured in turns.
func TestSoakRolloutsFloor(t *testing.T) {
	harness.Soak(t)
	measureFloor(t, 100)
}

// The floor of TestSoakTwentyRolloutsAtOnce.
func TestSoakTwentyRolloutsFloor(t *testing.T) {
	harness.Soak(t)
	measureFloor(t, 20)
}

func measureFloor(t *testing.T, n int) {
	s := setting{n: n, pods: rolloutPods}
	e := harness.Start(t, harness.Options{Apart: true})
	seen := seenOf(t, e)
	fmt.Printf("\nthe floor of %d rollouts of %d steps of Deployments of %d pods, all at once\n", s.n, rolloutSteps, s.pods)
	patch := func(context.Context) { each(s.n, func(i int) { setImage(t, e, deploymentName(i), ":v2") }) }
	measureWays(t, e, s, append([]way{
		{name: "plain", do: patch},
		{name: "pod by pod", do: patch, shaped: podByPod},
		{name: "writes", do: func(ctx context.Context) { newFloor(ctx, t, e, seen).loop(t, s.n) }},
		{name: "workflows", do: func(ctx context.Context) { newFloor(ctx, t, e, seen).workflows(t, e, s.n) }},
		{name: "promises", do: func(ctx context.Context) { newFloor(ctx, t, e, seen).promising(ctx, t).workflows(t, e, s.n) }},
	}, inTurns(
		way{name: "checked", do: func(ctx context.Context) { newFloor(ctx, t, e, seen).promising(ctx, t).checking().workflows(t, e, s.n) }},
		way{name: "rollouts", do: func(context.Context) { each(s.n, func(i int) { startRollout(t, e, deploymentName(i), ":v2", 0) }) }},
	)...))
	harness.Covered(t, s.n, "rollouts at once, and their floor")
}

// way is one to release all Deployments at once, which shaped changes before they are made; nil: they are as Kubernetes makes them.
type way struct {
	name   string
	do     func(ctx context.Context)
	shaped func(d *appsv1.Deployment)
	// warms says that it is not measured.
	warms bool
}

// between are ways with the first of them, which is the plain one, three times: whatever comes first on a new stack finds nothing warm, so that it is not measured;
// and how the last time compares with the second says how much the machine's own speed has changed meanwhile.
func between(ways []way) []way {
	first, last := ways[0], ways[0]
	first.warms, last.name = true, ways[0].name+", again"
	return append(append([]way{first}, ways...), last)
}

// inTurns are Slipway and the floor that keeps the same promises, twice each: what one run of either says is within what the machine's speed changes by.
func inTurns(floor, slipway way) []way { return []way{floor, slipway, floor, slipway} }

// measureWays measures one after the other and prints each beside the first, which is the plain update.
func measureWays(t *testing.T, e *harness.Engine, s setting, ways []way) {
	t.Helper()
	var plain usage
	for _, w := range between(ways) {
		s.shaped = w.shaped
		makeDeployments(t, e, s)
		released := way{name: w.name, warms: w.warms, do: func(ctx context.Context) {
			w.do(ctx)
			waitReleased(t, e, s.n, ":v2")
		}}
		plain = released.measure(t, e, plain)
		settle(t, e)
		clearAway(t, e, e.Apps)
	}
}

// measure measures it, and prints it beside the plain way, which it answers: the first one is that itself.
func (w way) measure(t *testing.T, e *harness.Engine, plain usage) usage {
	t.Helper()
	if w.warms {
		w.do(t.Context())
		return plain
	}
	own := cpu(os.Getpid())
	ctx, over := context.WithCancel(t.Context())
	used := measure(t, e, func() { w.do(ctx) })
	over()
	own = cpu(os.Getpid()) - own
	if plain.by == nil {
		plain = used
	}
	printWay(t, w.name, plain, used, own)
	return plain
}

// printWay prints what one way took, and own seconds of CPU of the benchmark itself.
func printWay(t *testing.T, name string, plain, used usage, own float64) {
	wall, control := used.wall.Seconds()/plain.wall.Seconds(), used.control()/plain.control()
	noted(t, name+": wall time, ratio", wall)
	noted(t, name+": control plane, ratio", control)
	noted(t, name+": CPU of Temporal, s", used.temporal())
	noted(t, name+": CPU of slipway, s", used.slipway())
	noted(t, name+": CPU of the benchmark, s", own)
	fmt.Printf("  %-12s %5.1f s, %.2f times; CPU: control plane %5.1f s, %.2f times; Temporal %4.1f, slipway %4.1f, benchmark %4.1f s\n", name, used.wall.Seconds(), wall,
		used.control(), control, used.temporal(), used.slipway(), own)
}

// podByPod has a Deployment bring one pod after the other.
func podByPod(d *appsv1.Deployment) {
	none, one := intstr.FromInt32(0), intstr.FromInt32(1)
	d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &one, MaxUnavailable: &none}}
}
