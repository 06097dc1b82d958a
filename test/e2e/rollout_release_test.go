package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workloadops"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/kruise"
	"slipway.io/slipway/test/observer"
)

// release is one observed rollout of one workload that a test has made for it.
type release struct {
	*harness.Engine
	t       *testing.T
	rollout harness.Rollout
	watch   *observer.RolloutWatch
}

// cell is a place in the matrix of kind, style and provider.
type cell struct {
	kind     harness.Kind
	style    strategy.Style
	provider harness.Provider
}

func (c cell) String() string { return fmt.Sprintf("%s/%s/%s", c.kind.Title, c.style, c.provider) }

// deploymentBy is the cell of most tests.
func deploymentBy(style strategy.Style, provider harness.Provider) cell {
	return cell{harness.Deployment, style, provider}
}

// steps are the three of most tests: a quarter of the pods with 20 % of the traffic, half of both, all. A partition's last step leaves traffic to the pods,
// since it leaves no stable one; a blue-green begins without traffic and ends with all of it.
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
	case c.style == strategy.StyleBlueGreen && c.kind == harness.CloneSet: // one grows beyond a half in its first step only
		return []strategy.Step{harness.Step("100%", traffic[0]), harness.Step("100%", traffic[1]), harness.Step("100%", traffic[2])}
	case c.style == strategy.StyleBlueGreen:
		return []strategy.Step{harness.Step("50%", traffic[0]), harness.Step("100%", traffic[1]), harness.Step("100%", traffic[2])}
	}
	return []strategy.Step{harness.Step("25%", traffic[0]), harness.Step("50%", traffic[1]), harness.Step("100%", traffic[2])}
}

// prepare makes a workload and its routes in a namespace of their own and begins to observe them. change may alter the workload and the rollout.
func prepare(t *testing.T, engine *harness.Engine, c cell, change func(object map[string]any, r *harness.Rollout)) *release {
	t.Helper()
	r := place(t, engine, c, change)
	r.follow()
	return r
}

// place is prepare before anybody observes.
func place(t *testing.T, engine *harness.Engine, c cell, change func(object map[string]any, r *harness.Rollout)) *release {
	t.Helper()
	const name = "order"
	e := engine.For(t)
	r := harness.Rollout{Kind: c.kind, Name: name, Strategy: strategy.Strategy{Style: c.style, Steps: c.steps()}}
	if c.provider != harness.NoProvider {
		// The routings name what is made below.
		r.Strategy.Routings = e.RoutingOf(c.provider, name)
	}
	if c.kind.Custom() {
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
		e.Autoscaler(c.kind, name) // it would scale what a blue-green doubles
	}
	return &release{Engine: e, t: t, rollout: r}
}

// follow begins to observe: what is there now has to be there again at the end.
func (r *release) follow() {
	r.t.Helper()
	s := r.rollout.Strategy
	r.watch = observer.FollowRollout(r.t, r.REST, r.Apps, observer.Rollout{Workload: r.rollout.Kind.Observed(r.rollout.Name), Style: s.Style, Steps: s.Steps, Routings: s.Routings})
}

// begin is prepare, and starts the rollout.
func begin(t *testing.T, engine *harness.Engine, c cell, change func(object map[string]any, r *harness.Rollout)) *release {
	t.Helper()
	r := prepare(t, engine, c, change)
	r.StartRollout(r.rollout)
	return r
}

// rest waits until the rollout rests at a step, which is exactly what was asked for.
func (r *release) rest(step int) rollout.Status {
	r.t.Helper()
	status := r.WaitRest(r.rollout.Name, step)
	r.watch.Resting(r.t, step)
	return status
}

// approve waits for the step's rest and approves it. What comes next is the next step, or the end.
func (r *release) approve(step int) {
	r.t.Helper()
	status := r.rest(step)
	r.watch.GoTo(r.t, step+1)
	r.Approve(r.rollout.Name, status)
}

// waits says whether a step waits for a person.
func (r *release) waits(step int) bool {
	steps := r.rollout.Strategy.Steps
	passes := step == len(steps) && r.rollout.Strategy.Style != strategy.StyleBlueGreen && steps[step-1].Replicas.String() == "100%"
	return !passes && steps[step-1].PauseSeconds == nil
}

// approveAll goes through the steps from one on to the end.
func (r *release) approveAll(from int) {
	r.t.Helper()
	for step := from; step <= len(r.rollout.Strategy.Steps); step++ {
		if r.waits(step) {
			r.approve(step)
		}
	}
}

// verb sends a verb that has to be accepted, with the observer told that the rest is over.
func (r *release) verb(verb, body string) rollout.Status {
	r.t.Helper()
	r.watch.Leaving(r.t)
	return r.MustVerb(r.rollout.Name, verb, body)
}

// endsNew waits for the end at the new version, and wants everything borrowed given back.
func (r *release) endsNew() rollout.Status {
	r.t.Helper()
	status := r.WaitPhase(r.rollout.Name, rollout.PhaseHealthy)
	r.record()
	r.requireHome(observer.End{Images: map[string]string{"app": r.rollout.NewestImage()}})
	return status
}

// endsStable waits for the end at the stable version, and wants everything to be as it was before.
func (r *release) endsStable() rollout.Status {
	r.t.Helper()
	status := r.WaitPhase(r.rollout.Name, rollout.PhaseRolledBack)
	r.record()
	r.requireHome(observer.End{})
	return status
}

// record keeps the rollout's history for the replay test, by the name of the test that made it (see harness.Engine.Record).
func (r *release) record() {
	r.t.Helper()
	name := strings.TrimPrefix(r.t.Name(), "TestRollout")
	r.Record(r.RolloutID(r.rollout.Name), "rollout-"+strings.ToLower(strings.NewReplacer("/", "-", ",", "", " ", "-", "_", "-").Replace(name)))
}

func (r *release) requireHome(end observer.End) {
	r.t.Helper()
	r.watch.RequirePromises(r.t)
	r.watch.RequireNothingOfOurs(r.t)
	r.watch.RequireHome(r.t, end)
}

// claim is who holds the workload, "" for nobody.
func (r *release) claim() string {
	return r.object().GetAnnotations()[workloadops.AnnotationClaimedBy]
}

func (r *release) object() *unstructured.Unstructured {
	r.t.Helper()
	return r.Object(r.rollout.Kind, r.rollout.Name)
}

// observerEndUntouched: nothing has happened.
var observerEndUntouched = observer.End{}

// slowPods makes every pod take that long to get ready.
func slowPods(object map[string]any, after time.Duration) {
	annotations := map[string]any{"dev.slipway.io/behaviour": "slow", "dev.slipway.io/ready-after": after.String()}
	_ = unstructured.SetNestedMap(object, annotations, "spec", "template", "metadata", "annotations")
}
