package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

func TestRollout_FromStartToEnd(t *testing.T) {
	t.Parallel()
	e := newRolloutEngine(t)
	e.call("GET", rolloutPath, "").is(http.StatusNotFound, "nothing has been released")
	e.call("GET", rolloutPath+"/history", "").is(http.StatusNotFound, "nothing has been released")
	started := e.startRollout("x:2", "")
	require.Equal(t, "order", started.Name, "the workload's name is the rollout's")
	require.Len(t, started.Steps, 2)

	waiting := e.waitApproval()
	require.Equal(t, started.Record, waiting.Record)
	require.Equal(t, int32(2), waiting.CanaryReadyReplicas)
	require.NotEmpty(t, waiting.WaitingFor.Gate)
	require.Contains(t, waiting.Workflow.URL, "http://ui.example/")
	e.listed(rollout.PhaseProgressing, rollout.WaitApproval, "?waitingFor=approval&namespace=shop")
	inList := decode[schema.RolloutList](e.call("GET", "/api/v1/rollouts", "")).Items[0]
	require.Equal(t, waiting.WaitingFor, inList.WaitingFor,
		"the list shows the same wait as the rollout, including the gate")
	require.Equal(t, waiting.Reason, inList.Reason)

	stale := e.call("POST", rolloutPath+"/approve", `{"gate":"older","actor":"wang"}`, jsonBody).is(http.StatusConflict,
		"the gate is stale")
	require.Equal(t, waiting.WaitingFor.Gate, stale.problem().Rollout.WaitingFor.Gate,
		"the problem contains the current state")
	require.Equal(t, rollout.PhaseProgressing, e.rollout().Phase, "nothing was done")
	approved := e.call("POST", rolloutPath+"/approve",
		`{"gate":"`+waiting.WaitingFor.Gate+`","actor":"wang","key":"a1","step":1}`, jsonBody, "Slipway-Via: console").
		is(http.StatusOK, "the gate is the one that waits")
	decision := decode[rollout.Status](approved).History
	last := decision[len(decision)-1]
	require.Equal(t, []any{"wang", "console", rollout.VerbApprove, audit.Accepted, "a1"},
		[]any{last.Actor, last.Via, last.Verb, last.Outcome, last.Key})

	e.waitRecord(started.Record, rollout.PhaseHealthy)
	ended := e.rollout()
	require.Equal(t, rollout.PhaseHealthy, ended.Phase)
	require.Equal(t, -1, ended.NextStepIndex)
	e.listed(rollout.PhaseHealthy, "", "?phase=Healthy")
	again := e.call("POST", rolloutPath+"/approve", `{"key":"a1","step":1}`, jsonBody).is(http.StatusOK,
		"a late repeat gets the first answer")
	require.Equal(t, rollout.PhaseHealthy, decode[rollout.Status](again).Phase)
	late := e.call("POST", rolloutPath+"/rollback", "").is(http.StatusConflict, "it has ended")
	require.Contains(t, late.problem().Detail, "undo it (POST /api/v1/rollouts/shop/order/undo)")

	second := e.startRollout("x:3", "")
	e.waitApproval()
	past := e.history().Items
	require.Equal(t, []string{second.Record, started.Record}, []string{past[0].Rollout.Record, past[1].Rollout.Record},
		"newest first")
	require.Equal(t, []rollout.Phase{rollout.PhaseProgressing, rollout.PhaseHealthy},
		[]rollout.Phase{past[0].Rollout.Phase, past[1].Rollout.Phase})
	require.Equal(t, "li", past[1].Actor)
}

func waitKind(w *rollout.WaitingFor) rollout.WaitKind {
	if w == nil {
		return ""
	}
	return w.Kind
}

