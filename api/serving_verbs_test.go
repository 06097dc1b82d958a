package api_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/store/servinginput"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/workflows"
)

// registerServingParty registers fake activities of servings' parties: all succeed, except that a domain beginning with
// "nobody" fails to apply a new version.
func registerServingParty(w worker.Worker) {
	register := func(name string, refuses func(serving.PartyRequest) bool) {
		w.RegisterActivityWithOptions(func(_ context.Context, r serving.GroupRequest) (serving.GroupResult, error) {
			var result serving.GroupResult
			for _, one := range r.Parties {
				outcome := serving.PartyOutcome{Done: true}
				if refuses(one) {
					outcome = serving.PartyOutcome{Kind: failure.Refused, Message: "no such image"}
				}
				result.Parties = append(result.Parties, outcome)
			}
			return result, nil
		}, activity.RegisterOptions{Name: name})
	}
	register(serving.ActivityPrepare, func(serving.PartyRequest) bool { return false })
	register(serving.ActivityApply, func(r serving.PartyRequest) bool {
		return strings.HasPrefix(r.Domain, "nobody") && !r.Source.Previous
	})
}

// updateServing starts an update of both parties of a serving with an approval between them, and waits for that
// approval.
func (e *engine) updateServing(kd *kuscia.KusciaDeployment) serving.View {
	e.t.Helper()
	ctx, kube := e.t.Context(), harness.SharedStack(e.t).Kube
	bob := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: kd.Spec.Parties[1].DomainID}}
	_, err := kube.CoreV1().Namespaces().Create(ctx, bob, metav1.CreateOptions{})
	require.NoError(e.t, err)
	e.t.Cleanup(func() {
		_ = kube.CoreV1().Namespaces().Delete(context.Background(), bob.Name, metav1.DeleteOptions{})
	})
	require.NoError(e.t, e.store.AnnotateServing(ctx, kd, serving.AnnotationPolicy,
		`{"order":"sequential","approval":"betweenParties"}`))
	kd = e.storedServing(kd.Name)
	old := serving.Version{ID: kd.Name, UID: string(kd.UID), Spec: kd.Spec}
	kd.Status.Served = &kuscia.Served{Generation: 1}
	kd.Status.Served.Version, err = old.Pack()
	require.NoError(e.t, err)
	kd.Status.Served.Digest, err = old.Digest()
	require.NoError(e.t, err)
	require.NoError(e.t, e.store.UpdateServingStatus(ctx, kd))
	in, refusals, err := servinginput.Of(ctx, e.store, kd, serving.KindUpdate)
	require.NoError(e.t, err)
	require.Empty(e.t, refusals)
	in.UnreachableBudgetSeconds = 5
	_, err = e.temporal.ExecuteWorkflow(e.t.Context(),
		client.StartWorkflowOptions{ID: serving.WorkflowPrefix(kd.Name) + "1", TaskQueue: workflows.QueueEngine},
		workflows.TypeServing, in)
	require.NoError(e.t, err)
	return e.waitServing(kd.Name, "an awaited approval", func(op serving.OperationView) bool {
		return op.WaitingFor != nil
	})
}

func (e *engine) waitServing(id, what string, is func(op serving.OperationView) bool) (view serving.View) {
	e.t.Helper()
	require.Eventually(e.t, func() bool {
		view = e.serving(id)
		return view.Operation != nil && is(*view.Operation)
	}, waitTimeout, pollInterval, "never reached %s: %+v", what, view.Operation)
	return view
}

func isDone(op serving.OperationView) bool { return op.Done }

