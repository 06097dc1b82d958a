package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/observer"
)

func idOf(t *testing.T, a harness.Answer) string {
	t.Helper()
	var accepted struct {
		ID string `json:"id"`
	}
	require.NoError(t, json.Unmarshal(a.Body, &accepted))
	return accepted.ID
}

// Another client scales the workload while a step waits or replaces pods: the split stays in proportion.
func TestRolloutKeepsProportion_WhenWorkloadIsScaled(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	half := observer.Count{Stable: 4, StableReady: 4, New: 4, NewReady: 4}
	t.Run("AtApproval", func(t *testing.T) {
		t.Parallel()
		for _, c := range []cell{deploymentCell(strategy.StylePartition, harness.Nginx),
			{harness.CloneSet, strategy.StylePartition, harness.NoProvider}} {
			t.Run(c.kind.Title, func(t *testing.T) {
				t.Parallel()
				r := startRelease(t, e, c, nil)
				r.approve(1)
				r.waitPaused(2)
				r.watch.MarkMoving(t)
				r.Scale(c.kind, r.rollout.Name, 8)
				r.watch.WaitCount(t, half)
				r.WaitRollout(r.rollout.Name, "the new size", func(s rollout.Status) bool {
					return s.Replicas == 8 && s.CanaryReadyReplicas == 4
				})
				r.watch.MarkPaused(t, 2)
				r.approveAll(2)
				r.WaitPhase(r.rollout.Name, rollout.PhaseHealthy)
				r.requireRestored(observer.End{Images: map[string]string{"app": r.rollout.NewestImage()}, Size: 8})
			})
		}
	})
	// Scaled to zero and back while a step waits: the pods are stable at first, then the step gets its share again.
	t.Run("ToZeroAndBack", func(t *testing.T) {
		t.Parallel()
		for _, c := range []cell{deploymentCell(strategy.StylePartition, harness.Nginx),
			{harness.StatefulSet, strategy.StylePartition, harness.NoProvider}} {
			t.Run(c.kind.Title, func(t *testing.T) {
				t.Parallel()
				r := startRelease(t, e, c, nil)
				r.waitPaused(1)
				r.watch.MarkMoving(t)
				r.Scale(c.kind, r.rollout.Name, 0)
				r.WaitRollout(r.rollout.Name, "no pods", func(s rollout.Status) bool {
					return s.Replicas == 0 && s.WaitingFor.Kind == rollout.WaitApproval
				})
				r.watch.WaitCount(t, observer.Count{})
				r.Scale(c.kind, r.rollout.Name, harness.SubjectSize)
				r.WaitRollout(r.rollout.Name, "the previous size", func(s rollout.Status) bool {
					return s.Replicas == harness.SubjectSize && s.CanaryReadyReplicas == 1 &&
						s.WaitingFor.Kind == rollout.WaitApproval
				})
				r.watch.WaitCount(t, observer.Count{Stable: harness.SubjectSize - 1,
					StableReady: harness.SubjectSize - 1, New: 1, NewReady: 1})
				r.Approve(r.rollout.Name, r.WaitForApproval(r.rollout.Name, 1))
				r.Approve(r.rollout.Name, r.WaitForApproval(r.rollout.Name, 2))
				r.WaitPhase(r.rollout.Name, rollout.PhaseHealthy)
			})
		}
	})
	// A StatefulSet updates from the highest ordinal: the added pods are of the new version, and no pod is reverted.
	t.Run("StatefulSetAtApproval", func(t *testing.T) {
		t.Parallel()
		r := startRelease(t, e, cell{harness.StatefulSet, strategy.StylePartition, harness.NoProvider}, nil)
		r.approve(1)
		r.waitPaused(2)
		r.watch.ForeignChange(t)
		r.Scale(harness.StatefulSet, r.rollout.Name, 8)
		r.watch.WaitCount(t, observer.Count{Stable: 2, StableReady: 2, New: 6, NewReady: 6})
		status := r.WaitRollout(r.rollout.Name, "the new size", func(s rollout.Status) bool {
			return s.Replicas == 8 && s.CanaryReadyReplicas == 6
		})
		r.watch.AllowFinish(t)
		r.Approve(r.rollout.Name, status)
		r.WaitPhase(r.rollout.Name, rollout.PhaseHealthy)
		r.requireRestored(observer.End{Images: map[string]string{"app": r.rollout.NewestImage()}, Size: 8})
	})
	t.Run("MidStep", func(t *testing.T) {
		t.Parallel()
		r := startRelease(t, e, deploymentCell(strategy.StylePartition, harness.NoProvider),
			func(object map[string]any, _ *harness.Rollout) { slowPods(object, 2*time.Second) })
		r.approve(1)
		r.WaitRollout(r.rollout.Name, "step 2 to replace pods", func(s rollout.Status) bool {
			return s.CurrentStepIndex == 2 && s.CurrentStepState == rollout.StateUpgrade
		})
		r.Scale(harness.Deployment, r.rollout.Name, 8)
		status := r.WaitForApproval(r.rollout.Name, 2)
		require.Equal(t, int32(8), status.Replicas)
		r.watch.WaitCount(t, half)
		r.sendVerb("rollback", "")
		r.WaitPhase(r.rollout.Name, rollout.PhaseRolledBack)
		r.requireRestored(observer.End{Size: 8})
	})
}

