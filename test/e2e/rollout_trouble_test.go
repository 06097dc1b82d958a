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

// Somebody scales the workload while a step rests, and while its pods are on their way: the split stays in proportion.
func TestRolloutScaledMeanwhile(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	half := observer.Count{Stable: 4, StableReady: 4, New: 4, NewReady: 4}
	t.Run("AtRest", func(t *testing.T) {
		t.Parallel()
		for _, c := range []cell{deploymentBy(strategy.StylePartition, harness.Nginx), {harness.CloneSet, strategy.StylePartition, harness.NoProvider}} {
			t.Run(c.kind.Title, func(t *testing.T) {
				t.Parallel()
				r := begin(t, e, c, nil)
				r.approve(1)
				r.rest(2)
				r.watch.Leaving(t)
				r.Scale(c.kind, r.rollout.Name, 8)
				r.watch.WaitCount(t, half)
				r.WaitRollout(r.rollout.Name, "the new size", func(s rollout.Status) bool { return s.Replicas == 8 && s.CanaryReadyReplicas == 4 })
				r.watch.Resting(t, 2)
				r.approveAll(2)
				r.WaitPhase(r.rollout.Name, rollout.PhaseHealthy)
				r.requireHome(observer.End{Images: map[string]string{"app": r.rollout.NewestImage()}, Size: 8})
			})
		}
	})
	// Scaled to nothing and back while a step rests: what comes is stable first, then the step has its share again.
	t.Run("ToNothingAndBack", func(t *testing.T) {
		t.Parallel()
		for _, c := range []cell{deploymentBy(strategy.StylePartition, harness.Nginx), {harness.StatefulSet, strategy.StylePartition, harness.NoProvider}} {
			t.Run(c.kind.Title, func(t *testing.T) {
				t.Parallel()
				r := begin(t, e, c, nil)
				r.rest(1)
				r.watch.Leaving(t)
				r.Scale(c.kind, r.rollout.Name, 0)
				r.WaitRollout(r.rollout.Name, "no pods", func(s rollout.Status) bool { return s.Replicas == 0 && s.WaitingFor.Kind == rollout.WaitApproval })
				r.watch.WaitCount(t, observer.Count{})
				r.Scale(c.kind, r.rollout.Name, harness.SubjectSize)
				r.WaitRollout(r.rollout.Name, "the size of before", func(s rollout.Status) bool {
					return s.Replicas == harness.SubjectSize && s.CanaryReadyReplicas == 1 && s.WaitingFor.Kind == rollout.WaitApproval
				})
				r.watch.WaitCount(t, observer.Count{Stable: harness.SubjectSize - 1, StableReady: harness.SubjectSize - 1, New: 1, NewReady: 1})
				r.Approve(r.rollout.Name, r.WaitRest(r.rollout.Name, 1))
				r.Approve(r.rollout.Name, r.WaitRest(r.rollout.Name, 2))
				r.WaitPhase(r.rollout.Name, rollout.PhaseHealthy)
			})
		}
	})
	// A StatefulSet's partition counts from the top: what is added is of the new version, and no pod is taken back.
	t.Run("StatefulSetAtRest", func(t *testing.T) {
		t.Parallel()
		r := begin(t, e, cell{harness.StatefulSet, strategy.StylePartition, harness.NoProvider}, nil)
		r.approve(1)
		r.rest(2)
		r.watch.SomebodyElse(t)
		r.Scale(harness.StatefulSet, r.rollout.Name, 8)
		r.watch.WaitCount(t, observer.Count{Stable: 2, StableReady: 2, New: 6, NewReady: 6})
		status := r.WaitRollout(r.rollout.Name, "the new size", func(s rollout.Status) bool { return s.Replicas == 8 && s.CanaryReadyReplicas == 6 })
		r.watch.Finishing(t)
		r.Approve(r.rollout.Name, status)
		r.WaitPhase(r.rollout.Name, rollout.PhaseHealthy)
		r.requireHome(observer.End{Images: map[string]string{"app": r.rollout.NewestImage()}, Size: 8})
	})
	t.Run("InMidStep", func(t *testing.T) {
		t.Parallel()
		r := begin(t, e, deploymentBy(strategy.StylePartition, harness.NoProvider), func(object map[string]any, _ *harness.Rollout) { slowPods(object, 2*time.Second) })
		r.approve(1)
		r.WaitRollout(r.rollout.Name, "step 2 under way", func(s rollout.Status) bool {
			return s.CurrentStepIndex == 2 && s.CurrentStepState == rollout.StateUpgrade
		})
		r.Scale(harness.Deployment, r.rollout.Name, 8)
		status := r.WaitRest(r.rollout.Name, 2)
		require.Equal(t, int32(8), status.Replicas)
		r.watch.WaitCount(t, half)
		r.verb("rollback", "")
		r.WaitPhase(r.rollout.Name, rollout.PhaseRolledBack)
		r.requireHome(observer.End{Size: 8})
	})
}

