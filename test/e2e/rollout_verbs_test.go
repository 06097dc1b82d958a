package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/observer"
)

// styles are the three with a provider each, for tests of what every style must do.
var styles = []cell{
	deploymentBy(strategy.StylePartition, harness.Nginx),
	deploymentBy(strategy.StyleCanary, harness.Gateway),
	deploymentBy(strategy.StyleBlueGreen, harness.Nginx),
}

// Stops from a rest in the middle, for each style.
func TestRolloutStop(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	t.Run("styles", func(t *testing.T) {
		stopToStable(t, e, styles[0])
		stopToNew(t, e, styles[2])
	})
}

func stopToStable(t *testing.T, e *harness.Engine, c cell) {
	t.Helper()
	t.Run(string(c.style)+"/stable", func(t *testing.T) {
		t.Parallel()
		r := begin(t, e, c, nil)
		r.approve(1)
		r.rest(2)
		r.verb("stop", `{"actor":"ann"}`) // stable is the default
		r.endsStable()
	})
}

func stopToNew(t *testing.T, e *harness.Engine, c cell) {
	t.Helper()
	t.Run(string(c.style)+"/new", func(t *testing.T) {
		t.Parallel()
		r := begin(t, e, c, nil)
		r.rest(1)
		r.watch.Finishing(t)
		r.MustVerb(r.rollout.Name, "stop", `{"to":"new","reason":"no time to wait"}`)
		r.endsNew()
	})
}

// The other styles, and what becomes of a frozen split.
func TestLongRolloutStop(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e := harness.Shared(t)
	t.Run("styles", func(t *testing.T) {
		stopToNew(t, e, styles[0])
		stopToStable(t, e, styles[1])
		bringFrozenHome(t, e, styles[2])
	})
}

func TestSoakRolloutStop(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	e := harness.Shared(t)
	t.Run("styles", func(t *testing.T) {
		for _, c := range styles {
			stopToStable(t, e, c)
			stopToNew(t, e, c)
			bringFrozenHome(t, e, c)
		}
	})
}

// bringFrozenHome has a rollout stop where it is, and then rolled back, or released again.
func bringFrozenHome(t *testing.T, e *harness.Engine, c cell) {
	t.Helper()
	t.Run(string(c.style)+"/frozen, then rolled back", func(t *testing.T) {
		t.Parallel()
		r := frozen(t, e, c)
		r.verb("rollback", `{"actor":"bob","reason":"brought home"}`)
		r.WaitRollout(r.rollout.Name, "rolled back", func(s rollout.Status) bool { return s.Phase == rollout.PhaseRolledBack })
		r.endsStable()
	})
	t.Run(string(c.style)+"/frozen, then released again", func(t *testing.T) {
		t.Parallel()
		r := frozen(t, e, c)
		r.rollout.Image = "registry.test/order:v3"
		r.watch.GoTo(t, 1)
		r.StartRollout(r.rollout)
		r.WaitRollout(r.rollout.Name, "the new one", func(s rollout.Status) bool { return s.Phase == rollout.PhaseProgressing })
		r.approveAll(1)
		r.endsNew()
	})
}

// frozen is a rollout that was stopped where it rests at step 2: the split, the traffic and what was saved stay, the claim does not.
func frozen(t *testing.T, e *harness.Engine, c cell) *release {
	t.Helper()
	r := begin(t, e, c, nil)
	r.approve(1)
	r.rest(2)
	r.MustVerb(r.rollout.Name, "stop", `{"to":"frozen","actor":"ann"}`)
	status := r.WaitPhase(r.rollout.Name, rollout.PhaseCancelled)
	require.True(t, status.Frozen)
	r.watch.Resting(t, 2)
	require.Empty(t, r.claim(), "the claim is released")
	require.Contains(t, r.object().GetAnnotations(), rollout.AnnotationSaved, "what was saved stays")
	return r
}

// A jump forwards moves pods and traffic; a jump back moves traffic, never pods.
func TestRolloutJump(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	t.Run("ForwardsAndBack", func(t *testing.T) {
		t.Parallel()
		r := begin(t, e, deploymentBy(strategy.StylePartition, harness.Gateway), func(_ map[string]any, r *harness.Rollout) {
			r.Strategy.Steps = []strategy.Step{harness.Step("25%", 10), harness.Step("25%", 20), harness.Step("50%", 50), harness.Step("100%", -1)}
		})
		r.rest(1)
		r.watch.GoTo(t, 3)
		r.MustVerb(r.rollout.Name, "jump", `{"toStep":3}`)
		r.rest(3)
		made := r.watch.Made(t)
		r.watch.Leaving(t)
		r.MustVerb(r.rollout.Name, "jump", `{"toStep":2}`)
		status := r.WaitRest(r.rollout.Name, 2)
		require.Equal(t, int32(20), status.Traffic.CanaryWeight, "traffic goes back to what step 2 asks")
		require.Equal(t, made, r.watch.Made(t), "pods do not")
		require.Equal(t, observer.Count{Stable: 2, StableReady: 2, New: 2, NewReady: 2}, r.watch.Count(t))
		r.watch.GoTo(t, 3)
		r.Approve(r.rollout.Name, status)
		r.approveAll(3)
		r.endsNew()
	})
	t.Run("Nowhere", func(t *testing.T) {
		t.Parallel()
		r := begin(t, e, deploymentBy(strategy.StylePartition, harness.NoProvider), nil)
		r.rest(1)
		a := r.RolloutVerb(r.rollout.Name, "jump", `{"toStep":9}`)
		require.Equal(t, http.StatusConflict, a.Status, "%s", a.Body)
		require.Equal(t, http.StatusBadRequest, r.RolloutVerb(r.rollout.Name, "jump", `{"toStep":-1}`).Status)
		r.verb("rollback", "")
		r.endsStable()
	})
}

