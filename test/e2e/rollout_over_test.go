package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// brokenUpdate is a native update that hangs: the tag of its image, by which the local stack breaks its pods, and a
// part of the reason that the cluster shows.
type brokenUpdate struct{ tag, reason string }

var (
	noImage        = brokenUpdate{"bad", "ImagePullBackOff"}
	crashLoop      = brokenUpdate{"crash", "CrashLoopBackOff"}
	deadlinePassed = brokenUpdate{"never-ready", "progressDeadlineSeconds"} // of a Deployment
)

// readyPods returns the UIDs of the ready pods by the image of their container, and how many pods of each image are not
// ready.
func (r *release) readyPods() (ready map[string][]string, broken map[string]int) {
	r.t.Helper()
	list, err := r.Kube.CoreV1().Pods(r.Apps).List(context.Background(), metav1.ListOptions{LabelSelector: "app=order"})
	require.NoError(r.t, err)
	ready, broken = map[string][]string{}, map[string]int{}
	for _, p := range list.Items {
		image := p.Spec.Containers[0].Image
		isReady := false
		for _, c := range p.Status.Conditions {
			isReady = isReady || c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}
		if isReady && p.DeletionTimestamp == nil {
			ready[image] = append(ready[image], string(p.UID))
		} else {
			broken[image]++
		}
	}
	return ready, broken
}

// waitPods waits until the workload has this many ready pods of an image, and no pod that is not ready.
func (r *release) waitPods(image string, want int) {
	r.t.Helper()
	var ready map[string][]string
	var broken map[string]int
	require.Eventually(r.t, func() bool {
		ready, broken = r.readyPods()
		return len(ready[image]) == want && len(broken) == 0
	}, harness.Patience, harness.Tick, "%s", lazily(func() string {
		return fmt.Sprintf("%d ready pods of %s are wanted: %v are ready, %v are not", want, image, ready, broken)
	}))
}

// hang makes the workload's own update hang, and returns the UIDs of the pods that serve meanwhile.
func (r *release) hang(by brokenUpdate) (serving []string) {
	r.t.Helper()
	if by == deadlinePassed {
		r.PatchObject(r.rollout.Kind, r.rollout.Name, `{"spec":{"progressDeadlineSeconds":3}}`)
	}
	r.SetImage(r.rollout.Kind, r.rollout.Name, "registry.test/order:"+by.tag)
	stable := harness.StableImage(r.rollout.Name)
	require.Eventually(r.t, func() bool {
		ready, broken := r.readyPods()
		serving = ready[stable]
		delete(broken, stable)
		object := r.object()
		generation, _, _ := unstructured.NestedInt64(object.Object, "status", "observedGeneration")
		return len(broken) > 0 && len(serving) == 3 && generation == object.GetGeneration() && r.inTrouble(by)
	}, harness.Patience, harness.Tick, "the update does not hang")
	return serving
}

// inTrouble reports whether the cluster shows why the update hangs.
func (r *release) inTrouble(by brokenUpdate) bool {
	list, err := r.Kube.CoreV1().Pods(r.Apps).List(context.Background(), metav1.ListOptions{LabelSelector: "app=order"})
	require.NoError(r.t, err)
	for _, p := range list.Items {
		for _, c := range p.Status.ContainerStatuses {
			if c.State.Waiting != nil && c.State.Waiting.Reason == by.reason {
				return true
			}
		}
	}
	conditions, _, _ := unstructured.NestedSlice(r.object().Object, "status", "conditions")
	raw, err := json.Marshal(conditions)
	require.NoError(r.t, err)
	return strings.Contains(string(raw), "ProgressDeadlineExceeded")
}

// startOver starts the release, which must be accepted with a warning that names why the update hangs, and begin at
// once.
func (r *release) startOver(by brokenUpdate) {
	r.t.Helper()
	began := time.Now()
	var answer harness.Answer
	require.Eventually(r.t, func() bool {
		answer = r.TryStartRollout(r.rollout)
		return answer.Status != http.StatusServiceUnavailable
	}, harness.Patience, harness.Tick, "the engine never answers")
	require.Equal(r.t, http.StatusAccepted, answer.Status, "%s", answer.Body)
	var started struct{ Warnings []string }
	require.NoError(r.t, json.Unmarshal(answer.Body, &started))
	warnings := strings.Join(started.Warnings, "\n")
	require.Contains(r.t, warnings, "hangs (", "the answer warns")
	require.Contains(r.t, warnings, by.reason)
	status := r.WaitRollout(r.rollout.Name, "a stable version", func(s rollout.Status) bool {
		return len(s.StableImages) > 0 || s.Phase.Final()
	})
	require.Equal(r.t, harness.StableImage(r.rollout.Name), status.StableImages["app"], "the version that served")
	require.Less(r.t, time.Since(began), 40*time.Second, "it does not wait for settleSeconds")
}

// overCell is a release of this cell over a native update that hangs.
type overCell struct {
	cell
	by brokenUpdate
}

