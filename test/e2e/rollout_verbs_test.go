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
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/observer"
)

// styles are the three styles with one provider each, for tests that every style must pass.
var styles = []cell{
	deploymentCell(strategy.StylePartition, harness.Nginx),
	deploymentCell(strategy.StyleCanary, harness.Gateway),
	deploymentCell(strategy.StyleBlueGreen, harness.Nginx),
}

// A stop while a step waits.
func TestRolloutStop_EndsAtStableOrNew(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	t.Run("styles", func(t *testing.T) {
		testStopToStable(t, e, styles[0])
		testStopToNew(t, e, styles[2])
	})
}

func testStopToStable(t *testing.T, e *harness.Engine, c cell) {
	t.Helper()
	t.Run(string(c.style)+"/stable", func(t *testing.T) {
		t.Parallel()
		r := startRelease(t, e, c, nil)
		r.approve(1)
		r.waitPaused(2)
		r.sendVerb("stop", `{"actor":"ann"}`) // stable is the default
		r.requireRolledBack()
	})
}

func testStopToNew(t *testing.T, e *harness.Engine, c cell) {
	t.Helper()
	t.Run(string(c.style)+"/new", func(t *testing.T) {
		t.Parallel()
		r := startRelease(t, e, c, nil)
		r.waitPaused(1)
		r.watch.AllowFinish(t)
		r.MustVerb(r.rollout.Name, "stop", `{"to":"new","reason":"no time to wait"}`)
		r.requirePromoted()
	})
}

// The other styles, and a frozen split.
func TestLongRolloutStop_EndsAtStableNewOrFrozen(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e := harness.Shared(t)
	t.Run("styles", func(t *testing.T) {
		testStopToNew(t, e, styles[0])
		testStopToStable(t, e, styles[1])
		testFrozenEndings(t, e, styles[2])
	})
}

func TestSoakRolloutStop_EndsAtStableNewOrFrozen(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	e := harness.Shared(t)
	t.Run("styles", func(t *testing.T) {
		for _, c := range styles {
			testStopToStable(t, e, c)
			testStopToNew(t, e, c)
			testFrozenEndings(t, e, c)
		}
	})
}

// testFrozenEndings runs subtests that freeze a rollout, and then roll it back or start the next rollout.
func testFrozenEndings(t *testing.T, e *harness.Engine, c cell) {
	t.Helper()
	t.Run(string(c.style)+"/frozen, then rolled back", func(t *testing.T) {
		t.Parallel()
		r := stopFrozen(t, e, c)
		r.sendVerb("rollback", `{"actor":"bob","reason":"roll back the frozen split"}`)
		r.WaitRollout(r.rollout.Name, "rolled back", func(s rollout.Status) bool {
			return s.Phase == rollout.PhaseRolledBack
		})
		r.requireRolledBack()
	})
	t.Run(string(c.style)+"/frozen, then released again", func(t *testing.T) {
		t.Parallel()
		r := stopFrozen(t, e, c)
		r.rollout.Image = "registry.test/order:v3"
		r.watch.AllowStep(t, 1)
		r.StartRollout(r.rollout)
		r.WaitRollout(r.rollout.Name, "the next rollout", func(s rollout.Status) bool {
			return s.Phase == rollout.PhaseProgressing
		})
		r.approveAll(1)
		r.requirePromoted()
	})
}

// stopFrozen starts a rollout and stops it as frozen at step 2: the split, the traffic and the saved state stay, the
// claim is released.
func stopFrozen(t *testing.T, e *harness.Engine, c cell) *release {
	t.Helper()
	r := startRelease(t, e, c, nil)
	r.approve(1)
	r.waitPaused(2)
	r.MustVerb(r.rollout.Name, "stop", `{"to":"frozen","actor":"ann"}`)
	status := r.WaitPhase(r.rollout.Name, rollout.PhaseCancelled)
	require.True(t, status.Frozen)
	r.watch.MarkPaused(t, 2)
	require.Empty(t, r.claim(), "the claim is released")
	require.Contains(t, r.object().GetAnnotations(), workload.AnnotationRollout, "the saved state stays")
	return r
}

