package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/release/kruise"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/observer"
)

// clientDeed is something that a client does by the object, or by the workload, while the release rests at its first step.
type clientDeed struct {
	title string
	// do does it and returns when it is done; what is left of the release is on its way to its end then.
	do func(d *declared)
	// unless says why a release of a cell cannot have it, "" where it can; nil: each can.
	unless func(c cell) string
}

// of are those of the cells that can have a deed.
func (deed clientDeed) of(cells []cell) (able []cell) {
	for _, c := range cells {
		if deed.unless == nil || deed.unless(c) == "" {
			able = append(able, c)
		}
	}
	return able
}

// clientDeeds are what clients do in the middle of a release.
var clientDeeds = []clientDeed{
	{"the workload is set back to its stable template: the release is taken back", func(d *declared) {
		d.takeBack("alice", harness.StableImage(d.rollout.Name))
		require.Contains(d.t, d.history(), "rollback by alice (kubectl): accepted", "who has set it back has rolled back")
		d.endsStable()
	}, nil},
	{"so it is while the release is paused", func(d *declared) {
		d.patchSpec("alice", map[string]any{"strategy": map[string]any{"paused": true}})
		d.waitReason(v1beta1.ReasonPaused)
		d.takeBack("alice", harness.StableImage(d.rollout.Name))
		d.endsStable()
	}, nil},
	{"so it is at each later step", func(d *declared) {
		for last := 2; last <= len(d.rollout.Strategy.Steps) && d.waits(last); last++ {
			if last > 2 { // a version that was taken back is not released by itself
				d.follow()
				d.rollout.Image = fmt.Sprintf("registry.test/%s:v%d", d.rollout.Name, last)
				d.setImage("bob", d.rollout.Image)
			}
			for step := 1; step < last; step++ {
				d.approve(step)
			}
			d.waitStep(last)
			d.watch.Resting(d.t, last)
			if d.rollout.Strategy.Style == strategy.StyleBlueGreen && d.rollout.Kind.Kind == "Deployment" {
				// its own controller takes all new pods at once, whatever holds it: docs/kruise.md
				d.watch.SomebodyElse(d.t)
			}
			d.takeBack("alice", harness.StableImage(d.rollout.Name))
			d.endsStable()
		}
	}, nil},
	{"nextStepIndex jumps forwards", func(d *declared) {
		d.watch.GoTo(d.t, len(d.rollout.Strategy.Steps))
		d.patchStatus("bob", map[string]any{"nextStepIndex": len(d.rollout.Strategy.Steps)})
		d.waitObject("at the last step", func(r *v1beta1.Rollout) bool { return int(common(r).CurrentStepIndex) == len(d.rollout.Strategy.Steps) })
		d.toTheEnd()
		require.Contains(d.t, d.history(), "jump by bob (kubectl): accepted", "a jump is a command like any other")
		d.endsNew()
	}, nil},
	{"and back: traffic moves, pods stay", func(d *declared) {
		d.approve(1)
		d.waitStep(2)
		d.watch.GoTo(d.t, 2)
		d.patchStatus("bob", map[string]any{"nextStepIndex": 1})
		d.waitStep(1)
		d.watch.GoTo(d.t, 2)
		d.patchStatus("approver", map[string]any{"currentStepState": "StepReady"})
		d.approve(2)
		d.toTheEnd()
		d.endsNew()
	}, nil},
	{"spec.strategy.paused holds it and lets it go on", func(d *declared) {
		d.patchSpec("alice", map[string]any{"strategy": map[string]any{"paused": true}})
		d.waitReason(v1beta1.ReasonPaused)
		d.patchSpec("alice", map[string]any{"strategy": map[string]any{"paused": false}})
		d.waitReason(v1beta1.ReasonInRolling)
		require.Contains(d.t, d.history(), "pause by alice (kubectl): accepted", "who has edited the object has paused")
		require.Contains(d.t, d.history(), "resume by alice (kubectl): accepted", "and resumed")
		d.approve(1)
		d.approve(2)
		d.toTheEnd()
		d.endsNew()
	}, nil},
	{"the workload is scaled up and down", func(d *declared) {
		for _, size := range []int32{6, 4} {
			d.watch.Leaving(d.t)
			d.scale(size)
			d.waitObject(fmt.Sprintf("of %d pods", size), func(r *v1beta1.Rollout) bool {
				return common(r).ObservedWorkloadGeneration == d.object().GetGeneration() && common(r).CurrentStepState == "StepPaused"
			})
		}
	}, func(c cell) string {
		if c.kind.Kind == "DaemonSet" {
			return "its size is the number of nodes: nobody scales it"
		}
		return ""
	}},
	{"its steps are edited: it goes on where the pods are", func(d *declared) {
		document := d.document()
		steps := document["spec"].(map[string]any)["strategy"]
		raw, err := json.Marshal(steps)
		require.NoError(d.t, err)
		var edited map[string]any
		require.NoError(d.t, json.Unmarshal(raw, &edited))
		for _, part := range edited {
			if of, is := part.(map[string]any); is {
				of["steps"].([]any)[1].(map[string]any)["pause"] = map[string]any{"duration": 1}
			}
		}
		d.watch.GoTo(d.t, 2)
		d.patchSpec("alice", map[string]any{"strategy": edited})
		d.waitObject("edited", func(r *v1beta1.Rollout) bool { return r.Status.ObservedGeneration == r.Generation })
		d.waitStep(1)
		d.watch.GoTo(d.t, 3)
		d.patchStatus("approver", map[string]any{"currentStepState": "StepReady"})
		d.toTheEnd()
		d.endsNew()
	}, nil},
	{"a third version is declared: the release goes back to stable, and begins again with that", func(d *declared) {
		d.declareThird("carol")
		d.approve(1)
		d.approve(2)
		d.toTheEnd()
		require.Contains(d.t, d.history(), "start by carol (kubectl): accepted", "who has declared it has started its release")
		d.endsNew()
	}, func(c cell) string {
		if c.style == strategy.StyleBlueGreen {
			return "it has no room for a third version"
		}
		return ""
	}},
	{"a third version of a blue-green: nothing moves until the second stands there again", func(d *declared) {
		d.declareThirdOfBlueGreen()
		d.setImage("alice", d.rollout.NewestImage())
		d.toTheEnd()
		d.endsNew()
	}, func(c cell) string {
		if c.style != strategy.StyleBlueGreen {
			return "only a blue-green keeps two versions whole"
		}
		return ""
	}},
	{"it is disabled: everything is given back, and the workload's own controller goes on", func(d *declared) {
		d.watch.Finishing(d.t)
		begin := time.Now()
		d.patchSpec("alice", map[string]any{"disabled": true})
		d.waitObject("Disabled", func(r *v1beta1.Rollout) bool { return r.Status.Phase == v1beta1.PhaseDisabled })
		if len(d.rollout.Strategy.Routings) == 0 {
			require.Less(d.t, time.Since(begin), soon, "nothing has to be waited for")
		}
		require.Empty(d.t, d.claim(), "nothing of the release is on the workload when it says so")
		d.requireHome(observer.End{Images: map[string]string{"app": d.rollout.NewestImage()}, LetGo: true})
	}, nil},
	{"it is deleted: the same", func(d *declared) {
		d.watch.Finishing(d.t)
		require.NoError(d.t, d.objects("alice").Delete(context.Background(), d.rollout.Name, metav1.DeleteOptions{}))
		d.gone()
		require.Empty(d.t, d.claim(), "nothing of the release is on the workload when it goes")
		d.requireHome(observer.End{Images: map[string]string{"app": d.rollout.NewestImage()}, LetGo: true})
	}, nil},
}