// A native update that hangs is released over at once. Its broken pods go first: at the first pause every pod that
// served is still there.
func TestRollout_BeginsAtOnceOverHungUpdate(t *testing.T) {
	t.Parallel()
	testBeginsOverHungUpdate(t, []overCell{
		{deploymentCell(strategy.StylePartition, harness.Nginx), noImage},
		{cell{harness.StatefulSet, strategy.StylePartition, harness.NoProvider}, crashLoop},
		{cell{harness.DaemonSet, strategy.StylePartition, harness.NoProvider}, noImage},
	})
}

func TestLongRollout_BeginsAtOnceOverHungUpdate_OfEachStyleAndTrouble(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	testBeginsOverHungUpdate(t, []overCell{
		{deploymentCell(strategy.StylePartition, harness.NoProvider), crashLoop},
		{deploymentCell(strategy.StylePartition, harness.NoProvider), deadlinePassed},
		{deploymentCell(strategy.StyleCanary, harness.Gateway), noImage},
		{deploymentCell(strategy.StyleBlueGreen, harness.NoProvider), crashLoop},
		{cell{harness.StatefulSet, strategy.StylePartition, harness.NoProvider}, noImage},
		{cell{harness.DaemonSet, strategy.StylePartition, harness.NoProvider}, crashLoop},
	})
}

func testBeginsOverHungUpdate(t *testing.T, cells []overCell) {
	e := harness.Shared(t)
	for _, c := range cells {
		t.Run(strings.ReplaceAll(c.String(), "/", "-")+"/"+c.by.tag, func(t *testing.T) {
			t.Parallel()
			r := prepareUnobserved(t, e, c.cell, nil)
			settings := r.object().DeepCopy()
			serving := r.hang(c.by)
			r.startOver(c.by)

			status := r.WaitForApproval(r.rollout.Name, 1)
			if c.style != strategy.StyleBlueGreen { // which adds pods, and removes the others at the end
				r.waitPods(r.rollout.NewestImage(), 1) // the broken pods went first
			}
			ready, _ := r.readyPods()
			require.Subset(t, ready[harness.StableImage(r.rollout.Name)], serving, "no ready pod went for a broken one")
			r.Approve(r.rollout.Name, status)
			for step := 2; step <= len(r.rollout.Strategy.Steps); step++ {
				if r.needsApproval(step) {
					r.Approve(r.rollout.Name, r.WaitForApproval(r.rollout.Name, step))
				}
			}
			r.WaitPhase(r.rollout.Name, rollout.PhaseHealthy)
			r.waitPods(r.rollout.NewestImage(), harness.SubjectSize)
			r.requireOwnSettings(settings)
		})
	}
}

// requireOwnSettings requires that spec is what it was, except for the template and the deadline that a test has set.
func (r *release) requireOwnSettings(before *unstructured.Unstructured) {
	r.t.Helper()
	spec := func(o *unstructured.Unstructured) map[string]any {
		s, _, _ := unstructured.NestedMap(o.Object, "spec")
		delete(s, "template")
		delete(s, "progressDeadlineSeconds")
		return s
	}
	now := r.object()
	require.Equal(r.t, spec(before), spec(now))
	require.Empty(r.t, r.claim())
	for name := range now.GetAnnotations() {
		require.False(r.t, strings.HasPrefix(name, "slipway.io/"), "%s is left on the workload", name)
	}
}

// Rolled back, and stopped before its first step, a release over an update that hangs leaves the version that served.
func TestRollout_LeavesServingVersion_WhenRolledBackOverHungUpdate(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	for _, kind := range []harness.Kind{harness.Deployment, harness.StatefulSet, harness.DaemonSet} {
		t.Run(kind.Title, func(t *testing.T) {
			t.Parallel()
			r := prepareUnobserved(t, e, cell{kind, strategy.StylePartition, harness.NoProvider}, nil)
			settings := r.object().DeepCopy()
			r.hang(noImage)
			r.startOver(noImage)
			r.WaitForApproval(r.rollout.Name, 1)
			r.MustVerb(r.rollout.Name, "rollback", `{"actor":"ann"}`)
			r.WaitPhase(r.rollout.Name, rollout.PhaseRolledBack)
			r.waitPods(harness.StableImage(r.rollout.Name), harness.SubjectSize)
			r.requireOwnSettings(settings)
		})
	}
}

// The version that serves is released again: there is nothing to go through in steps, and the broken pods go.
func TestRollout_GoesBackWithoutSteps_WhenServingVersionIsReleasedOverHungUpdate(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	for _, kind := range []harness.Kind{harness.Deployment, harness.StatefulSet, harness.DaemonSet} {
		t.Run(kind.Title, func(t *testing.T) {
			t.Parallel()
			r := prepareUnobserved(t, e, cell{kind, strategy.StylePartition, harness.NoProvider},
				func(_ map[string]any, r *harness.Rollout) { r.Image = harness.StableImage(r.Name) })
			settings := r.object().DeepCopy()
			serving := r.hang(noImage)
			r.startOver(noImage)
			require.Contains(t, r.WaitPhase(r.rollout.Name, rollout.PhaseHealthy).Reason, "which hung, was taken back")
			r.waitPods(harness.StableImage(r.rollout.Name), harness.SubjectSize)
			ready, _ := r.readyPods()
			require.Subset(t, ready[harness.StableImage(r.rollout.Name)], serving)
			r.requireOwnSettings(settings)
		})
	}
}

