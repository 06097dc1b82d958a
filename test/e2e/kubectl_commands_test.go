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

	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/observer"
)

// clientAction is something that a client does to the object or to the workload while the release waits at its first
// step.
type clientAction struct {
	title string
	// do performs the action and waits for its effect. The release may still be ending when it returns.
	do func(d *declared)
	// unless returns the reason why the action does not apply to a cell, "" if it does; nil: it applies to each cell.
	unless func(c cell) string
}

// cellsFor returns the cells that the action applies to.
func (action clientAction) cellsFor(cells []cell) (able []cell) {
	for _, c := range cells {
		if action.unless == nil || action.unless(c) == "" {
			able = append(able, c)
		}
	}
	return able
}

// clientActions are what clients do in the middle of a release.
var clientActions = []clientAction{
	{"the stable template is written to the workload: the release is rolled back", func(d *declared) {
		d.revertImage("alice", harness.StableImage(d.rollout.Name))
		require.Contains(d.t, d.history(), "rollback by alice (kubectl): accepted",
			"the user who wrote the stable template is the actor of the rollback")
		d.requireRolledBack()
	}, nil},
	{"the stable template is written while the release is paused", func(d *declared) {
		d.patchSpec("alice", map[string]any{"strategy": map[string]any{"paused": true}})
		d.waitReason(v1beta1.ReasonPaused)
		d.revertImage("alice", harness.StableImage(d.rollout.Name))
		d.requireRolledBack()
	}, nil},
	{"the stable template is written at each later step", func(d *declared) {
		for last := 2; last <= len(d.rollout.Strategy.Steps) && d.needsApproval(last); last++ {
			if last > 2 { // a version that was rolled back is not released again without an approval
				d.startObserver()
				d.rollout.Image = fmt.Sprintf("registry.test/%s:v%d", d.rollout.Name, last)
				d.setImage("bob", d.rollout.Image)
			}
			for step := 1; step < last; step++ {
				d.approve(step)
			}
			d.waitStep(last)
			d.watch.MarkPaused(d.t, last)
			if d.rollout.Strategy.Style == strategy.StyleBlueGreen && d.rollout.Kind.Kind == "Deployment" {
				// the Deployment controller removes all new pods at once even when it is held: docs/kruise.md
				d.watch.ForeignChange(d.t)
			}
			d.revertImage("alice", harness.StableImage(d.rollout.Name))
			d.requireRolledBack()
		}
	}, nil},
	{"nextStepIndex jumps forwards", func(d *declared) {
		d.watch.AllowStep(d.t, len(d.rollout.Strategy.Steps))
		d.patchStatus("bob", map[string]any{"nextStepIndex": len(d.rollout.Strategy.Steps)})
		d.waitObject("at the last step", func(r *v1beta1.Rollout) bool {
			return int(commonStatus(r).CurrentStepIndex) == len(d.rollout.Strategy.Steps)
		})
		d.approveRemaining()
		require.Contains(d.t, d.history(), "jump by bob (kubectl): accepted", "a jump is recorded as a command")
		d.requirePromoted()
	}, nil},
	{"nextStepIndex jumps back: traffic moves, pods stay", func(d *declared) {
		d.approve(1)
		d.waitStep(2)
		d.watch.AllowStep(d.t, 2)
		d.patchStatus("bob", map[string]any{"nextStepIndex": 1})
		d.waitStep(1)
		d.watch.AllowStep(d.t, 2)
		d.patchStatus("approver", map[string]any{"currentStepState": "StepReady"})
		d.approve(2)
		d.approveRemaining()
		d.requirePromoted()
	}, nil},
	{"spec.strategy.paused pauses and resumes it", func(d *declared) {
		d.patchSpec("alice", map[string]any{"strategy": map[string]any{"paused": true}})
		d.waitReason(v1beta1.ReasonPaused)
		d.patchSpec("alice", map[string]any{"strategy": map[string]any{"paused": false}})
		d.waitReason(v1beta1.ReasonInRolling)
		require.Contains(d.t, d.history(), "pause by alice (kubectl): accepted",
			"the editor of the object is the actor of the pause")
		require.Contains(d.t, d.history(), "resume by alice (kubectl): accepted", "and of the resume")
		d.approve(1)
		d.approve(2)
		d.approveRemaining()
		d.requirePromoted()
	}, nil},
	{"the workload is scaled up and down", func(d *declared) {
		for _, size := range []int32{6, 4} {
			d.watch.MarkMoving(d.t)
			d.scale(size)
			d.waitObject(fmt.Sprintf("of %d pods", size), func(r *v1beta1.Rollout) bool {
				return commonStatus(r).ObservedWorkloadGeneration == d.object().GetGeneration() &&
					commonStatus(r).CurrentStepState == "StepPaused"
			})
		}
	}, func(c cell) string {
		if c.kind.Kind == "DaemonSet" {
			return "its size is the number of nodes"
		}
		return ""
	}},
	{"its steps are edited: it continues from the current pods", func(d *declared) {
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
		d.watch.AllowStep(d.t, 2)
		d.patchSpec("alice", map[string]any{"strategy": edited})
		d.waitObject("edited", func(r *v1beta1.Rollout) bool { return r.Status.ObservedGeneration == r.Generation })
		d.waitStep(1)
		d.watch.AllowStep(d.t, 3)
		d.patchStatus("approver", map[string]any{"currentStepState": "StepReady"})
		d.approveRemaining()
		d.requirePromoted()
	}, nil},
	{"a third version is declared: the release rolls back to stable and starts again with the third version",
		func(d *declared) {
			d.declareThirdVersion("carol")
			d.approve(1)
			d.approve(2)
			d.approveRemaining()
			require.Contains(d.t, d.history(), "start by carol (kubectl): accepted",
				"the user who declared it is the actor of its start")
			d.requirePromoted()
		}, func(c cell) string {
			if c.style == strategy.StyleBlueGreen {
				return "a blue-green supports only two versions"
			}
			return ""
		}},
	{"a third version of a blue-green: nothing moves until the second is declared again", func(d *declared) {
		d.declareThirdVersionOfBlueGreen()
		d.setImage("alice", d.rollout.NewestImage())
		d.approveRemaining()
		d.requirePromoted()
	}, func(c cell) string {
		if c.style != strategy.StyleBlueGreen {
			return "only a blue-green keeps two complete versions"
		}
		return ""
	}},
	{"it is disabled: everything borrowed is restored, and the workload's own controller continues", func(d *declared) {
		d.watch.AllowFinish(d.t)
		begin := time.Now()
		d.patchSpec("alice", map[string]any{"disabled": true})
		d.waitObject("Disabled", func(r *v1beta1.Rollout) bool { return r.Status.Phase == v1beta1.PhaseDisabled })
		if len(d.rollout.Strategy.Routings) == 0 {
			require.Less(d.t, time.Since(begin), maxDelayWithoutPods, "there is nothing to wait for")
		}
		require.Empty(d.t, d.claim(), "the claim is released before the phase is Disabled")
		d.requireRestored(observer.End{Images: map[string]string{"app": d.rollout.NewestImage()}, Released: true})
	}, nil},
	{"it is deleted: everything borrowed is restored, and the workload's own controller continues", func(d *declared) {
		d.watch.AllowFinish(d.t)
		require.NoError(d.t, d.rolloutClient("alice").Delete(context.Background(), d.rollout.Name,
			metav1.DeleteOptions{}))
		d.waitDeleted()
		require.Empty(d.t, d.claim(), "the claim is released before the object is deleted")
		d.requireRestored(observer.End{Images: map[string]string{"app": d.rollout.NewestImage()}, Released: true})
	}, nil},
}