// listed checks that the list contains only this rollout, in this state.
func (e *engine) listed(phase rollout.Phase, waiting rollout.WaitKind, query string) {
	e.t.Helper()
	require.Eventually(e.t, func() bool { // Temporal's lists lag behind
		list := decode[schema.RolloutList](e.call("GET", "/api/v1/rollouts"+query, "").is(http.StatusOK,
			"the query is well formed"))
		return len(list.Items) == 1 && list.Items[0].Phase == phase && waitKind(list.Items[0].WaitingFor) == waiting &&
			list.Items[0].Name == "order" &&
			list.Items[0].WorkloadRef.Kind == "Deployment" && list.Items[0].Style == strategy.StylePartition
	}, waitTimeout, pollInterval, "one rollout in %s waiting for %q", phase, waiting)
	e.call("GET", "/api/v1/rollouts?waitingFor=godot", "").is(http.StatusBadRequest, "there is no such wait")
	require.Empty(e.t, decode[schema.RolloutList](e.call("GET", "/api/v1/rollouts?namespace=elsewhere", "")).Items)
}

func TestStartRollout_Refusals(t *testing.T) {
	t.Parallel()
	e := newRolloutEngine(t)
	for _, c := range []struct {
		reason, body string
		status       int
		says         string
	}{
		{"an unknown field", rolloutBody("x:2", `"colour":"red",`), http.StatusBadRequest, "colour"},
		{"an unknown party", rolloutBody("x:2", `"party":"nobody",`), http.StatusUnprocessableEntity,
			"party nobody is not known"},
		{"no steps",
			`{"namespace":"shop","workloadRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"order"},"images":{"app":"x"},"strategy":{"canary":{}}}`,
			http.StatusBadRequest, "steps"},
		{"an absent TrafficRouting",
			`{"namespace":"shop","workloadRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"order"},"images":{"app":"x"},
			"strategy":{"canary":{"steps":[{"replicas":1}],"trafficRoutingRef":"nowhere"}}}`, http.StatusUnprocessableEntity, "TrafficRouting shop/nowhere does not exist"},
	} {
		require.Contains(t, e.call("POST", "/api/v1/rollouts", c.body, jsonBody).is(c.status, c.reason).reasons(),
			c.says, c.reason)
	}
	e.rollouts.answers(rollout.PreflightResult{Refusals: []rollout.Refusal{{Field: "images.app",
		Reason: "order has no container app"}}})
	refused := e.call("POST", "/api/v1/rollouts", rolloutBody("x:2", ""), jsonBody).is(http.StatusUnprocessableEntity,
		"the party refuses")
	require.Equal(t, []schema.FieldProblem{{Field: "images.app", Reason: "order has no container app"}},
		refused.problem().Errors)
	checked := decode[schema.RolloutValidateResult](
		e.call("POST", "/api/v1/rollouts/validate", rolloutBody("x:2", ""), jsonBody).is(http.StatusOK,
			"validation always answers"))
	require.False(t, checked.Valid)
	require.Equal(t, refused.problem().Errors, checked.Errors)
	require.Len(t, checked.Rollout.Steps, 2)

	e.rollouts.answers(rollout.PreflightResult{Holder: "task/removed/1-111@run", HeldObject: "Deployment order"})
	checked = decode[schema.RolloutValidateResult](
		e.call("POST", "/api/v1/rollouts/validate", rolloutBody("x:2", ""), jsonBody))
	require.True(t, checked.Valid, "the holder's workflow has ended: %+v", checked)
	e.call("GET", rolloutPath, "").is(http.StatusNotFound, "a dry run starts nothing")
	e.startRollout("x:2", "")
	e.waitApproval()

	live := workload.Holder{WorkflowID: "rollout/default/shop/order", RunID: e.rollout().Workflow.RunID}.String()
	e.rollouts.answers(rollout.PreflightResult{Holder: live, HeldObject: "Deployment order"})
	held := e.call("POST", "/api/v1/rollouts", rolloutBody("x:2", `"name":"other",`), jsonBody).is(http.StatusConflict,
		"another name, the same workload")
	require.Equal(t, "rollout/default/shop/order", held.problem().Holder)
	require.Contains(t, held.problem().Detail, "Deployment order is held by the release rollout/default/shop/order")
	e.call("GET", "/api/v1/rollouts/shop/other", "").is(http.StatusNotFound, "no record was written")

	foreign := workload.Holder{WorkflowID: "rollout/default/shop/other", RunID: "run",
		Engine: workload.Engine{UID: "uid-b", Name: "blue"}}.String()
	e.rollouts.answers(rollout.PreflightResult{Holder: foreign, HeldObject: "Deployment order"})
	held = e.call("POST", "/api/v1/rollouts", rolloutBody("x:2", `"name":"other",`), jsonBody).is(http.StatusConflict,
		"another engine's release, even of the same name")
	require.Contains(t, held.problem().Detail, "Deployment order is held by rollout/default/shop/other of engine "+
		"blue: only engine blue can take over its own claims")
	require.Contains(t, held.problem().Detail, "slipway repair shop/other --to stable --engine blue")
	checked = decode[schema.RolloutValidateResult](
		e.call("POST", "/api/v1/rollouts/validate", rolloutBody("x:2", `"name":"other",`), jsonBody))
	require.Contains(t, strings.Join(checked.Warnings, "\n"), "of engine blue")
}