// A StatefulSet of one pod, and a Deployment of type Recreate, have no pod of the version before: it is the stable one
// nevertheless.
func TestRollout_RollsBackToVersionBefore_WhenHungUpdateTookAllPods(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	for _, kind := range []harness.Kind{harness.Deployment, harness.StatefulSet} {
		t.Run(kind.Title, func(t *testing.T) {
			t.Parallel()
			r := prepareUnobserved(t, e, cell{kind, strategy.StylePartition, harness.NoProvider},
				func(object map[string]any, _ *harness.Rollout) {
					_ = unstructured.SetNestedField(object, int64(1), "spec", "replicas")
					if kind == harness.Deployment {
						_ = unstructured.SetNestedMap(object, map[string]any{"type": "Recreate"}, "spec", "strategy")
					}
				})
			r.rollout.Strategy.Steps = []strategy.Step{harness.Step("100%", -1)}
			r.SetImage(kind, r.rollout.Name, "registry.test/order:bad")
			require.Eventually(t, func() bool { return r.inTrouble(noImage) }, harness.Patience, harness.Tick,
				"the update does not hang")
			r.rollout.Image = "registry.test/order:crash"
			r.startOver(noImage)
			r.WaitRollout(r.rollout.Name, "a new pod", func(s rollout.Status) bool { return s.CanaryReplicas > 0 })
			r.MustVerb(r.rollout.Name, "rollback", `{"actor":"ann"}`)
			r.WaitPhase(r.rollout.Name, rollout.PhaseRolledBack)
			r.waitPods(harness.StableImage(r.rollout.Name), 1)
		})
	}
}

// An update that goes on is waited for: what it brings is the stable version.
func TestRollout_WaitsForUpdateThatProgresses(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	for _, kind := range []harness.Kind{harness.Deployment, harness.StatefulSet, harness.DaemonSet} {
		t.Run(kind.Title, func(t *testing.T) {
			t.Parallel()
			r := prepareUnobserved(t, e, cell{kind, strategy.StylePartition, harness.NoProvider}, nil)
			r.SetImage(kind, r.rollout.Name, "registry.test/order:slow") // each pod is ready after 5 s
			answer := r.TryStartRollout(r.rollout)
			require.Equal(t, http.StatusAccepted, answer.Status, "%s", answer.Body)
			require.NotContains(t, string(answer.Body), "hangs")
			status := r.WaitForApproval(r.rollout.Name, 1)
			require.Equal(t, "registry.test/order:slow", status.StableImages["app"])
			r.MustVerb(r.rollout.Name, "rollback", `{"actor":"ann"}`)
			r.WaitPhase(r.rollout.Name, rollout.PhaseRolledBack)
			r.waitPods("registry.test/order:slow", harness.SubjectSize)
		})
	}
}

// By kubectl, under a Rollout object that was made while the update hung: the fix is released at once.
func TestKubectlRelease_BeginsAtOnceOverHungUpdate(t *testing.T) {
	t.Parallel()
	e, g := harness.StartGuarded(t)
	for _, c := range []cell{
		deploymentCell(strategy.StylePartition, harness.NoProvider),
		deploymentCell(strategy.StyleCanary, harness.Nginx),
		{harness.StatefulSet, strategy.StylePartition, harness.NoProvider},
		{harness.DaemonSet, strategy.StylePartition, harness.NoProvider},
	} {
		t.Run(strings.ReplaceAll(c.String(), "/", "-"), func(t *testing.T) {
			t.Parallel()
			d := &declared{release: prepareUnobserved(t, e, c, nil), guard: g}
			serving := d.hang(noImage)
			g.EnforceOn(t, d.Apps)
			d.create(d.document(), "owner")
			d.waitGate()
			began := time.Now()
			d.setImage("dev", d.rollout.NewestImage())
			d.waitStep(1)
			require.Less(t, time.Since(began), 55*time.Second, "it does not wait for settleSeconds")
			d.waitPods(d.rollout.NewestImage(), 1) // the broken pods went first
			ready, _ := d.readyPods()
			require.Subset(t, ready[harness.StableImage(d.rollout.Name)], serving, "no ready pod went for a broken one")
			for step := 1; step <= len(d.rollout.Strategy.Steps); step++ {
				if d.needsApproval(step) {
					d.waitStep(step)
					d.patchStatus("approver", map[string]any{"currentStepState": "StepReady"})
					d.waitObject("approved", func(r *v1beta1.Rollout) bool {
						return commonStatus(r).CurrentStepState != "StepPaused"
					})
				}
			}
			d.waitEnd(true)
			d.waitPods(d.rollout.NewestImage(), harness.SubjectSize)
		})
	}
}