// A blue-green release has no room for a third version: nothing moves until the second stands there again, or the first.
func TestLongKubectlThirdVersionOfABlueGreen(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e, g := harness.StartGuarded(t)
	for _, back := range []bool{false, true} {
		t.Run(fmt.Sprintf("back to the first: %t", back), func(t *testing.T) {
			t.Parallel()
			d := declare(t, e, g, deploymentBy(strategy.StyleBlueGreen, harness.NoProvider), nil)
			d.setImage("alice", d.rollout.NewestImage())
			d.waitStep(1)
			d.declareThirdOfBlueGreen()
			if back {
				d.takeBack("alice", harness.StableImage(d.rollout.Name))
				d.endsStable()
				return
			}
			d.setImage("alice", d.rollout.NewestImage())
			d.approve(1)
			d.approve(2)
			d.approve(3)
			d.ends(true)
			d.endsNew()
		})
	}
}

// Another rollout-id alone is a release too: its pods get the number, and none of them is replaced.
func TestLongKubectlRolloutIDAlone(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e, g := harness.StartGuarded(t)
	for _, c := range []cell{deploymentBy(strategy.StylePartition, harness.Nginx), deploymentBy(strategy.StyleBlueGreen, harness.NoProvider),
		{harness.StatefulSet, strategy.StylePartition, harness.NoProvider}} {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			d := declare(t, e, g, c, nil)
			before := d.PodUIDs(d.rollout.Name)
			for i, id := range []string{"one", "two"} {
				d.renumber(id)
				r := d.waitObject("of number "+id, func(r *v1beta1.Rollout) bool {
					return common(r).ObservedRolloutID == id && r.Status.Phase == v1beta1.PhaseHealthy &&
						conditionOf(r, v1beta1.ConditionSucceeded).Status == "True"
				})
				require.Equal(t, common(r).StableRevision, revisionOf(r), "it serves")
				require.Equal(t, before, d.PodUIDs(d.rollout.Name), "no pod is replaced")
				pods, err := d.Kube.CoreV1().Pods(d.Apps).List(context.Background(), metav1.ListOptions{LabelSelector: rollout.LabelRolloutID + "=" + id})
				require.NoError(t, err)
				require.Len(t, pods.Items, len(before), "every pod has its number")
				require.Empty(t, d.claim())
				history := d.Rollout(d.rollout.Name).History
				require.Equal(t, rollout.Verb("start"), history[0].Verb, "release %d is on record", i+1)
			}
			d.watch.RequirePromises(t)
			d.setImage("alice", d.rollout.NewestImage())
			d.waitStep(1)
		})
	}
}