// A jump to a later step moves pods and traffic; a jump to an earlier step moves only traffic.
func TestRolloutJump_MovesPodsOnlyForwards(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	t.Run("ForwardsAndBack", func(t *testing.T) {
		t.Parallel()
		r := startRelease(t, e, deploymentCell(strategy.StylePartition, harness.Gateway),
			func(_ map[string]any, r *harness.Rollout) {
				r.Strategy.Steps = []strategy.Step{harness.Step("25%", 10), harness.Step("25%", 20),
					harness.Step("50%", 50), harness.Step("100%", -1)}
			})
		r.waitPaused(1)
		r.watch.AllowStep(t, 3)
		r.MustVerb(r.rollout.Name, "jump", `{"toStep":3}`)
		r.waitPaused(3)
		made := r.watch.PodsCreated(t)
		r.watch.MarkMoving(t)
		r.MustVerb(r.rollout.Name, "jump", `{"toStep":2}`)
		status := r.WaitForApproval(r.rollout.Name, 2)
		require.Equal(t, int32(20), status.Traffic.CanaryWeight, "traffic returns to the weight of step 2")
		require.Equal(t, made, r.watch.PodsCreated(t), "pods do not")
		require.Equal(t, observer.Count{Stable: 2, StableReady: 2, New: 2, NewReady: 2}, r.watch.Count(t))
		r.watch.AllowStep(t, 3)
		r.Approve(r.rollout.Name, status)
		r.approveAll(3)
		r.requirePromoted()
	})
	t.Run("NoSuchStep", func(t *testing.T) {
		t.Parallel()
		r := startRelease(t, e, deploymentCell(strategy.StylePartition, harness.NoProvider), nil)
		r.waitPaused(1)
		a := r.RolloutVerb(r.rollout.Name, "jump", `{"toStep":9}`)
		require.Equal(t, http.StatusConflict, a.Status, "%s", a.Body)
		require.Equal(t, http.StatusBadRequest, r.RolloutVerb(r.rollout.Name, "jump", `{"toStep":-1}`).Status)
		r.sendVerb("rollback", "")
		r.requireRolledBack()
	})
}

// Promote skips every remaining pause, including timers of days.
func TestRolloutPromote_SkipsRemainingPauses(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	for _, style := range []strategy.Style{strategy.StylePartition, strategy.StyleBlueGreen} {
		t.Run(string(style), func(t *testing.T) {
			t.Parallel()
			r := startRelease(t, e, deploymentCell(style, harness.NoProvider),
				func(_ map[string]any, r *harness.Rollout) {
					r.Strategy.Steps[1] = harness.TimedStep(r.Strategy.Steps[1], 48*time.Hour)
				})
			status := r.waitPaused(1)
			r.watch.AllowFinish(t)
			r.MustVerb(r.rollout.Name, "promote", fmt.Sprintf(`{"gate":%q,"reason":"it is good"}`,
				status.WaitingFor.Gate))
			r.requirePromoted()
		})
	}
}