// A blue-green release has no room for a third version: nothing moves until the second or the first version is declared
// again.
func TestLongKubectlBlueGreen_Waits_WhenThirdVersionDeclared(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e, g := harness.StartGuarded(t)
	for _, back := range []bool{false, true} {
		t.Run(fmt.Sprintf("back to the first: %t", back), func(t *testing.T) {
			t.Parallel()
			d := declare(t, e, g, deploymentCell(strategy.StyleBlueGreen, harness.NoProvider), nil)
			d.setImage("alice", d.rollout.NewestImage())
			d.waitStep(1)
			d.declareThirdVersionOfBlueGreen()
			if back {
				d.revertImage("alice", harness.StableImage(d.rollout.Name))
				d.requireRolledBack()
				return
			}
			d.setImage("alice", d.rollout.NewestImage())
			d.approve(1)
			d.approve(2)
			d.approve(3)
			d.waitEnd(true)
			d.requirePromoted()
		})
	}
}

func revisionOf(r *v1beta1.Rollout) string {
	if b := r.Status.BlueGreenStatus; b != nil {
		return b.UpdatedRevision
	}
	return r.Status.CanaryStatus.CanaryRevision
}

// waitReason waits until the condition Progressing has a reason.
func (d *declared) waitReason(reason string) {
	d.t.Helper()
	d.waitObject(reason, func(r *v1beta1.Rollout) bool {
		return conditionOf(r, v1beta1.ConditionProgressing).Reason == reason
	})
}