func TestApproveServing(t *testing.T) {
	t.Parallel()
	e, image := servingEngine(t)
	e.startWorkers()
	const path = "/api/v1/servings/one"
	e.call("POST", path+"/approve", `{"gate":"any"}`, jsonBody).is(http.StatusNotFound, "there is no such serving")
	kd := e.createServing("one", image)
	early := e.call("POST", path+"/stop", "").is(http.StatusConflict, "its operation has not started yet")
	require.Contains(t, early.problem().Detail, "the operation for generation 1 of the spec has not started yet")

	waiting := e.updateServing(kd)
	w := waiting.Operation.WaitingFor
	bob := "nobody-" + kd.Spec.Initiator + "/server"
	require.Equal(t, []string{serving.WaitApproval, bob}, []string{w.Kind, w.Party})
	require.Equal(t, kuscia.PhaseProgressing, waiting.Phase)
	require.Equal(t, serving.ReasonWaitingForApproval, waiting.Reason)
	require.Contains(t, waiting.Message, "slipway serving approve one", "what to send")

	for reason, body := range map[string]string{"an unknown field": `{"colour":"red"}`,
		"a serving has no steps": `{"step":2}`, "neither gate nor party is given": `{}`, "neither": `{"actor":"li"}`,
		"the gate is not a text": `{"gate":1}`,
		"the actor is too long":  `{"actor":"` + strings.Repeat("a", 300) + `"}`} {
		e.call("POST", path+"/approve", body, jsonBody).is(http.StatusBadRequest, reason)
	}
	other := e.call("POST", path+"/stop", `{"gate":"`+w.Gate+`"}`, jsonBody).is(http.StatusBadRequest,
		"a gate is for approve")
	require.Contains(t, other.reasons(), "is for approve only")
	stale := e.call("POST", path+"/approve", `{"gate":"older","actor":"wang"}`, jsonBody).is(http.StatusConflict,
		"the gate is stale")
	require.Equal(t, w.Gate, stale.problem().Serving.Operation.WaitingFor.Gate,
		"the problem contains the current state")
	require.Equal(t, "refused", stale.problem().Serving.Operation.History[0].Outcome, "the refusal is recorded")
	e.call("POST", path+"/resume", `{"key":"r1"}`, jsonBody).is(http.StatusConflict, "it is not paused")
	e.call("POST", path+"/pause", `{"key":"p1","actor":"li","reason":"lunch"}`, jsonBody).is(http.StatusOK,
		"bob has not begun")
	require.Equal(t, serving.WaitResume, e.serving("one").Operation.WaitingFor.Kind)
	e.call("POST", path+"/resume", "").is(http.StatusOK, "it is paused")
	taken := e.call("POST", path+"/resume", `{"key":"p1"}`, jsonBody).is(http.StatusConflict,
		"the key was used for another verb")
	require.Contains(t, taken.problem().Detail, "was used for pause")

	approved := e.call("POST", path+"/approve", `{"gate":"`+w.Gate+`","party":"`+bob+
		`","actor":"wang","reason":"looks good","key":"a1"}`, jsonBody, "Slipway-Via: console").
		is(http.StatusOK, "the gate is the one that waits")
	history := decode[serving.View](approved).Operation.History
	last := history[len(history)-1]
	require.Equal(t, []string{"wang", "console", "approve", bob, "looks good", "a1", "accepted"},
		[]string{last.Actor, last.Via, last.Verb, last.Party, last.Reason, last.Key, last.Outcome})

	end := e.waitServing("one", "its end", isDone)
	require.Contains(t, end.Operation.Message, "no such image", "bob fails, and all parties are rolled back")
	require.Nil(t, end.Operation.WaitingFor)
	e.call("POST", path+"/approve", `{"gate":"`+w.Gate+`","key":"a1"}`, jsonBody).is(http.StatusOK,
		"a late repeat gets the first answer")
	e.call("POST", path+"/resume", `{"key":"r1"}`, jsonBody).is(http.StatusConflict, "a repeated refusal, too")
	late := e.call("POST", path+"/stop", "").is(http.StatusNotFound, "nothing runs")
	require.Contains(t, late.problem().Detail, "no operation on serving one is running")
}

func TestStopServing(t *testing.T) {
	t.Parallel()
	e, image := servingEngine(t)
	e.startWorkers()
	e.updateServing(e.createServing("one", image))
	e.stopWorkers()
	away := e.call("POST", "/api/v1/servings/one/stop", `{"key":"s1","actor":"li","reason":"bad numbers"}`,
		jsonBody).is(http.StatusServiceUnavailable, "no worker answers")
	require.Contains(t, away.problem().Detail, `the outcome of stop is unknown; repeat with the same key, "s1"`)
	require.Equal(t, "serving/one/1", away.problem().Holder)
	e.startWorkers()
	e.callAgain("POST", "/api/v1/servings/one/stop", `{"key":"s1","actor":"li","reason":"bad numbers"}`,
		jsonBody).is(http.StatusOK, "it counts once")
	end := e.waitServing("one", "its end", isDone)
	require.Equal(t, "stopped by li: bad numbers; every party runs the previous version", end.Operation.Message)
	require.Equal(t, serving.ReasonUpdateRolledBack, end.Operation.Reason)
	require.Len(t, end.Operation.History, 1)
}