// A paused rollout starts nothing and refuses approvals until it is resumed. `paused` in the strategy pauses it before
// its first step.
func TestRolloutPauseAndResume(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	t.Run("AtApproval", func(t *testing.T) {
		t.Parallel()
		r := startRelease(t, e, deploymentCell(strategy.StylePartition, harness.NoProvider), nil)
		r.waitPaused(1)
		paused := r.MustVerb(r.rollout.Name, "pause", `{"actor":"ann","reason":"lunch"}`)
		require.True(t, paused.Paused)
		require.Contains(t, paused.Reason, "lunch")
		require.Equal(t, http.StatusConflict, r.RolloutVerb(r.rollout.Name, "approve", `{"step":1}`).Status,
			"a paused rollout is not approved")
		r.MustVerb(r.rollout.Name, "resume", "")
		r.approveAll(1)
		r.requirePromoted()
	})
	t.Run("MidStep", func(t *testing.T) {
		t.Parallel()
		r := startRelease(t, e, deploymentCell(strategy.StylePartition, harness.NoProvider),
			func(object map[string]any, _ *harness.Rollout) { slowPods(object, 3*time.Second) })
		r.WaitRollout(r.rollout.Name, "the step to replace pods", func(s rollout.Status) bool {
			return s.CurrentStepState == rollout.StateUpgrade
		})
		r.MustVerb(r.rollout.Name, "pause", "")
		r.WaitRollout(r.rollout.Name, "paused", func(s rollout.Status) bool {
			return s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitResume
		})
		r.MustVerb(r.rollout.Name, "resume", "")
		r.approveAll(1)
		r.requirePromoted()
	})
	t.Run("FromTheStart", func(t *testing.T) {
		t.Parallel()
		r := startRelease(t, e, deploymentCell(strategy.StylePartition, harness.NoProvider),
			func(_ map[string]any, r *harness.Rollout) { r.Strategy.Paused = true })
		r.WaitRollout(r.rollout.Name, "paused", func(s rollout.Status) bool {
			return s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitResume
		})
		require.Zero(t, r.watch.PodsCreated(t), "no pod was replaced")
		r.MustVerb(r.rollout.Name, "resume", "")
		r.approveAll(1)
		r.requirePromoted()
	})
}

// A newer revision during a rollout: a partition or canary first returns to stable and then starts the newest revision
// at step 1; a blue-green refuses it.
func TestRolloutSupersede_StartsOverOrRefuses(t *testing.T) {
	t.Parallel()
	t.Run("partition", func(t *testing.T) {
		t.Parallel()
		testSupersede(t, deploymentCell(strategy.StylePartition, harness.Nginx))
	})
	t.Run("blueGreen", func(t *testing.T) {
		t.Parallel()
		r := startRelease(t, harness.Shared(t), deploymentCell(strategy.StyleBlueGreen, harness.NoProvider), nil)
		r.waitPaused(1)
		a := r.TryStartRollout(r.newerRollout())
		require.Equal(t, http.StatusConflict, a.Status, "%s", a.Body)
		require.Contains(t, string(a.Body), "roll", "the answer says that a rollback is needed first")
		r.sendVerb("rollback", "")
		r.requireRolledBack()
	})
}

// The same with an extra workload.
func TestLongRolloutSupersede_StartsOver(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	testSupersede(t, deploymentCell(strategy.StyleCanary, harness.Gateway))
}

// newerRollout returns a rollout of a newer revision that supersedes this one.
func (r *release) newerRollout() harness.Rollout {
	next := r.rollout
	next.Image, next.ExtraFields = "registry.test/order:v3", map[string]any{"supersede": true}
	return next
}

func testSupersede(t *testing.T, c cell) {
	t.Helper()
	r := startRelease(t, harness.Shared(t), c, nil)
	r.approve(1)
	r.waitPaused(2)
	r.watch.MarkMoving(t)
	next := r.newerRollout()
	r.StartRollout(next)
	r.rollout = next
	r.WaitRollout(r.rollout.Name, "the newest", func(s rollout.Status) bool { return s.Images["app"] == next.Image })
	r.approveAll(1)
	r.requirePromoted()
}

// A second rollout of a workload, with the same or another name, is refused; the answer names the first one.
func TestSecondRolloutOfWorkload_IsRefused(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	r := startRelease(t, e, deploymentCell(strategy.StylePartition, harness.NoProvider), nil)
	r.waitPaused(1)
	for name, more := range map[string]map[string]any{"the same name": nil, "another name": {"name": "another"}} {
		second := r.rollout
		second.Image, second.ExtraFields = "registry.test/order:v3", more
		a := r.TryStartRollout(second)
		require.Equal(t, http.StatusConflict, a.Status, "%s: %s", name, a.Body)
		require.Contains(t, string(a.Body), "rollout/default/"+r.Apps+"/"+r.rollout.Name,
			"%s: the answer names the first rollout", name)
	}
	r.approveAll(1)
	r.requirePromoted()
}