func TestStartRollout_StartsOneRelease_WhenKeyRepeated(t *testing.T) {
	t.Parallel()
	e := newRolloutEngine(t)
	var wg sync.WaitGroup
	records := make([]string, 5)
	for i := range records {
		wg.Go(func() {
			records[i] = decode[rollout.Status](e.call("POST", "/api/v1/rollouts", rolloutBody("x:2", ""), jsonBody,
				"Idempotency-Key: k1")).Record
		})
	}
	wg.Wait()
	for _, record := range records {
		require.Equal(t, records[0], record, "five concurrent requests start one release")
	}
	require.NotEmpty(t, records[0])
	require.Len(t, e.history().Items, 1)
	require.Equal(t, records[0], e.startRollout("x:2", `"key":"k1",`).Record, "the key may be in the body")
	other := e.call("POST", "/api/v1/rollouts", rolloutBody("x:3", ""), jsonBody,
		"Idempotency-Key: k1").is(http.StatusConflict, "another body")
	require.Contains(t, other.problem().Detail, "the key was used for another request")
	e.call("POST", "/api/v1/rollouts", rolloutBody("x:2", `"key":"k2",`), jsonBody,
		"Idempotency-Key: k1").is(http.StatusBadRequest, "two keys")

	e.waitApproval()
	live := e.call("POST", "/api/v1/rollouts", rolloutBody("x:3", ""), jsonBody).is(http.StatusConflict,
		"a release of that name runs")
	require.Equal(t, records[0], live.problem().Rollout.Record)
	require.Len(t, e.history().Items, 1, "the refused request left no record")
}

func TestStartRollout_Supersede(t *testing.T) {
	t.Parallel()
	e := newRolloutEngine(t)
	first := e.startRollout("x:2", "")
	e.waitApproval()
	e.startRollout("x:3", `"supersede":true,`)
	newer := e.waitRollout("the newer release", func(s rollout.Status) bool {
		return s.Record != first.Record && s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitApproval
	})
	require.Equal(t, "x:3", newer.Images["app"])
	require.Equal(t, 1, newer.CurrentStepIndex, "it begins at step 1")
	require.Equal(t, 1, e.rollouts.rollbacks(), "the first release was rolled back")
	past := e.history().Items
	require.Len(t, past, 2)
	require.Equal(t, newer.Record, past[0].Rollout.Record)
	require.True(t, past[1].Rollout.Phase.Final(), "the first release has a final phase: %s", past[1].Rollout.Phase)
}