// Another client edits the template while a step waits: the rollout pauses and reports the drift. A retry restores the
// template of the release, a stop rolls back.
func TestRolloutDrift_PausesUntilRetryOrStop(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	drifted := func(t *testing.T, c cell) *release {
		r := startRelease(t, e, c, nil)
		r.waitPaused(1)
		r.watch.ForeignChange(t)
		r.SetImage(harness.Deployment, r.rollout.Name, "registry.test/order:somebody")
		status := r.WaitRollout(r.rollout.Name, "drift", func(s rollout.Status) bool {
			return s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitDrift
		})
		require.Contains(t, status.Reason, "retry", "the reason names the possible verbs")
		r.watch.TrafficProtected(t)
		return r
	}
	for _, c := range styles {
		t.Run("Retry/"+string(c.style), func(t *testing.T) {
			t.Parallel()
			r := drifted(t, c)
			r.watch.WaitSettled(t) // every pod has the image of the edit
			r.MustVerb(r.rollout.Name, "retry", `{"actor":"ann"}`)
			r.approveAll(1)
			r.requirePromoted()
		})
	}
	t.Run("Stop", func(t *testing.T) {
		t.Parallel()
		r := drifted(t, deploymentCell(strategy.StylePartition, harness.Nginx))
		r.MustVerb(r.rollout.Name, "stop", `{"actor":"ann"}`)
		r.requireRolledBack()
	})
}

// Another client deletes the workload: the rollout fails with a reason, and a stop restores the traffic.
func TestRolloutFails_WhenWorkloadIsDeleted(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	r := startRelease(t, e, deploymentCell(strategy.StylePartition, harness.Gateway), nil)
	r.waitPaused(1)
	require.NoError(t, r.Kube.AppsV1().Deployments(r.Apps).Delete(context.Background(), r.rollout.Name,
		metav1.DeleteOptions{}))
	status := r.WaitRollout(r.rollout.Name, "failed", func(s rollout.Status) bool {
		return s.Phase == rollout.PhaseFailed
	})
	require.Contains(t, status.Reason, "deleted")
	r.MustVerb(r.rollout.Name, "stop", "")
	r.WaitPhase(r.rollout.Name, rollout.PhaseCancelled)
	_, err := r.Kube.CoreV1().Services(r.Apps).Get(context.Background(), r.rollout.Name+strategy.CanarySuffix,
		metav1.GetOptions{})
	require.Error(t, err, "the canary Service is deleted")
	r.watch.RequireNoLeftovers(t)
}

// A stop after the workload of a blue-green was deleted restores the limits of the autoscaler, so that the next
// workload of that name can scale.
func TestRolloutBlueGreenRestoresAutoscaler_WhenWorkloadIsDeleted(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	r := prepare(t, e, deploymentCell(strategy.StyleBlueGreen, harness.NoProvider), nil)
	scalers := r.Kube.AutoscalingV2().HorizontalPodAutoscalers(r.Apps)
	limits := func() [2]int32 {
		h, err := scalers.Get(context.Background(), r.rollout.Name, metav1.GetOptions{})
		require.NoError(t, err)
		return [2]int32{*h.Spec.MinReplicas, h.Spec.MaxReplicas}
	}
	before := limits()
	r.StartRollout(r.rollout)
	r.waitPaused(1)
	require.Equal(t, [2]int32{harness.SubjectSize, harness.SubjectSize}, limits(),
		"it is pinned while both versions run")
	require.NoError(t, r.Kube.AppsV1().Deployments(r.Apps).Delete(context.Background(), r.rollout.Name,
		metav1.DeleteOptions{}))
	r.WaitRollout(r.rollout.Name, "failed", func(s rollout.Status) bool { return s.Phase == rollout.PhaseFailed })
	r.MustVerb(r.rollout.Name, "stop", "")
	r.WaitPhase(r.rollout.Name, rollout.PhaseCancelled)
	require.Equal(t, before, limits())
}