// approveRemaining approves the remaining steps and waits for the end.
func (d *declared) approveRemaining() {
	d.t.Helper()
	for {
		r := d.waitObject("paused at a step, or ended", func(r *v1beta1.Rollout) bool {
			return commonStatus(r).CurrentStepState == "StepPaused" || r.Status.Phase == v1beta1.PhaseHealthy
		})
		if r.Status.Phase == v1beta1.PhaseHealthy {
			break
		}
		d.sendApproval(int(commonStatus(r).CurrentStepIndex))
	}
	d.waitEnd(true)
}

// revertImage declares the stable image again and waits until the release has rolled back.
func (d *declared) revertImage(user, image string) {
	d.t.Helper()
	d.watch.MarkMoving(d.t)
	d.setImage(user, image)
	d.waitEnd(false)
}

// declareThirdVersion declares a third version in the middle of a release and waits until the release of that version
// waits at its first step.
func (d *declared) declareThirdVersion(user string) {
	d.t.Helper()
	second := d.get().Status.Slipway.Release
	d.watch.MarkMoving(d.t)
	d.rollout.Image = "registry.test/" + d.rollout.Name + ":v3"
	d.setImage(user, d.rollout.Image)
	d.waitObject("paused with the third version", func(r *v1beta1.Rollout) bool {
		return r.Status.Slipway.Release != second && commonStatus(r).CurrentStepState == "StepPaused"
	})
	d.watch.AllowStep(d.t, 1)
}

// declareThirdVersionOfBlueGreen declares a third version in the middle of a blue-green release and waits until the
// object reports that it is stalled.
func (d *declared) declareThirdVersionOfBlueGreen() {
	d.t.Helper()
	d.watch.MarkPaused(d.t, 1)
	d.setImage("carol", "registry.test/"+d.rollout.Name+":v3")
	stalled := d.waitObject("stalled", func(r *v1beta1.Rollout) bool {
		return conditionOf(r, v1beta1.ConditionStalled).Status == "True"
	})
	require.Contains(d.t, stalled.Status.Message, "no room for a third version", "the message says why")
	require.NotEqual(d.t, "StepPaused", commonStatus(stalled).CurrentStepState, "no step can be approved now")
	d.watch.RequirePromises(d.t)
}

func (d *declared) scale(size int32) {
	d.t.Helper()
	patch := []byte(fmt.Sprintf(`{"spec":{"replicas":%d}}`, size))
	_, err := d.Dynamic(d.t).Resource(d.rollout.Kind.GVR).Namespace(d.Apps).Patch(context.Background(), d.rollout.Name,
		types.MergePatchType, patch,
		metav1.PatchOptions{})
	require.NoError(d.t, err)
}

// The most common actions of clients during a release, watched by the observer.
func TestKubectlActions_DuringRelease(t *testing.T) {
	t.Parallel()
	runClientActions(t, func(i int) []cell {
		if i%3 != 0 {
			return nil
		}
		return []cell{deploymentCell(strategy.StylePartition, harness.NoProvider)}
	})
}

// Each action, with one style each.
func TestLongKubectlActions_DuringRelease(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	runClientActions(t, func(i int) []cell {
		return []cell{deploymentCell([]strategy.Style{strategy.StyleCanary, strategy.StylePartition}[i%2],
			harness.NoProvider)}
	})
}