// Somebody edits the template while a step rests: the rollout holds and says so. retry puts ours back, stop goes home.
func TestRolloutDrift(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	drifted := func(t *testing.T, c cell) *release {
		r := begin(t, e, c, nil)
		r.rest(1)
		r.watch.SomebodyElse(t)
		r.SetImage(harness.Deployment, r.rollout.Name, "registry.test/order:somebody")
		status := r.WaitRollout(r.rollout.Name, "drift", func(s rollout.Status) bool { return s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitDrift })
		require.Contains(t, status.Reason, "retry", "it says what can be done")
		r.watch.Sheltered(t)
		return r
	}
	for _, c := range styles {
		t.Run("Retry/"+string(c.style), func(t *testing.T) {
			t.Parallel()
			r := drifted(t, c)
			r.watch.WaitStill(t) // every pod is as the edit says
			r.MustVerb(r.rollout.Name, "retry", `{"actor":"ann"}`)
			r.approveAll(1)
			r.endsNew()
		})
	}
	t.Run("Stop", func(t *testing.T) {
		t.Parallel()
		r := drifted(t, deploymentBy(strategy.StylePartition, harness.Nginx))
		r.MustVerb(r.rollout.Name, "stop", `{"actor":"ann"}`)
		r.endsStable()
	})
}

// Somebody deletes the workload: the rollout says so, and stop gives the traffic back.
func TestRolloutWorkloadDeleted(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	r := begin(t, e, deploymentBy(strategy.StylePartition, harness.Gateway), nil)
	r.rest(1)
	require.NoError(t, r.Kube.AppsV1().Deployments(r.Apps).Delete(context.Background(), r.rollout.Name, metav1.DeleteOptions{}))
	status := r.WaitRollout(r.rollout.Name, "trouble", func(s rollout.Status) bool { return s.Phase == rollout.PhaseFailed })
	require.Contains(t, status.Reason, "deleted")
	r.MustVerb(r.rollout.Name, "stop", "")
	r.WaitPhase(r.rollout.Name, rollout.PhaseCancelled)
	_, err := r.Kube.CoreV1().Services(r.Apps).Get(context.Background(), r.rollout.Name+strategy.CanarySuffix, metav1.GetOptions{})
	require.Error(t, err, "the canary Service is gone")
	r.watch.RequireNothingOfOurs(t)
}

// A blue-green whose workload is deleted gives the autoscaler back: the next workload of that name is not kept at the size of the last.
func TestRolloutDeletedReturnsItsAutoscaler(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	r := prepare(t, e, deploymentBy(strategy.StyleBlueGreen, harness.NoProvider), nil)
	scalers := r.Kube.AutoscalingV2().HorizontalPodAutoscalers(r.Apps)
	limits := func() [2]int32 {
		h, err := scalers.Get(context.Background(), r.rollout.Name, metav1.GetOptions{})
		require.NoError(t, err)
		return [2]int32{*h.Spec.MinReplicas, h.Spec.MaxReplicas}
	}
	before := limits()
	r.StartRollout(r.rollout)
	r.rest(1)
	require.Equal(t, [2]int32{harness.SubjectSize, harness.SubjectSize}, limits(), "it is pinned while both versions run")
	require.NoError(t, r.Kube.AppsV1().Deployments(r.Apps).Delete(context.Background(), r.rollout.Name, metav1.DeleteOptions{}))
	r.WaitRollout(r.rollout.Name, "trouble", func(s rollout.Status) bool { return s.Phase == rollout.PhaseFailed })
	r.MustVerb(r.rollout.Name, "stop", "")
	r.WaitPhase(r.rollout.Name, rollout.PhaseCancelled)
	require.Equal(t, before, limits())
}