func TestRollback_OfFrozenRollout(t *testing.T) {
	t.Parallel()
	e := newRolloutEngine(t)
	first := e.startRollout("x:2", "")
	e.waitApproval()
	e.call("POST", rolloutPath+"/stop", `{"to":"nowhere"}`, jsonBody).is(http.StatusBadRequest, "there is no such side")
	e.call("POST", rolloutPath+"/approve", `{"to":"new"}`, jsonBody).is(http.StatusBadRequest,
		"the field to is for stop only")
	e.call("POST", rolloutPath+"/jump", `{}`, jsonBody).is(http.StatusBadRequest, "toStep is missing")
	e.call("POST", rolloutPath+"/stop", `{"to":"frozen","actor":"li"}`, jsonBody).is(http.StatusOK,
		"it can be stopped where it is")
	e.waitRecord(first.Record, rollout.PhaseCancelled)
	require.True(t, e.rollout().Frozen)
	closed := e.call("POST", rolloutPath+"/approve", `{"step":1}`, jsonBody).is(http.StatusConflict, "it has ended")
	require.Contains(t, closed.problem().Detail, "roll it back, or start the next release")
	require.Zero(t, e.rollouts.rollbacks())

	e.call("POST", rolloutPath+"/rollback", `{"actor":"wang","key":"r1"}`, jsonBody).is(http.StatusOK,
		"a frozen split can be rolled back")
	back := e.waitRollout("the stable version", func(s rollout.Status) bool {
		return s.Phase == rollout.PhaseRolledBack
	})
	require.NotEqual(t, first.Record, back.Record, "it has a record of its own")
	e.waitRecord(back.Record, rollout.PhaseRolledBack)
	require.Equal(t, 1, e.rollouts.rollbacks())
	e.call("POST", rolloutPath+"/rollback", `{"actor":"wang","key":"r1"}`, jsonBody).is(http.StatusOK,
		"the same key is the same command")
	require.Equal(t, 1, e.rollouts.rollbacks(), "nothing was done twice")
	e.call("POST", rolloutPath+"/rollback", `{}`, jsonBody).is(http.StatusConflict,
		"there is nothing left to roll back")
}

func TestStopToFrozen_BeforeFirstStep_LeavesNothingFrozen(t *testing.T) {
	t.Parallel()
	e := newRolloutEngine(t)
	held := strings.Replace(rolloutBody("x:2", ""), `"strategy":{`, `"strategy":{"paused":true,`, 1)
	e.call("POST", "/api/v1/rollouts", held, jsonBody).is(http.StatusAccepted, "the rollout can be started")
	started := e.waitRollout("its pause", waitsFor(rollout.WaitResume))
	e.call("POST", rolloutPath+"/stop", `{"to":"frozen"}`, jsonBody).is(http.StatusOK, "it can be stopped")
	e.waitRecord(started.Record, rollout.PhaseCancelled)
	require.False(t, e.rollout().Frozen, "there is no split")
	require.Contains(t, e.rollout().Reason, "nothing of it is left on Deployment shop/order")
	e.call("POST", rolloutPath+"/rollback", "{}", jsonBody).is(http.StatusConflict, "there is nothing to roll back")
	require.Len(t, e.history().Items, 1, "nothing was started")

	e.rollouts.answers(rollout.PreflightResult{Frozen: true})
	e.call("POST", rolloutPath+"/rollback", "{}", jsonBody).is(http.StatusOK,
		"the split of an earlier release is still there")
	e.waitRollout("the stable version", func(s rollout.Status) bool { return s.Phase == rollout.PhaseRolledBack })
}