// Promote skips every pause that is left, timers of days included.
func TestRolloutPromote(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	for _, style := range []strategy.Style{strategy.StylePartition, strategy.StyleBlueGreen} {
		t.Run(string(style), func(t *testing.T) {
			t.Parallel()
			r := begin(t, e, deploymentBy(style, harness.NoProvider), func(_ map[string]any, r *harness.Rollout) {
				r.Strategy.Steps[1] = harness.Timed(r.Strategy.Steps[1], 48*time.Hour)
			})
			status := r.rest(1)
			r.watch.Finishing(t)
			r.MustVerb(r.rollout.Name, "promote", fmt.Sprintf(`{"gate":%q,"reason":"it is good"}`, status.WaitingFor.Gate))
			r.endsNew()
		})
	}
}

// Paused, it begins nothing new, whatever is approved; resumed, it goes on. `paused` in the strategy holds it before its first step.
func TestRolloutPauseAndResume(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	t.Run("AtRest", func(t *testing.T) {
		t.Parallel()
		r := begin(t, e, deploymentBy(strategy.StylePartition, harness.NoProvider), nil)
		r.rest(1)
		paused := r.MustVerb(r.rollout.Name, "pause", `{"actor":"ann","reason":"lunch"}`)
		require.True(t, paused.Paused)
		require.Contains(t, paused.Reason, "lunch")
		require.Equal(t, http.StatusConflict, r.RolloutVerb(r.rollout.Name, "approve", `{"step":1}`).Status, "a paused rollout is not approved")
		r.MustVerb(r.rollout.Name, "resume", "")
		r.approveAll(1)
		r.endsNew()
	})
	t.Run("InMidStep", func(t *testing.T) {
		t.Parallel()
		r := begin(t, e, deploymentBy(strategy.StylePartition, harness.NoProvider), func(object map[string]any, _ *harness.Rollout) { slowPods(object, 3*time.Second) })
		r.WaitRollout(r.rollout.Name, "pods on their way", func(s rollout.Status) bool { return s.CurrentStepState == rollout.StateUpgrade })
		r.MustVerb(r.rollout.Name, "pause", "")
		r.WaitRollout(r.rollout.Name, "paused", func(s rollout.Status) bool { return s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitResume })
		r.MustVerb(r.rollout.Name, "resume", "")
		r.approveAll(1)
		r.endsNew()
	})
	t.Run("FromTheStart", func(t *testing.T) {
		t.Parallel()
		r := begin(t, e, deploymentBy(strategy.StylePartition, harness.NoProvider), func(_ map[string]any, r *harness.Rollout) { r.Strategy.Paused = true })
		r.WaitRollout(r.rollout.Name, "held", func(s rollout.Status) bool { return s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitResume })
		require.Zero(t, r.watch.Made(t), "nothing has moved")
		r.MustVerb(r.rollout.Name, "resume", "")
		r.approveAll(1)
		r.endsNew()
	})
}

// A newer revision in mid-rollout: a canary goes back to stable first, then begins at step 1 with the newest; a blue-green refuses.
func TestRolloutSupersede(t *testing.T) {
	t.Parallel()
	t.Run("partition", func(t *testing.T) {
		t.Parallel()
		supersede(t, deploymentBy(strategy.StylePartition, harness.Nginx))
	})
	t.Run("blueGreen", func(t *testing.T) {
		t.Parallel()
		r := begin(t, harness.Shared(t), deploymentBy(strategy.StyleBlueGreen, harness.NoProvider), nil)
		r.rest(1)
		a := r.TryStartRollout(r.newest())
		require.Equal(t, http.StatusConflict, a.Status, "%s", a.Body)
		require.Contains(t, string(a.Body), "roll", "it says that it has to be rolled back first")
		r.verb("rollback", "")
		r.endsStable()
	})
}

// With an extra workload.
func TestLongRolloutSupersede(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	supersede(t, deploymentBy(strategy.StyleCanary, harness.Gateway))
}

// newest is the release of a still newer revision.
func (r *release) newest() harness.Rollout {
	next := r.rollout
	next.Image, next.More = "registry.test/order:v3", map[string]any{"supersede": true}
	return next
}