// badImageDeadline leaves a pod whose image is not there two tries of the kubelet's.
var badImageDeadline = map[string]any{"stepDeadlineSeconds": 24}

// failing begins a rollout to an image that no registry has.
func failing(t *testing.T, e *harness.Engine, c cell, policy map[string]any) *release {
	t.Helper()
	return begin(t, e, c, func(_ map[string]any, r *harness.Rollout) {
		r.Image = "registry.test/order:bad"
		r.Policy = policy
	})
}

func rollsBackBadImage(t *testing.T, e *harness.Engine, c cell) {
	t.Helper()
	t.Run("Rollback/"+c.String(), func(t *testing.T) {
		t.Parallel()
		r := failing(t, e, c, badImageDeadline)
		r.WaitRollout(r.rollout.Name, "failed", func(s rollout.Status) bool { return s.Phase == rollout.PhaseFailed })
		r.verb("rollback", `{"actor":"ann"}`)
		r.endsStable()
	})
}

// Every other kind and style.
func TestLongRolloutBadImage(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e := harness.Shared(t)
	t.Run("cells", func(t *testing.T) {
		inPlace := []cell{{harness.StatefulSet, strategy.StylePartition, harness.NoProvider}, {harness.DaemonSet, strategy.StylePartition, harness.NoProvider}}
		for _, c := range append(inPlace, styles[1:]...) {
			rollsBackBadImage(t, e, c)
		}
	})
}

// A bad image at step 1: failed within the deadline with the pod's message, the stable pods untouched; a retry when the cause is gone, and a rollback, both work.
func TestRolloutBadImage(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	untouched := func(t *testing.T, r *release) {
		status := r.WaitRollout(r.rollout.Name, "failed", func(s rollout.Status) bool { return s.Phase == rollout.PhaseFailed })
		require.Contains(t, status.Reason, "ImagePullBackOff", "the pod's own message")
		require.Contains(t, status.Reason, "manifest unknown")
		c := r.watch.Count(t)
		require.Equal(t, int32(1), c.New, "one new pod, as asked")
		require.GreaterOrEqual(t, c.StableReady, int32(harness.SubjectSize-1))
	}
	t.Run("Retry", func(t *testing.T) {
		t.Parallel()
		r := failing(t, e, deploymentBy(strategy.StylePartition, harness.Nginx), badImageDeadline)
		untouched(t, r)
		// The registry has the image now: the pods start. On the local stack a pod is ready when somebody says so.
		r.MakePodsReady("order", "registry.test/order:bad")
		r.MustVerb(r.rollout.Name, "retry", `{"actor":"ann","reason":"the image was pushed"}`)
		r.rest(1)
		r.verb("rollback", "")
		r.endsStable()
	})
	rollsBackBadImage(t, e, styles[0])
	t.Run("PolicyRollsBack", func(t *testing.T) {
		t.Parallel()
		r := failing(t, e, deploymentBy(strategy.StylePartition, harness.NoProvider), map[string]any{"stepDeadlineSeconds": 24, "onFailure": "rollback"})
		status := r.endsStable()
		last := status.History[len(status.History)-1]
		require.Equal(t, "policy", last.Via, "the record says that a rule decided")
		require.Contains(t, last.Message, "ImagePullBackOff")
	})
}

// deeds are what a person does to a workload by kubectl.
var deeds = map[string]func(r *release){
	"set image": func(r *release) { r.SetImage(harness.Deployment, r.rollout.Name, "registry.test/order:somebody") },
	"undo":      func(r *release) { r.Kubectl("rollout", "undo", "deployment/"+r.rollout.Name, "-n", r.Apps) },
	"apply":     func(r *release) { r.apply() },
}

// undoRefused has kubectl refuse to undo an update that is paused, as that of a Deployment's own pods is at rest.
func (r *release) undoRefused() {
	r.t.Helper()
	require.Contains(r.t, r.TryKubectl("rollout", "undo", "deployment/"+r.rollout.Name, "-n", r.Apps), "paused deployment")
}