// A rollout and a plan's RESTART of the same workload exclude each other.
func TestRolloutAndRestartOfWorkload_ExcludeEachOther(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	t.Run("RolloutFirst", func(t *testing.T) {
		t.Parallel()
		r := startRelease(t, e, deploymentCell(strategy.StylePartition, harness.NoProvider), nil)
		r.waitPaused(1)
		r.PutService("order-"+r.Apps, "", "Deployment/order")
		r.PutPlan("restart-"+r.Apps, fmt.Sprintf("deployPlanItems: [{serviceId: order-%s, deployment: RESTART}]",
			r.Apps))
		a := r.Call(http.MethodPost, "/api/v1/plans/restart-"+r.Apps+"/execute", "")
		if a.Status == http.StatusAccepted { // the API need not refuse it; the claim does
			task := r.WaitTask(idOf(t, a), plan.TaskFailed, plan.TaskSucceeded)
			require.Equal(t, plan.TaskFailed, task.State)
			require.Contains(t, task.Services[0].Reason, "rollout/default/"+r.Apps+"/order")
		} else {
			require.Contains(t, []int{http.StatusConflict, http.StatusUnprocessableEntity}, a.Status, "%s", a.Body)
			require.Contains(t, string(a.Body), "rollout/default/"+r.Apps+"/order", "the answer names the rollout")
		}
		r.watch.MarkPaused(t, 1)
		r.approveAll(1)
		r.requirePromoted()
	})
	t.Run("RestartFirst", func(t *testing.T) {
		t.Parallel()
		r := prepare(t, e, deploymentCell(strategy.StylePartition, harness.NoProvider),
			func(object map[string]any, _ *harness.Rollout) { slowPods(object, 3*time.Second) })
		r.PutService("order-"+r.Apps, "", "Deployment/order")
		r.PutPlan("restart-"+r.Apps, fmt.Sprintf("deployPlanItems: [{serviceId: order-%s, deployment: RESTART, "+
			"containerExecMethod: SEQUENTIAL}]", r.Apps))
		id := r.Execute("restart-" + r.Apps)
		r.WaitTaskUntil(id, "a claim", func(plan.Task) bool { return r.claim() != "" })
		a := r.TryStartRollout(r.rollout)
		require.Equal(t, http.StatusConflict, a.Status, "%s", a.Body)
		require.Contains(t, string(a.Body), "task/"+id, "the answer names the task")
		require.Equal(t, plan.TaskSucceeded, r.WaitTask(id, plan.TaskSucceeded, plan.TaskFailed).State)
	})
}

// A rollback in batches from the middle of a step: the engine waits until the pods have settled, counts the new ones,
// and reverts them step by step.
func TestLongRolloutRollsBackInBatches_FromMidStep(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e := harness.Shared(t)
	for _, kind := range []harness.Kind{harness.Deployment, harness.StatefulSet, harness.CloneSet} {
		t.Run(kind.Title, func(t *testing.T) {
			t.Parallel()
			r := startRelease(t, e, cell{kind, strategy.StylePartition, harness.NoProvider},
				func(object map[string]any, ro *harness.Rollout) {
					slowPods(object, 3*time.Second)
					ro.ExtraFields = map[string]any{"policy": map[string]any{"rollbackInBatches": true,
						"stepDeadlineSeconds": 90}}
				})
			r.approve(1)
			r.approve(2)
			r.WaitRollout(r.rollout.Name, "the step to replace pods", func(s rollout.Status) bool {
				return s.CurrentStepIndex == 3 && s.CurrentStepState == rollout.StateUpgrade
			})
			r.watch.MarkMoving(t)
			r.MustVerb(r.rollout.Name, "rollback", "")
			for step := 1; step <= 2; step++ {
				status := r.WaitRollout(r.rollout.Name, fmt.Sprintf("approval at step %d of the rollback", step),
					func(s rollout.Status) bool {
						return s.CurrentStepIndex == step && s.WaitingFor != nil &&
							s.WaitingFor.Kind == rollout.WaitApproval
					})
				require.Positive(t, status.CanaryReplicas, "the rollback goes in batches: %s", status.Reason)
				r.Approve(r.rollout.Name, status)
			}
			r.requireRolledBack()
		})
	}
}