// badImageDeadline leaves the kubelet time for two attempts to pull a missing image.
var badImageDeadline = map[string]any{"stepDeadlineSeconds": 24}

// startWithBadImage starts a rollout to an image that no registry has.
func startWithBadImage(t *testing.T, e *harness.Engine, c cell, policy map[string]any) *release {
	t.Helper()
	return startRelease(t, e, c, func(_ map[string]any, r *harness.Rollout) {
		r.Image = "registry.test/order:bad"
		r.Policy = policy
	})
}

// testBadImageRollback runs a subtest that rolls back a rollout that failed on a bad image.
func testBadImageRollback(t *testing.T, e *harness.Engine, c cell) {
	t.Helper()
	t.Run("Rollback/"+c.String(), func(t *testing.T) {
		t.Parallel()
		r := startWithBadImage(t, e, c, badImageDeadline)
		r.WaitRollout(r.rollout.Name, "failed", func(s rollout.Status) bool { return s.Phase == rollout.PhaseFailed })
		r.sendVerb("rollback", `{"actor":"ann"}`)
		r.requireRolledBack()
	})
}

// The other kinds and styles.
func TestLongRolloutBadImage_IsRolledBack(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e := harness.Shared(t)
	t.Run("cells", func(t *testing.T) {
		inPlace := []cell{{harness.StatefulSet, strategy.StylePartition, harness.NoProvider},
			{harness.DaemonSet, strategy.StylePartition, harness.NoProvider}}
		for _, c := range append(inPlace, styles[1:]...) {
			testBadImageRollback(t, e, c)
		}
	})
}

// A bad image at step 1 fails the rollout within the deadline, with the pod's message and the stable pods untouched. A
// rollback works, and so does a retry after the image was pushed.
func TestRolloutBadImage_FailsAndRecovers(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	untouched := func(t *testing.T, r *release) {
		status := r.WaitRollout(r.rollout.Name, "failed", func(s rollout.Status) bool {
			return s.Phase == rollout.PhaseFailed
		})
		require.Contains(t, status.Reason, "ImagePullBackOff", "the pod's own message")
		require.Contains(t, status.Reason, "manifest unknown")
		c := r.watch.Count(t)
		require.Equal(t, int32(1), c.New, "one new pod, as step 1 requests")
		require.GreaterOrEqual(t, c.StableReady, int32(harness.SubjectSize-1))
	}
	t.Run("Retry", func(t *testing.T) {
		t.Parallel()
		r := startWithBadImage(t, e, deploymentCell(strategy.StylePartition, harness.Nginx), badImageDeadline)
		untouched(t, r)
		// The registry has the image now: the pods start. The local stack marks pods ready when a test requests it.
		r.MakePodsReady("order", "registry.test/order:bad")
		r.MustVerb(r.rollout.Name, "retry", `{"actor":"ann","reason":"the image was pushed"}`)
		r.waitPaused(1)
		r.sendVerb("rollback", "")
		r.requireRolledBack()
	})
	testBadImageRollback(t, e, styles[0])
	t.Run("PolicyRollsBack", func(t *testing.T) {
		t.Parallel()
		r := startWithBadImage(t, e, deploymentCell(strategy.StylePartition, harness.NoProvider),
			map[string]any{"stepDeadlineSeconds": 24, "onFailure": "rollback"})
		status := r.requireRolledBack()
		last := status.History[len(status.History)-1]
		require.Equal(t, "policy", last.Via, "the history records that the policy decided")
		require.Contains(t, last.Message, "ImagePullBackOff")
	})
}

// kubectlChanges are changes that a user makes to a workload with kubectl.
var kubectlChanges = map[string]func(r *release){
	"set image": func(r *release) { r.SetImage(harness.Deployment, r.rollout.Name, "registry.test/order:somebody") },
	"undo":      func(r *release) { r.Kubectl("rollout", "undo", "deployment/"+r.rollout.Name, "-n", r.Apps) },
	"apply":     func(r *release) { r.apply() },
}

// requireUndoRefused requires kubectl to refuse an undo: the engine has paused the Deployment.
func (r *release) requireUndoRefused() {
	r.t.Helper()
	require.Contains(r.t, r.TryKubectl("rollout", "undo", "deployment/"+r.rollout.Name, "-n", r.Apps),
		"paused deployment")
}