// At rest in each style, what a person does to the workload by kubectl takes no ready pod below the workload's own limits.
func TestRolloutAtRestIsSafe(t *testing.T) {
	t.Parallel()
	doAtRest(t, func(style strategy.Style, deed string) bool {
		return style == strategy.StylePartition
	})
}

// The other styles.
func TestLongRolloutAtRestIsSafe(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	doAtRest(t, func(style strategy.Style, deed string) bool {
		return deed != "apply" && style != strategy.StylePartition
	})
}

// A repeated apply in the other styles.
func TestSoakRolloutAppliedAtRest(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	doAtRest(t, func(style strategy.Style, deed string) bool {
		return deed == "apply" && style != strategy.StylePartition
	})
}

func doAtRest(t *testing.T, takes func(style strategy.Style, deed string) bool) {
	t.Helper()
	e := harness.Shared(t)
	for _, c := range styles {
		for name := range deeds {
			if !takes(c.style, name) || name == "undo" && c.style == strategy.StyleCanary {
				continue // the stable Deployment of a canary has no earlier revision: kubectl refuses to undo
			}
			t.Run(string(c.style)+"/"+name, func(t *testing.T) {
				t.Parallel()
				atRest(t, e, c, name)
			})
		}
	}
}

func atRest(t *testing.T, e *harness.Engine, c cell, deed string) {
	t.Helper()
	r := begin(t, e, c, nil)
	r.approve(1)
	r.rest(2)
	if deed == "undo" && c.style == strategy.StylePartition {
		r.undoRefused()
		r.verb("stop", `{"actor":"ann"}`)
		r.endsStable()
		return
	}
	r.watch.SomebodyElse(t)
	deeds[deed](r)
	if c.style != strategy.StyleCanary || deed != "apply" { // beside an extra workload the workload is still what was applied
		r.WaitRollout(r.rollout.Name, "what was done", func(s rollout.Status) bool { return s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitDrift })
	}
	r.watch.Sheltered(t)
	r.watch.WaitStill(t)
	r.watch.RequirePromises(t)
	r.MustVerb(r.rollout.Name, "stop", `{"actor":"ann"}`)
	if c.style == strategy.StyleCanary && deed == "set image" {
		// The rollout had not touched the workload: what somebody has set on it stays.
		r.WaitPhase(r.rollout.Name, rollout.PhaseRolledBack)
		r.requireHome(observer.End{Images: map[string]string{"app": "registry.test/order:somebody"}})
		return
	}
	r.endsStable()
}

// Held in mid-step, its pods rest as those of a step that is done: what a person does to the workload by kubectl moves none of them.
func TestRolloutHeldInMidStepIsSafe(t *testing.T) {
	t.Parallel()
	r := begin(t, harness.Shared(t), deploymentBy(strategy.StylePartition, harness.NoProvider),
		func(object map[string]any, _ *harness.Rollout) { slowPods(object, 3*time.Second) })
	r.approve(1)
	r.WaitRollout(r.rollout.Name, "step 2 under way", func(s rollout.Status) bool {
		return s.CurrentStepIndex == 2 && s.CurrentStepState == rollout.StateUpgrade
	})
	r.MustVerb(r.rollout.Name, "pause", `{"actor":"ann"}`)
	r.WaitRollout(r.rollout.Name, "paused", func(s rollout.Status) bool { return s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitResume })
	r.undoRefused()
	allReady := func() bool { // its pods are slow
		d, err := r.Kube.AppsV1().Deployments(r.Apps).Get(context.Background(), r.rollout.Name, metav1.GetOptions{})
		return err == nil && d.Spec.Paused && d.Status.ObservedGeneration == d.Generation && d.Status.ReadyReplicas == harness.SubjectSize
	}
	require.Eventually(t, allReady, harness.Patience, harness.Tick)
	r.watch.SomebodyElse(t)
	held := r.watch.Count(t)
	deeds["set image"](r)
	require.Eventually(t, allReady, harness.Patience, harness.Tick)
	r.watch.WaitStill(t)
	require.Equal(t, held, r.watch.Count(t), "no pod moves")
	r.watch.RequirePromises(t)
	r.MustVerb(r.rollout.Name, "stop", `{"actor":"ann"}`)
	r.WaitPhase(r.rollout.Name, rollout.PhaseRolledBack)
}