// TestStartRollout_Accepted_WhileWorkloadIsUpdating checks that a start waits for a workload's own update, and warns of
// a step that replaces every pod.
func TestStartRollout_Accepted_WhileWorkloadIsUpdating(t *testing.T) {
	t.Parallel()
	e := newRolloutEngine(t)
	e.rollouts.answers(rollout.PreflightResult{Unsettled: "Deployment shop/order is still being updated: 1 of 2 pods " +
		"are of its newest template, 2 in all", Replicas: 2})
	checked := decode[schema.RolloutValidateResult](
		e.call("POST", "/api/v1/rollouts/validate", rolloutBody("x:2", ""), jsonBody).is(http.StatusOK,
			"it can be checked"))
	require.True(t, checked.Valid)
	require.Len(t, checked.Warnings, 2)
	require.Contains(t, checked.Warnings[0], "still being updated: 1 of 2 pods are of its newest template, 2 in all: "+
		"the release waits up to 1m0s for that")
	require.Contains(t, checked.Warnings[1], "step 1 of 2 asks for 2 and replaces every pod")
	refused := e.call("POST", "/api/v1/rollouts", rolloutBody("x:2", `"policy":{"settleSeconds":0},`),
		jsonBody).is(http.StatusUnprocessableEntity, "without a settle time, it is refused")
	require.Contains(t, refused.reasons(), "wait until that is done")
	require.Equal(t, checked.Warnings, e.startRollout("x:2", "").Warnings)
}

// If no pod shows which version is stable, the newest Healthy record of the name does; without one the start is
// refused.
func TestStartRollout_TakesStableVersionFromRecord_IfNoPodShowsIt(t *testing.T) {
	t.Parallel()
	e := newRolloutEngine(t)
	e.rollouts.mu.Lock()
	e.rollouts.unknown = true
	e.rollouts.mu.Unlock()
	refused := e.call("POST", "/api/v1/rollouts", rolloutBody("x:2", ""), jsonBody).is(http.StatusUnprocessableEntity,
		"nothing is on record")
	require.Contains(t, refused.reasons(), "no revision has a ready pod")
	e.rollouts.mu.Lock()
	e.rollouts.unknown = false
	e.rollouts.mu.Unlock()
	e.releaseToEnd("x:2", "")
	e.rollouts.mu.Lock()
	e.rollouts.unknown = true
	e.rollouts.mu.Unlock()
	require.True(t, decode[schema.RolloutValidateResult](e.call("POST", "/api/v1/rollouts/validate",
		rolloutBody("x:3", ""), jsonBody)).Valid, "the same for its validation")
	e.releaseToEnd("x:3", "")
	e.rollouts.mu.Lock()
	defer e.rollouts.mu.Unlock()
	require.Equal(t, digestOf("x:2"), e.rollouts.servedBy, "the release begins from it")
}

// TestApproveRollout_RequiresGateOrStep checks that two quick approvals cannot approve two steps when the user has
// reviewed only one.
func TestApproveRollout_RequiresGateOrStep(t *testing.T) {
	t.Parallel()
	e := newRolloutEngine(t)
	e.startRollout("x:2", "")
	waiting := e.waitApproval()
	for _, body := range []string{"", "{}", `{"actor":"li","reason":"fine"}`} {
		for _, verb := range []string{"approve", "promote"} {
			blind := e.call("POST", rolloutPath+"/"+verb, body, jsonBody).is(http.StatusBadRequest,
				verb+" "+body+" names neither gate nor step")
			require.Contains(t, blind.reasons(), "is missing: to "+verb+", send waitingFor.gate")
		}
	}
	require.Equal(t, waiting.WaitingFor.Gate, e.rollout().WaitingFor.Gate, "nothing was approved")
	e.call("POST", rolloutPath+"/approve", `{"step":2}`, jsonBody).is(http.StatusConflict, "step 1 waits")
	e.call("POST", rolloutPath+"/approve", `{"stp":1}`, jsonBody).is(http.StatusBadRequest,
		"a misspelt field is refused")
	e.call("POST", rolloutPath+"/approve", `{"step":1}`, jsonBody).is(http.StatusOK, "step 1 waits")
}