// Each action, with every kind, style and provider.
func TestSoakKubectlActions_DuringRelease(t *testing.T) {
	harness.Soak(t)
	runClientActions(t, func(int) []cell { return allCells() })
}

// runClientActions performs each action on a release of each cell that cellsOf returns for it.
func runClientActions(t *testing.T, cellsOf func(action int) []cell) {
	t.Helper()
	e, g := harness.StartGuarded(t)
	runClientActionsOn(t, e, g, cellsOf)
}

func runClientActionsOn(t *testing.T, e *harness.Engine, g *harness.Guard, cellsOf func(action int) []cell) {
	t.Helper()
	for i, action := range clientActions {
		for _, c := range action.cellsFor(cellsOf(i)) {
			t.Run(c.String()+"/"+action.title, func(t *testing.T) {
				t.Parallel()
				d := declare(t, e, g, c, nil)
				d.setImage("alice", d.rollout.NewestImage())
				d.waitStep(1)
				action.do(d)
			})
		}
	}
}

// A rollback by a command leaves the stable template on the workload. If a tool applies the rolled-back version again,
// because its repository declares it, the release waits for an approval before its first pod.
func TestLongRolledBackVersion_WaitsForApproval_WhenAppliedAgain(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e, g := harness.StartGuarded(t)
	d := declare(t, e, g, deploymentCell(strategy.StylePartition, harness.Nginx), nil)
	d.setImage("gitops", d.rollout.NewestImage())
	d.waitStep(1)
	d.watch.MarkMoving(t)
	d.MustVerb(d.rollout.Name, "rollback", `{"actor":"dana","reason":"errors"}`)
	d.waitEnd(false)
	d.requireRolledBack()

	d.setImage("gitops", d.rollout.NewestImage())
	waiting := d.waitStep(1)
	require.Contains(t, waiting.Status.Message, "was rolled back", "the message says why")
	require.Zero(t, waiting.Status.CanaryStatus.CanaryReplicas, "no pod is replaced")
	d.watch.WaitCount(t, observer.Count{Stable: harness.SubjectSize, StableReady: harness.SubjectSize})
	d.watch.AllowStep(t, 1)
	d.patchStatus("approver", map[string]any{"currentStepState": "StepReady"})
	d.waitObject("released after all", func(r *v1beta1.Rollout) bool {
		return commonStatus(r).CurrentStepState == "StepPaused" && r.Status.CanaryStatus.CanaryReplicas == 1
	})
	d.approve(1)
	d.approve(2)
	d.waitEnd(true)
	d.requirePromoted()
}

// A template change made while the workload's own controller still replaces pods is held. The running update finishes
// first; then the release begins from its result.
func TestLongKubectlChange_IsReleased_AfterRunningUpdate(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e, g := harness.StartGuarded(t)
	d := &declared{release: prepareUnobserved(t, e, deploymentCell(strategy.StylePartition, harness.NoProvider),
		func(object map[string]any, _ *harness.Rollout) {
			slowPods(object, 3*time.Second)
		}), guard: g}
	d.setImage("alice", "registry.test/order:v1b") // the workload is not held yet
	g.EnforceOn(t, d.Apps)
	d.create(d.document(), "owner")
	d.waitGate()
	d.setImage("alice", d.rollout.NewestImage())
	d.waitStep(1)
	image := func(template any) string {
		return template.(map[string]any)["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)["image"].(string)
	}
	require.Equal(t, d.rollout.NewestImage(), image(valueAt(d.object(), "/spec/template")),
		"the workload has the declared template again")
	stable := 0
	pods, err := d.Kube.CoreV1().Pods(d.Apps).List(context.Background(), metav1.ListOptions{LabelSelector: "app=order"})
	require.NoError(t, err)
	for _, p := range pods.Items {
		require.NotEqual(t, harness.StableImage("order"), p.Spec.Containers[0].Image, "the running update is finished")
		if p.Spec.Containers[0].Image == "registry.test/order:v1b" {
			stable++
		}
	}
	require.Equal(t, harness.SubjectSize-1, stable, "the release began from the result of the update")
	d.patchStatus("approver", map[string]any{"nextStepIndex": 3})
	d.waitEnd(true)
}