// renumber labels the workload, as a pipeline does that numbers its releases.
func (d *declared) renumber(id string) {
	d.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, kruise.KeyRolloutID, id)
	_, err := d.Dynamic(d.t).Resource(d.rollout.Kind.GVR).Namespace(d.Apps).Patch(context.Background(), d.rollout.Name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{})
	require.NoError(d.t, err)
}

func revisionOf(r *v1beta1.Rollout) string {
	if b := r.Status.BlueGreenStatus; b != nil {
		return b.UpdatedRevision
	}
	return r.Status.CanaryStatus.CanaryRevision
}

// waitReason returns when the condition Progressing has a reason.
func (d *declared) waitReason(reason string) {
	d.t.Helper()
	d.waitObject(reason, func(r *v1beta1.Rollout) bool { return conditionOf(r, v1beta1.ConditionProgressing).Reason == reason })
}

// toTheEnd approves what is left.
func (d *declared) toTheEnd() {
	d.t.Helper()
	for {
		r := d.waitObject("at rest, or over", func(r *v1beta1.Rollout) bool {
			return common(r).CurrentStepState == "StepPaused" || r.Status.Phase == v1beta1.PhaseHealthy
		})
		if r.Status.Phase == v1beta1.PhaseHealthy {
			break
		}
		d.ready(int(common(r).CurrentStepIndex))
	}
	d.ends(true)
}

// takeBack has somebody declare once more what served before the release, and returns when the release has gone back to that.
func (d *declared) takeBack(user, image string) {
	d.t.Helper()
	d.watch.Leaving(d.t)
	d.setImage(user, image)
	d.ends(false)
}

// declareThird has somebody declare a third version in the middle of a release, and returns when that one's release rests at its first step.
func (d *declared) declareThird(user string) {
	d.t.Helper()
	second := d.asked().Status.Slipway.Release
	d.watch.Leaving(d.t)
	d.rollout.Image = "registry.test/" + d.rollout.Name + ":v3"
	d.setImage(user, d.rollout.Image)
	d.waitObject("at rest with the third version", func(r *v1beta1.Rollout) bool {
		return r.Status.Slipway.Release != second && common(r).CurrentStepState == "StepPaused"
	})
	d.watch.GoTo(d.t, 1)
}

// declareThirdOfBlueGreen has somebody declare a third version in the middle of a blue-green release, and returns when the object says what it waits for.
func (d *declared) declareThirdOfBlueGreen() {
	d.t.Helper()
	d.watch.Resting(d.t, 1)
	d.setImage("carol", "registry.test/"+d.rollout.Name+":v3")
	stalled := d.waitObject("stalled", func(r *v1beta1.Rollout) bool { return conditionOf(r, v1beta1.ConditionStalled).Status == "True" })
	require.Contains(d.t, stalled.Status.Message, "no room for a third version", "it says so")
	require.NotEqual(d.t, "StepPaused", common(stalled).CurrentStepState, "nobody can approve it now")
	d.watch.RequirePromises(d.t)
}

func (d *declared) scale(size int32) {
	d.t.Helper()
	patch := []byte(fmt.Sprintf(`{"spec":{"replicas":%d}}`, size))
	_, err := d.Dynamic(d.t).Resource(d.rollout.Kind.GVR).Namespace(d.Apps).Patch(context.Background(), d.rollout.Name, types.MergePatchType, patch,
		metav1.PatchOptions{})
	require.NoError(d.t, err)
}

