package e2e

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/kruise"
	"slipway.io/slipway/test/observer"
)

// release is an observed rollout of a workload that the test created for it.
type release struct {
	*harness.Engine
	t       *testing.T
	rollout harness.Rollout
	watch   *observer.RolloutWatch
}

// cell is a combination of kind, style and provider.
type cell struct {
	kind     harness.Kind
	style    strategy.Style
	provider harness.Provider
}

func (c cell) String() string { return fmt.Sprintf("%s/%s/%s", c.kind.Title, c.style, c.provider) }

// deploymentCell is the cell of most tests.
func deploymentCell(style strategy.Style, provider harness.Provider) cell {
	return cell{harness.Deployment, style, provider}
}

// steps are the three steps of most tests: 25 % of the pods with 20 % of the traffic, 50 % of both, all. The last step
// of a partition routes no traffic, because no stable pod remains; a blue-green begins without traffic and ends with
// all of it.
func (c cell) steps() []strategy.Step {
	traffic := [3]int32{20, 50, -1}
	switch {
	case c.provider == harness.NoProvider:
		traffic = [3]int32{-1, -1, -1}
	case c.style == strategy.StyleBlueGreen:
		traffic = [3]int32{0, 50, 100}
	case c.style == strategy.StyleCanary:
		traffic[2] = 100
	}
	switch {
	// a CloneSet can exceed half of its size only in the first step
	case c.style == strategy.StyleBlueGreen && c.kind == harness.CloneSet:
		return []strategy.Step{harness.Step("100%", traffic[0]), harness.Step("100%", traffic[1]),
			harness.Step("100%", traffic[2])}
	case c.style == strategy.StyleBlueGreen:
		return []strategy.Step{harness.Step("50%", traffic[0]), harness.Step("100%", traffic[1]),
			harness.Step("100%", traffic[2])}
	}
	return []strategy.Step{harness.Step("25%", traffic[0]), harness.Step("50%", traffic[1]),
		harness.Step("100%", traffic[2])}
}

// prepare creates a workload and its routes in a new namespace and starts the observer. change may alter the workload
// and the rollout.
func prepare(t *testing.T, engine *harness.Engine, c cell,
	change func(object map[string]any, r *harness.Rollout)) *release {
	t.Helper()
	r := prepareUnobserved(t, engine, c, change)
	r.startObserver()
	return r
}

// prepareUnobserved is prepare without the observer.
func prepareUnobserved(t *testing.T, engine *harness.Engine, c cell,
	change func(object map[string]any, r *harness.Rollout)) *release {
	t.Helper()
	const name = "order"
	e := engine.ForTest(t)
	r := harness.Rollout{Kind: c.kind, Name: name, Strategy: strategy.Strategy{Style: c.style, Steps: c.steps()}}
	if c.provider != harness.NoProvider {
		// The routings refer to the routes that are created below.
		r.Strategy.Routings = e.RoutingOf(c.provider, name)
	}
	if c.kind.Custom() && !e.OpenKruise {
		kruise.Install(t, e.REST)
		kruise.Start(t, e.REST, e.Apps)
	}
	e.Subject(c.kind, name, func(object map[string]any) {
		if change != nil {
			change(object, &r)
		}
	})
	e.Route(c.provider, name)
	if c.style == strategy.StyleBlueGreen {
		e.Autoscaler(c.kind, name) // it would scale the workload that a blue-green doubles
	}
	return &release{Engine: e, t: t, rollout: r}
}

// startObserver starts the observer: the current objects must exist again at the end.
func (r *release) startObserver() {
	r.t.Helper()
	s := r.rollout.Strategy
	r.watch = observer.FollowRollout(r.t, r.REST, r.Apps,
		observer.Rollout{Workload: r.rollout.Kind.ObserverName(r.rollout.Name), Style: s.Style, Steps: s.Steps,
			Routings: s.Routings})
}

// startRelease is prepare and starts the rollout.
func startRelease(t *testing.T, engine *harness.Engine, c cell,
	change func(object map[string]any, r *harness.Rollout)) *release {
	t.Helper()
	r := prepare(t, engine, c, change)
	r.StartRollout(r.rollout)
	return r
}

// waitPaused waits until the rollout is paused at a step; from then on pods and traffic must be exactly as the step
// requires.
func (r *release) waitPaused(step int) rollout.Status {
	r.t.Helper()
	status := r.WaitForApproval(r.rollout.Name, step)
	r.watch.MarkPaused(r.t, step)
	return status
}

// approve waits until the step is paused and approves it. The next step or the end follows.
func (r *release) approve(step int) {
	r.t.Helper()
	status := r.waitPaused(step)
	r.watch.AllowStep(r.t, step+1)
	r.Approve(r.rollout.Name, status)
}

// needsApproval reports whether a step waits for an approval.
func (r *release) needsApproval(step int) bool {
	steps := r.rollout.Strategy.Steps
	passes := step == len(steps) && r.rollout.Strategy.Style != strategy.StyleBlueGreen &&
		steps[step-1].Replicas.String() == "100%"
	return !passes && steps[step-1].PauseSeconds == nil
}

// approveAll approves all steps from one on.
func (r *release) approveAll(from int) {
	r.t.Helper()
	for step := from; step <= len(r.rollout.Strategy.Steps); step++ {
		if r.needsApproval(step) {
			r.approve(step)
		}
	}
}

// sendVerb sends a verb that must be accepted, and informs the observer that the rollout leaves its step.
func (r *release) sendVerb(verb, body string) rollout.Status {
	r.t.Helper()
	r.watch.MarkMoving(r.t)
	return r.MustVerb(r.rollout.Name, verb, body)
}

// requirePromoted waits for the end at the new version and requires that everything borrowed is restored.
func (r *release) requirePromoted() rollout.Status {
	r.t.Helper()
	status := r.WaitPhase(r.rollout.Name, rollout.PhaseHealthy)
	r.requireRestored(observer.End{Images: map[string]string{"app": r.rollout.NewestImage()}})
	return status
}

// requireRolledBack waits for the end at the stable version and requires that everything is restored.
func (r *release) requireRolledBack() rollout.Status {
	r.t.Helper()
	status := r.WaitPhase(r.rollout.Name, rollout.PhaseRolledBack)
	r.requireRestored(observer.End{})
	return status
}

func (r *release) requireRestored(end observer.End) {
	r.t.Helper()
	r.watch.RequirePromises(r.t)
	r.watch.RequireNoLeftovers(r.t)
	r.watch.RequireFinalised(r.t, end)
}

// claim returns the holder of the workload, "" if there is none.
func (r *release) claim() string {
	return r.object().GetAnnotations()[workload.AnnotationClaimedBy]
}

func (r *release) object() *unstructured.Unstructured {
	r.t.Helper()
	return r.Object(r.rollout.Kind, r.rollout.Name)
}

// untouchedEnd is the end state of a workload that the release has not changed.
var untouchedEnd = observer.End{}

// slowPods makes every pod take that long to become ready.
func slowPods(object map[string]any, after time.Duration) {
	annotations := map[string]any{"dev.slipway.io/behaviour": "slow", "dev.slipway.io/ready-after": after.String()}
	_ = unstructured.SetNestedMap(object, annotations, "spec", "template", "metadata", "annotations")
}