func TestRollout_IsFailed_WhenWorkflowTerminated(t *testing.T) {
	t.Parallel()
	e := newRolloutEngine(t)
	first := e.startRollout("x:2", "")
	e.waitApproval()
	require.NoError(t, e.temporal.TerminateWorkflow(t.Context(), "rollout/default/shop/order", "", "by hand"))
	lost := e.rollout()
	require.Equal(t, rollout.PhaseFailed, lost.Phase)
	require.Contains(t, lost.Reason, "its workflow was terminated")
	require.Contains(t, lost.Reason, "slipway repair")
	e.listed(rollout.PhaseFailed, "", "")
	verb := e.call("POST", rolloutPath+"/approve", `{"step":1}`, jsonBody).is(http.StatusConflict,
		"no workflow accepts verbs")
	require.Contains(t, verb.problem().Detail, "was terminated")
	second := e.startRollout("x:3", "")
	require.NotEqual(t, first.Record, second.Record, "a new one can be started")
	e.waitApproval()
	require.Equal(t, rollout.PhaseFailed, e.history().Items[1].Rollout.Phase)
}

func TestRollout_WhenNoWorkerRuns(t *testing.T) {
	t.Parallel()
	e := newRolloutEngine(t)
	e.startRollout("x:2", "")
	waiting := e.waitApproval()
	e.stopWorkers()
	unknown := e.call("POST", rolloutPath+"/approve", `{"key":"a1","step":1}`,
		jsonBody).is(http.StatusServiceUnavailable, "no worker runs")
	require.Contains(t, unknown.problem().Detail, `unknown; repeat with the same key, "a1"`)
	dark := e.rollout()
	require.Equal(t, rollout.PhaseProgressing, dark.Phase, "the last published phase")
	require.Equal(t, rollout.WaitApproval, dark.WaitingFor.Kind)
	require.Equal(t, waiting.WaitingFor, dark.WaitingFor, "its gate is known nevertheless")
	require.Contains(t, dark.Reason, "does not answer")
	e.call("POST", "/api/v1/rollouts/validate", rolloutBody("x:2", ""), jsonBody).is(http.StatusServiceUnavailable,
		"no worker can check it")
	e.startWorkers()
	e.callAgain("POST", rolloutPath+"/approve", `{"key":"a1","step":1}`, jsonBody).is(http.StatusOK,
		"the repeat is answered")
	e.waitRollout("its end", func(s rollout.Status) bool { return s.Phase == rollout.PhaseHealthy })
}

func TestRolloutEvents(t *testing.T) {
	t.Parallel()
	e := newRolloutEngine(t)
	release := e.rollouts.hold()
	e.startRollout("x:2", "")
	events := e.streamOf(t.Context(), rolloutPath)
	e.untilRollout(events, func(s rollout.Status) bool {
		return s.CanaryReadyReplicas == 1 && s.WaitingFor != nil && s.WaitingFor.Message == "1 of 2 new pods are ready"
	})
	release()
	e.untilRollout(events, waitsFor(rollout.WaitApproval))
	e.call("POST", rolloutPath+"/approve", `{"step":1}`, jsonBody).is(http.StatusOK, "it waits for it")
	last := e.untilRollout(events, func(s rollout.Status) bool { return s.Phase == rollout.PhaseHealthy })
	for one := range events {
		require.NoError(t, json.Unmarshal([]byte(one.data), &last))
	}
	require.Equal(t, rollout.PhaseHealthy, last.Phase, "the stream ends with the final state")
	e.call("GET", "/api/v1/rollouts/shop/absent/events", "").is(http.StatusNotFound, "there is nothing to follow")
}

func (e *engine) untilRollout(events <-chan event, is func(rollout.Status) bool) rollout.Status {
	e.t.Helper()
	for {
		var status rollout.Status
		require.NoError(e.t, json.Unmarshal([]byte(next(e.t, events, "state").data), &status))
		if is(status) {
			return status
		}
	}
}