// While a step waits, a change with kubectl never takes the number of ready pods below the workload's own limits.
func TestRolloutAtApproval_KeepsReadyPods_WhenChangedByKubectl(t *testing.T) {
	t.Parallel()
	testChangesAtApproval(t, func(style strategy.Style, change string) bool {
		return style == strategy.StylePartition
	})
}

// The other styles.
func TestLongRolloutAtApproval_KeepsReadyPods_WhenChangedByKubectl(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	testChangesAtApproval(t, func(style strategy.Style, change string) bool {
		return change != "apply" && style != strategy.StylePartition
	})
}

// A repeated apply in the other styles.
func TestSoakRolloutAtApproval_KeepsReadyPods_WhenAppliedAgain(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	testChangesAtApproval(t, func(style strategy.Style, change string) bool {
		return change == "apply" && style != strategy.StylePartition
	})
}

func testChangesAtApproval(t *testing.T, selected func(style strategy.Style, change string) bool) {
	t.Helper()
	e := harness.Shared(t)
	for _, c := range styles {
		for name := range kubectlChanges {
			if !selected(c.style, name) || name == "undo" && c.style == strategy.StyleCanary {
				continue // the stable Deployment of a canary has no earlier revision: kubectl refuses to undo
			}
			t.Run(string(c.style)+"/"+name, func(t *testing.T) {
				t.Parallel()
				testChangeAtApproval(t, e, c, name)
			})
		}
	}
}

func testChangeAtApproval(t *testing.T, e *harness.Engine, c cell, change string) {
	t.Helper()
	r := startRelease(t, e, c, nil)
	r.approve(1)
	r.waitPaused(2)
	if change == "undo" && c.style == strategy.StylePartition {
		r.requireUndoRefused()
		r.sendVerb("stop", `{"actor":"ann"}`)
		r.requireRolledBack()
		return
	}
	r.watch.ForeignChange(t)
	kubectlChanges[change](r)
	// a canary does not change the workload itself: the apply changes nothing
	if c.style != strategy.StyleCanary || change != "apply" {
		r.WaitRollout(r.rollout.Name, "drift", func(s rollout.Status) bool {
			return s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitDrift
		})
	}
	r.watch.TrafficProtected(t)
	r.watch.WaitSettled(t)
	r.watch.RequirePromises(t)
	r.MustVerb(r.rollout.Name, "stop", `{"actor":"ann"}`)
	if c.style == strategy.StyleCanary && change == "set image" {
		// The rollout has not changed the workload, so the image that kubectl set stays.
		r.WaitPhase(r.rollout.Name, rollout.PhaseRolledBack)
		r.requireRestored(observer.End{Images: map[string]string{"app": "registry.test/order:somebody"}})
		return
	}
	r.requireRolledBack()
}

// A rollout that is paused in mid-step keeps its pods: a change with kubectl replaces none of them.
func TestRolloutPausedMidStep_MovesNoPods_WhenChangedByKubectl(t *testing.T) {
	t.Parallel()
	r := startRelease(t, harness.Shared(t), deploymentCell(strategy.StylePartition, harness.NoProvider),
		func(object map[string]any, _ *harness.Rollout) { slowPods(object, 3*time.Second) })
	r.approve(1)
	r.WaitRollout(r.rollout.Name, "step 2 to replace pods", func(s rollout.Status) bool {
		return s.CurrentStepIndex == 2 && s.CurrentStepState == rollout.StateUpgrade
	})
	r.MustVerb(r.rollout.Name, "pause", `{"actor":"ann"}`)
	r.WaitRollout(r.rollout.Name, "paused", func(s rollout.Status) bool {
		return s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitResume
	})
	r.requireUndoRefused()
	allReady := func() bool { // the pods are slow to become ready
		d, err := r.Kube.AppsV1().Deployments(r.Apps).Get(context.Background(), r.rollout.Name, metav1.GetOptions{})
		return err == nil && d.Spec.Paused && d.Status.ObservedGeneration == d.Generation &&
			d.Status.ReadyReplicas == harness.SubjectSize
	}
	require.Eventually(t, allReady, harness.Patience, harness.Tick)
	r.watch.ForeignChange(t)
	held := r.watch.Count(t)
	kubectlChanges["set image"](r)
	require.Eventually(t, allReady, harness.Patience, harness.Tick)
	r.watch.WaitSettled(t)
	require.Equal(t, held, r.watch.Count(t), "no pod moves")
	r.watch.RequirePromises(t)
	r.MustVerb(r.rollout.Name, "stop", `{"actor":"ann"}`)
	r.WaitPhase(r.rollout.Name, rollout.PhaseRolledBack)
}