// apply is a repeated kubectl apply of what was applied first.
func (r *release) apply() {
	r.t.Helper()
	r.SetImage(harness.Deployment, r.rollout.Name, harness.StableImage(r.rollout.Name))
}

// Everything of ours is killed in mid-step: the split stays as it is, and the service keeps its pods. The next process goes on.
func TestLongRolloutKilledInMidStep(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	o := harness.Options{}
	e := harness.Start(t, o)
	under := make([]*release, len(styles))
	var wg sync.WaitGroup
	for i, c := range styles {
		wg.Go(func() {
			r := begin(t, e, c, func(object map[string]any, _ *harness.Rollout) { slowPods(object, 5*time.Second) })
			r.rest(1)
			under[i] = r
		})
	}
	wg.Wait()
	for _, r := range under {
		require.NotNil(t, r, "its rollout never came to rest")
		wg.Go(func() {
			r.approve(1)
			r.WaitRollout(r.rollout.Name, "step 2 under way", func(s rollout.Status) bool {
				return s.CurrentStepIndex == 2 && s.CurrentStepState == rollout.StateUpgrade
			})
		})
	}
	wg.Wait()
	e.Processes[0].Kill()
	for _, r := range under {
		r.watch.WaitStill(t)
		r.watch.RequirePromises(t)
	}
	e.Dev(o)
	e.WaitReady()
	t.Run("goes on", func(t *testing.T) {
		for i, r := range under {
			t.Run(string(styles[i].style), func(t *testing.T) {
				t.Parallel()
				r.t, r.Engine = t, r.In(t)
				r.approveAll(2)
				r.endsNew()
			})
		}
	})
}

// Two releases share a TrafficRouting: its routes are made with the first, and go home with the last.
func TestLongRolloutsShareTrafficRouting(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e := harness.Shared(t)
	e.Subject(harness.Deployment, "first", nil)
	e.Subject(harness.Deployment, "second", nil)
	e.Route(harness.Gateway, "edge")
	a := e.Call(http.MethodPut, "/api/v1/trafficroutings/"+e.Apps+"/gray", `{"objectRef":[{"service":"edge","gateway":{"httpRouteName":"edge"},"gracePeriodSeconds":1}],`+
		`"strategy":{"matches":[{"headers":[{"type":"Exact","name":"x-tag","value":"gray"}]}],"requestHeaderModifier":{"set":[{"name":"x-gray","value":"yes"}]}}}`)
	require.Contains(t, []int{http.StatusOK, http.StatusCreated}, a.Status, "%s", a.Body)
	before := e.Custom(harness.HTTPRoutes, "edge")
	start := func(name string) *release {
		r := harness.Rollout{Kind: harness.Deployment, Name: name, Strategy: strategy.Strategy{Style: strategy.StyleCanary, TrafficRoutingRef: "gray",
			PatchPodTemplateMetadata: &strategy.PodMetadata{Labels: map[string]string{"tag": "gray"}}, Steps: []strategy.Step{harness.Step("1", -1), harness.Step("100%", -1)}}}
		watch := observer.FollowRollout(t, e.REST, e.Apps, observer.Rollout{Workload: harness.Deployment.Observed(name), Style: r.Strategy.Style, Steps: r.Strategy.Steps})
		e.StartRollout(r)
		return &release{Engine: e, t: t, rollout: r, watch: watch}
	}
	first, second := start("first"), start("second")
	first.rest(1)
	second.rest(1)
	require.NotEqual(t, before.Object["spec"], e.Custom(harness.HTTPRoutes, "edge").Object["spec"], "the routes are made")
	first.verb("rollback", "")
	e.WaitPhase("first", rollout.PhaseRolledBack)
	require.NotEqual(t, before.Object["spec"], e.Custom(harness.HTTPRoutes, "edge").Object["spec"], "they stay for the second")
	second.approveAll(1)
	e.WaitPhase("second", rollout.PhaseHealthy)
	require.Equal(t, before.Object["spec"], e.Custom(harness.HTTPRoutes, "edge").Object["spec"], "they go home with the last")
	second.watch.RequireNothingOfOurs(t)
}