// What a client does in the middle of a release most of all, watched by the observer.
func TestKubectlCommands(t *testing.T) {
	t.Parallel()
	commandedByKubectl(t, func(i int) []cell {
		if i%3 != 0 {
			return nil
		}
		return []cell{deploymentBy(strategy.StylePartition, harness.NoProvider)}
	})
}

// Each deed, of one style at a time.
func TestLongKubectlCommands(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	commandedByKubectl(t, func(i int) []cell {
		return []cell{deploymentBy([]strategy.Style{strategy.StyleCanary, strategy.StylePartition}[i%2], harness.NoProvider)}
	})
}

// Each deed, of every kind, style and provider.
func TestSoakKubectlCommands(t *testing.T) {
	harness.Soak(t)
	commandedByKubectl(t, func(int) []cell { return cells() })
}

// commandedByKubectl does each deed to a release of each cell that is asked for it.
func commandedByKubectl(t *testing.T, of func(deed int) []cell) {
	e, g := harness.StartGuarded(t)
	for i, deed := range clientDeeds {
		for _, c := range deed.of(of(i)) {
			t.Run(c.String()+"/"+deed.title, func(t *testing.T) {
				t.Parallel()
				d := declare(t, e, g, c, nil)
				d.setImage("alice", d.rollout.NewestImage())
				d.waitStep(1)
				deed.do(d)
			})
		}
	}
}

// A release that was rolled back by a command leaves the stable template on the workload. A tool that applies the version once more, since that is
// what its repository declares, does not release it by itself: somebody has to approve that.
func TestLongKubectlRolledBackVersionWaits(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e, g := harness.StartGuarded(t)
	d := declare(t, e, g, deploymentBy(strategy.StylePartition, harness.Nginx), nil)
	d.setImage("gitops", d.rollout.NewestImage())
	d.waitStep(1)
	d.watch.Leaving(t)
	d.MustVerb(d.rollout.Name, "rollback", `{"actor":"dana","reason":"errors"}`)
	d.ends(false)
	d.endsStable()

	d.setImage("gitops", d.rollout.NewestImage())
	waiting := d.waitStep(1)
	require.Contains(t, waiting.Status.Message, "was rolled back", "it says why")
	require.Zero(t, waiting.Status.CanaryStatus.CanaryReplicas, "no pod has moved")
	d.watch.WaitCount(t, observer.Count{Stable: harness.SubjectSize, StableReady: harness.SubjectSize})
	d.watch.GoTo(t, 1)
	d.patchStatus("approver", map[string]any{"currentStepState": "StepReady"})
	d.waitObject("released after all", func(r *v1beta1.Rollout) bool {
		return common(r).CurrentStepState == "StepPaused" && r.Status.CanaryStatus.CanaryReplicas == 1
	})
	d.approve(1)
	d.approve(2)
	d.ends(true)
	d.endsNew()
}

// A template that is changed while the workload's own controller still replaces pods is held; what was under way is finished first, then the
// release begins from there.
func TestLongKubectlChangeInMidUpdate(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e, g := harness.StartGuarded(t)
	d := &declared{release: place(t, e, deploymentBy(strategy.StylePartition, harness.NoProvider), func(object map[string]any, _ *harness.Rollout) {
		slowPods(object, 3*time.Second)
	}), guard: g}
	d.setImage("alice", "registry.test/order:v1b") // nobody holds it yet
	g.Over(t, d.Apps)
	d.create(d.document(), "owner")
	d.waitGate()
	d.setImage("alice", d.rollout.NewestImage())
	d.waitStep(1)
	image := func(template any) string {
		return template.(map[string]any)["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)["image"].(string)
	}
	require.Equal(t, d.rollout.NewestImage(), image(at(d.object(), "/spec/template")), "what is declared stands on the workload again")
	stable := 0
	pods, err := d.Kube.CoreV1().Pods(d.Apps).List(context.Background(), metav1.ListOptions{LabelSelector: "app=order"})
	require.NoError(t, err)
	for _, p := range pods.Items {
		require.NotEqual(t, harness.StableImage("order"), p.Spec.Containers[0].Image, "the update that was under way is finished")
		if p.Spec.Containers[0].Image == "registry.test/order:v1b" {
			stable++
		}
	}
	require.Equal(t, harness.SubjectSize-1, stable, "the release began from what it brought")
	d.patchStatus("approver", map[string]any{"nextStepIndex": 3})
	d.ends(true)
}