func supersede(t *testing.T, c cell) {
	t.Helper()
	r := begin(t, harness.Shared(t), c, nil)
	r.approve(1)
	r.rest(2)
	r.watch.Leaving(t)
	next := r.newest()
	r.StartRollout(next)
	r.rollout = next
	r.WaitRollout(r.rollout.Name, "the newest", func(s rollout.Status) bool { return s.Images["app"] == next.Image })
	r.approveAll(1)
	r.endsNew()
}

// The second rollout of a workload, by its own name or another, is refused with a pointer to the first.
func TestTwoRolloutsOfOneWorkload(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	r := begin(t, e, deploymentBy(strategy.StylePartition, harness.NoProvider), nil)
	r.rest(1)
	for name, more := range map[string]map[string]any{"the same name": nil, "another name": {"name": "another"}} {
		second := r.rollout
		second.Image, second.More = "registry.test/order:v3", more
		a := r.TryStartRollout(second)
		require.Equal(t, http.StatusConflict, a.Status, "%s: %s", name, a.Body)
		require.Contains(t, string(a.Body), "rollout/default/"+r.Apps+"/"+r.rollout.Name, "%s: it points to the first", name)
	}
	r.approveAll(1)
	r.endsNew()
}

// A rollout and a plan's RESTART of the same workload are never both at work.
func TestRolloutOrRestart(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	t.Run("RolloutFirst", func(t *testing.T) {
		t.Parallel()
		r := begin(t, e, deploymentBy(strategy.StylePartition, harness.NoProvider), nil)
		r.rest(1)
		r.PutService("order-"+r.Apps, "", "Deployment/order")
		r.PutPlan("restart-"+r.Apps, fmt.Sprintf("deployPlanItems: [{serviceId: order-%s, deployment: RESTART}]", r.Apps))
		a := r.Call(http.MethodPost, "/api/v1/plans/restart-"+r.Apps+"/execute", "")
		if a.Status == http.StatusAccepted { // the door need not know; the claim does
			task := r.WaitTask(idOf(t, a), plan.TaskFailed, plan.TaskSucceeded)
			require.Equal(t, plan.TaskFailed, task.State)
			require.Contains(t, task.Services[0].Reason, "rollout/default/"+r.Apps+"/order")
		} else {
			require.Contains(t, []int{http.StatusConflict, http.StatusUnprocessableEntity}, a.Status, "%s", a.Body)
			require.Contains(t, string(a.Body), "rollout/default/"+r.Apps+"/order", "it points to the rollout")
		}
		r.watch.Resting(t, 1)
		r.approveAll(1)
		r.endsNew()
	})
	t.Run("RestartFirst", func(t *testing.T) {
		t.Parallel()
		r := prepare(t, e, deploymentBy(strategy.StylePartition, harness.NoProvider), func(object map[string]any, _ *harness.Rollout) { slowPods(object, 3*time.Second) })
		r.PutService("order-"+r.Apps, "", "Deployment/order")
		r.PutPlan("restart-"+r.Apps, fmt.Sprintf("deployPlanItems: [{serviceId: order-%s, deployment: RESTART, containerExecMethod: SEQUENTIAL}]", r.Apps))
		id := r.Execute("restart-" + r.Apps)
		r.WaitFor(id, "a claim", func(plan.Task) bool { return r.claim() != "" })
		a := r.TryStartRollout(r.rollout)
		require.Equal(t, http.StatusConflict, a.Status, "%s", a.Body)
		require.Contains(t, string(a.Body), "task/"+id, "it points to the task")
		require.Equal(t, plan.TaskSucceeded, r.WaitTask(id, plan.TaskSucceeded, plan.TaskFailed).State)
	})
}

// A rollback in batches from the middle of a step: the pods come to rest, those that are new are counted, and they go back through the steps.
func TestLongRolloutGoesBackInBatchesFromMidStep(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e := harness.Shared(t)
	for _, kind := range []harness.Kind{harness.Deployment, harness.StatefulSet, harness.CloneSet} {
		t.Run(kind.Title, func(t *testing.T) {
			t.Parallel()
			r := begin(t, e, cell{kind, strategy.StylePartition, harness.NoProvider}, func(object map[string]any, ro *harness.Rollout) {
				slowPods(object, 3*time.Second)
				ro.More = map[string]any{"policy": map[string]any{"rollbackInBatches": true, "stepDeadlineSeconds": 90}}
			})
			r.approve(1)
			r.approve(2)
			r.WaitRollout(r.rollout.Name, "pods on their way", func(s rollout.Status) bool {
				return s.CurrentStepIndex == 3 && s.CurrentStepState == rollout.StateUpgrade
			})
			r.watch.Leaving(t)
			r.MustVerb(r.rollout.Name, "rollback", "")
			for step := 1; step <= 2; step++ {
				status := r.WaitRollout(r.rollout.Name, fmt.Sprintf("rest at step %d of the way back", step), func(s rollout.Status) bool {
					return s.CurrentStepIndex == step && s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitApproval
				})
				require.Positive(t, status.CanaryReplicas, "it goes in batches: %s", status.Reason)
				r.Approve(r.rollout.Name, status)
			}
			r.endsStable()
		})
	}
}
