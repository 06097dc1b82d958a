package api_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/workflows"
)

// registerServingParty plays the parties of servings: all can do everything, but for one whose domain begins with "nobody", which fails at a new version.
func registerServingParty(w worker.Worker) {
	register := func(name string, fn func(context.Context, serving.PartyRequest) error) {
		w.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
	register(serving.ActivityPrepare, func(context.Context, serving.PartyRequest) error { return nil })
	register(serving.ActivityApply, func(_ context.Context, r serving.PartyRequest) error {
		if strings.HasPrefix(r.Domain, "nobody") && !r.Source.Previous {
			return temporal.NewNonRetryableApplicationError("no such image", string(failure.Refused), nil, failure.Details{})
		}
		return nil
	})
}

// updateServing begins an update of both parties of a serving that asks between them, and waits until it does.
func (e *engine) updateServing(kd *kuscia.KusciaDeployment) serving.View {
	e.t.Helper()
	in := serving.Input{ID: kd.Name, UID: string(kd.UID), Generation: kd.Generation, Kind: serving.KindUpdate, TargetDigest: "new", PreviousDigest: "old", UnreachableBudgetSeconds: 5,
		Policy: serving.Policy{Order: serving.OrderSequential, Approval: serving.ApprovalBetweenParties}}
	for _, p := range kd.Spec.Parties {
		in.Parties = append(in.Parties, serving.PartyTarget{Domain: p.DomainID, Role: p.Role, Deployment: serving.DeploymentName(kd.Name, p.Role), Queue: catalog.PartyQueue(catalog.DefaultParty)})
	}
	_, err := e.temporal.ExecuteWorkflow(e.t.Context(), client.StartWorkflowOptions{ID: serving.WorkflowPrefix(kd.Name) + "1", TaskQueue: workflows.QueueEngine}, workflows.TypeServing, in)
	require.NoError(e.t, err)
	return e.waitServing(kd.Name, "an approval that is waited for", func(op serving.OperationView) bool { return op.WaitingFor != nil })
}

func (e *engine) waitServing(id, what string, is func(op serving.OperationView) bool) (view serving.View) {
	e.t.Helper()
	require.Eventually(e.t, func() bool {
		view = e.serving(id)
		return view.Operation != nil && is(*view.Operation)
	}, patience, tick, "never came to %s: %+v", what, view.Operation)
	return view
}

func over(op serving.OperationView) bool { return op.Done }

func TestAnUpdateOfAServingIsApproved(t *testing.T) {
	t.Parallel()
	e, image := servingEngine(t)
	e.work()
	const path = "/api/v1/servings/one"
	e.call("POST", path+"/approve", `{"gate":"any"}`, jsonBody).is(http.StatusNotFound, "there is no such serving")
	kd := e.createServing("one", image)
	early := e.call("POST", path+"/stop", "").is(http.StatusConflict, "nobody has begun with it")
	require.Contains(t, early.problem().Detail, "generation 1 of the spec has not been begun with yet")

	waiting := e.updateServing(kd)
	w := waiting.Operation.WaitingFor
	bob := "nobody-" + kd.Spec.Initiator + "/server"
	require.Equal(t, []string{serving.WaitApproval, bob}, []string{w.Kind, w.Party})
	require.Equal(t, kuscia.PhaseProgressing, waiting.Phase)
	require.Equal(t, serving.ReasonWaitingForApproval, waiting.Reason)
	require.Contains(t, waiting.Message, "slipway serving approve one", "what to send")

	for reason, body := range map[string]string{"an unknown field": `{"colour":"red"}`, "a serving has no steps": `{"step":2}`, "it is not said what is approved": `{}`, "neither": `{"actor":"li"}`, "a gate is a text": `{"gate":1}`,
		"an actor has an end": `{"actor":"` + strings.Repeat("a", 300) + `"}`} {
		e.call("POST", path+"/approve", body, jsonBody).is(http.StatusBadRequest, reason)
	}
	other := e.call("POST", path+"/stop", `{"gate":"`+w.Gate+`"}`, jsonBody).is(http.StatusBadRequest, "a gate is for approve")
	require.Contains(t, other.reasons(), "is for approve only")
	stale := e.call("POST", path+"/approve", `{"gate":"older","actor":"wang"}`, jsonBody).is(http.StatusConflict, "the gate is of something else")
	require.Equal(t, w.Gate, stale.problem().Serving.Operation.WaitingFor.Gate, "the fresh state is in the answer")
	require.Equal(t, "refused", stale.problem().Serving.Operation.History[0].Outcome, "and the refusal in the record")
	e.call("POST", path+"/resume", `{"key":"r1"}`, jsonBody).is(http.StatusConflict, "it is not paused")
	e.call("POST", path+"/pause", `{"key":"p1","actor":"li","reason":"lunch"}`, jsonBody).is(http.StatusOK, "bob has not begun")
	require.Equal(t, serving.WaitResume, e.serving("one").Operation.WaitingFor.Kind)
	e.call("POST", path+"/resume", "").is(http.StatusOK, "it is paused")
	taken := e.call("POST", path+"/resume", `{"key":"p1"}`, jsonBody).is(http.StatusConflict, "the key is another verb's")
	require.Contains(t, taken.problem().Detail, "was used for pause")

	approved := e.call("POST", path+"/approve", `{"gate":"`+w.Gate+`","party":"`+bob+`","actor":"wang","reason":"looks good","key":"a1"}`, jsonBody, "Slipway-Via: console").
		is(http.StatusOK, "the gate is the one that waits")
	history := decode[serving.View](approved).Operation.History
	last := history[len(history)-1]
	require.Equal(t, []string{"wang", "console", "approve", bob, "looks good", "a1", "accepted"},
		[]string{last.Actor, last.Via, last.Verb, last.Party, last.Reason, last.Key, last.Outcome})

	end := e.waitServing("one", "its end", over)
	require.Contains(t, end.Operation.Message, "no such image", "bob fails, and all go back")
	require.Nil(t, end.Operation.WaitingFor)
	e.call("POST", path+"/approve", `{"gate":"`+w.Gate+`","key":"a1"}`, jsonBody).is(http.StatusOK, "a late repeat gets the answer that it got then")
	e.call("POST", path+"/resume", `{"key":"r1"}`, jsonBody).is(http.StatusConflict, "a refusal too")
	late := e.call("POST", path+"/stop", "").is(http.StatusNotFound, "nothing runs")
	require.Contains(t, late.problem().Detail, "no operation on serving one runs")
}

func TestAnUpdateOfAServingIsStopped(t *testing.T) {
	t.Parallel()
	e, image := servingEngine(t)
	e.work()
	e.updateServing(e.createServing("one", image))
	e.rest()
	away := e.call("POST", "/api/v1/servings/one/stop", `{"key":"s1","actor":"li","reason":"bad numbers"}`, jsonBody).is(http.StatusServiceUnavailable, "nobody answers")
	require.Contains(t, away.problem().Detail, `the outcome of stop is unknown; repeat with the same key, "s1"`)
	require.Equal(t, "serving/one/1", away.problem().Holder)
	e.work()
	e.callAgain("POST", "/api/v1/servings/one/stop", `{"key":"s1","actor":"li","reason":"bad numbers"}`, jsonBody).is(http.StatusOK, "it counts once")
	end := e.waitServing("one", "its end", over)
	require.Equal(t, "stopped by li: bad numbers; every party is on the version of before", end.Operation.Message)
	require.Equal(t, serving.ReasonUpdateRolledBack, end.Operation.Reason)
	require.Len(t, end.Operation.History, 1)
}