// apply repeats the kubectl apply of the stable image.
func (r *release) apply() {
	r.t.Helper()
	r.SetImage(harness.Deployment, r.rollout.Name, harness.StableImage(r.rollout.Name))
}

// The engine is killed in mid-step: the split stays unchanged, and the service keeps its pods. The next process
// continues.
func TestLongRolloutContinues_WhenEngineIsKilledMidStep(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	o := harness.Options{}
	e := harness.Start(t, o)
	started := make([]*release, len(styles))
	var wg sync.WaitGroup
	for i, c := range styles {
		wg.Go(func() {
			r := startRelease(t, e, c, func(object map[string]any, _ *harness.Rollout) {
				slowPods(object, 5*time.Second)
			})
			r.waitPaused(1)
			started[i] = r
		})
	}
	wg.Wait()
	for _, r := range started {
		require.NotNil(t, r, "the rollout never waited at step 1")
		wg.Go(func() {
			r.approve(1)
			r.WaitRollout(r.rollout.Name, "step 2 to replace pods", func(s rollout.Status) bool {
				return s.CurrentStepIndex == 2 && s.CurrentStepState == rollout.StateUpgrade
			})
		})
	}
	wg.Wait()
	e.Processes[0].Kill()
	for _, r := range started {
		r.watch.WaitSettled(t)
		r.watch.RequirePromises(t)
	}
	e.Dev(o)
	e.WaitReady()
	t.Run("continues", func(t *testing.T) {
		for i, r := range started {
			t.Run(string(styles[i].style), func(t *testing.T) {
				t.Parallel()
				r.t, r.Engine = t, r.WithT(t)
				r.approveAll(2)
				r.requirePromoted()
			})
		}
	})
}

// Two releases share a TrafficRouting: its routes change with the first release and are restored at the end of the
// last.
func TestLongRolloutsShareTrafficRouting_UntilTheLastEnds(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e := harness.Shared(t)
	e.Subject(harness.Deployment, "first", nil)
	e.Subject(harness.Deployment, "second", nil)
	e.Route(harness.Gateway, "edge")
	a := e.Call(http.MethodPut, "/api/v1/trafficroutings/"+e.Apps+"/gray",
		`{"objectRef":[{"service":"edge","gateway":{"httpRouteName":"edge"},"gracePeriodSeconds":1}],`+
			`"strategy":{"matches":[{"headers":[{"type":"Exact","name":"x-tag","value":"gray"}]}],"requestHeaderModifier":{"set":[{"name":"x-gray","value":"yes"}]}}}`)
	require.Contains(t, []int{http.StatusOK, http.StatusCreated}, a.Status, "%s", a.Body)
	before := e.ReadObject(harness.HTTPRoutes, "edge")
	start := func(name string) *release {
		r := harness.Rollout{Kind: harness.Deployment, Name: name,
			Strategy: strategy.Strategy{Style: strategy.StyleCanary, TrafficRoutingRef: "gray",
				PatchPodTemplateMetadata: &strategy.PodMetadata{Labels: map[string]string{"tag": "gray"}},
				Steps:                    []strategy.Step{harness.Step("1", -1), harness.Step("100%", -1)}}}
		watch := observer.FollowRollout(t, e.REST, e.Apps,
			observer.Rollout{Workload: harness.Deployment.ObserverName(name), Style: r.Strategy.Style,
				Steps: r.Strategy.Steps})
		e.StartRollout(r)
		return &release{Engine: e, t: t, rollout: r, watch: watch}
	}
	first, second := start("first"), start("second")
	first.waitPaused(1)
	second.waitPaused(1)
	require.NotEqual(t, before.Object["spec"], e.ReadObject(harness.HTTPRoutes, "edge").Object["spec"],
		"the first release changes the route")
	first.sendVerb("rollback", "")
	e.WaitPhase("first", rollout.PhaseRolledBack)
	require.NotEqual(t, before.Object["spec"], e.ReadObject(harness.HTTPRoutes, "edge").Object["spec"],
		"the route stays for the second release")
	second.approveAll(1)
	e.WaitPhase("second", rollout.PhaseHealthy)
	require.Equal(t, before.Object["spec"], e.ReadObject(harness.HTTPRoutes, "edge").Object["spec"],
		"the last release restores the route")
	second.watch.RequireNoLeftovers(t)
}
