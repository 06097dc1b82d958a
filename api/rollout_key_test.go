package api_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/instant"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/machine"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/store"
	"slipway.io/slipway/workflows"
)

// finishRollout approves the release that waits and waits for its end.
func (e *engine) finishRollout(record string) {
	e.t.Helper()
	e.call("POST", rolloutPath+"/approve", `{"gate":"`+e.waitApproval().WaitingFor.Gate+`"}`, jsonBody).is(http.StatusOK, "it waits for it")
	e.waitRecord(record, rollout.PhaseHealthy)
}

func TestAKeyAnswersWithItsOwnRelease(t *testing.T) {
	t.Parallel()
	e := newRolloutEngine(t)
	repeat := func(why string) rollout.Status {
		t.Helper()
		return decode[rollout.Status](e.call("POST", "/api/v1/rollouts", rolloutBody("x:2", ""), jsonBody, "Idempotency-Key: k1").is(http.StatusAccepted, why))
	}
	first := repeat("it is new")
	e.finishRollout(first.Record)
	require.Eventually(t, func() bool { return time.Since(first.CreatedAt) > 2*time.Second }, patience, tick, "records tell their age in seconds")
	second := e.startRollout("x:3", "")
	e.waitApproval()
	again := repeat("a newer release runs")
	require.Equal(t, first.Record, again.Record, "the key is the first release's")
	require.Equal(t, rollout.PhaseHealthy, again.Phase)
	require.Equal(t, "x:2", again.Images["app"])
	e.finishRollout(second.Record)
	again = repeat("a newer release is over")
	require.Equal(t, first.Record, again.Record)

	subject := v1alpha1.SubjectLabel(v1alpha1.RolloutSubject("default", "shop", "order"))
	pruned, err := e.store.PruneRecords(t.Context(), v1alpha1.KindRollout, subject, second.Record, 1)
	require.NoError(t, err)
	require.Equal(t, 1, pruned)
	require.Len(t, e.history().Items, 1, "the first is not kept any more")
	for _, away := range []bool{false, true} {
		e.cut.Store(away)
		again = repeat("only the key of it is kept")
		require.Equal(t, first.Record, again.Record)
		require.Equal(t, rollout.PhaseHealthy, again.Phase)
		require.Equal(t, "x:2", again.Images["app"])
		require.NotNil(t, again.FinishedAt)
	}
}

// A repeat may reach a server that has not heard of the first request's release yet, while a newer release is in the way.
func TestARepeatIsNotRefusedForANewerRelease(t *testing.T) {
	t.Parallel()
	e := newRolloutEngine(t)
	other := e.besides()
	first := e.startRollout("x:2", "", "Idempotency-Key: k1")
	e.finishRollout(first.Record)
	e.startRollout("x:3", "")
	e.waitApproval()
	other()
	again := e.call("POST", "/api/v1/rollouts", rolloutBody("x:2", ""), jsonBody, "Idempotency-Key: k1").is(http.StatusAccepted, "it is the same request")
	require.Equal(t, first.Record, decode[rollout.Status](again).Record)
	e.call("POST", "/api/v1/rollouts", rolloutBody("x:4", ""), jsonBody, "Idempotency-Key: k2").is(http.StatusConflict, "another release is live")
}

func TestAReleaseThatWaitsForAnotherToGiveWayIsAnsweredAsItself(t *testing.T) {
	t.Parallel()
	e := newRolloutEngine(t)
	first := e.startRollout("x:2", "")
	e.waitApproval()
	second := e.startRollout("x:3", `"supersede":true,`, "Idempotency-Key: k2")
	require.NotEqual(t, first.Record, second.Record)
	require.Equal(t, "x:3", second.Images["app"])
	require.Equal(t, second.Record, e.startRollout("x:3", `"supersede":true,`, "Idempotency-Key: k2").Record)
}

// atStart has the front door's calls to Temporal that start a rollout pass by do first.
func (e *engine) atStart(do func()) {
	before := func(request any) {
		if start, ok := request.(*workflowservice.StartWorkflowExecutionRequest); ok && start.GetWorkflowType().GetName() == workflows.TypeRollout {
			do()
		}
	}
	e.before.Store(&before)
}

// waitHistory waits until the rollout shop/order has so many records.
func (e *engine) waitHistory(n int) {
	e.t.Helper()
	labels := map[string]string{v1alpha1.LabelKind: v1alpha1.KindRollout}
	require.Eventually(e.t, func() bool {
		records, err := e.store.FindRecords(e.t.Context(), labels)
		return err == nil && len(records) == n
	}, patience, tick, "%d records", n)
}

func TestOfTwoStartsAtOneMomentOneTakesItsOwnRecordBack(t *testing.T) {
	t.Parallel()
	e := newRolloutEngine(t)
	var arrived atomic.Int32
	held := make(chan struct{})
	goOn := sync.OnceFunc(func() { close(held) })
	t.Cleanup(goOn)
	e.atStart(func() { // both have written their record and found nobody else
		if arrived.Add(1) == 2 {
			goOn()
		}
		<-held
	})
	var answered sync.WaitGroup
	answers := make([]answer, 2)
	for i, image := range []string{"x:2", "x:3"} {
		answered.Go(func() { answers[i] = e.call("POST", "/api/v1/rollouts", rolloutBody(image, ""), jsonBody) })
	}
	answered.Wait()
	won, lost := answers[0], answers[1]
	if won.status != http.StatusAccepted {
		won, lost = lost, won
	}
	won.is(http.StatusAccepted, "one of them begins")
	lost.is(http.StatusConflict, "the other is told who was faster")
	record := decode[rollout.Status](won).Record
	require.Equal(t, record, lost.problem().Rollout.Record)
	items := e.history().Items
	require.Len(t, items, 1, "the slower one leaves nothing")
	require.Equal(t, record, items[0].Rollout.Record, "and what the faster one wrote is there")
	require.Equal(t, record, e.waitApproval().Record)
}

func TestATwinThatFindsTheReleaseRunningIsAnsweredWithIt(t *testing.T) {
	t.Parallel()
	for _, supersede := range []string{"", `"supersede":true,`} {
		e := newRolloutEngine(t)
		held, looking := make(chan struct{}), make(chan struct{})
		goOn := sync.OnceFunc(func() { close(held) })
		t.Cleanup(goOn)
		look := sync.OnceFunc(func() {
			close(looking)
			<-held
		})
		before := func(request any) {
			if _, describes := request.(*workflowservice.DescribeWorkflowExecutionRequest); describes {
				look()
			}
		}
		e.before.Store(&before)
		var twin answer
		var answered sync.WaitGroup
		answered.Go(func() {
			twin = e.call("POST", "/api/v1/rollouts", rolloutBody("x:2", supersede), jsonBody, "Idempotency-Key: k1")
		})
		<-looking // its key stands for nothing yet
		e.before.Store(nil)
		first := e.startRollout("x:2", supersede, "Idempotency-Key: k1")
		goOn()
		answered.Wait()
		twin.is(http.StatusAccepted, "what runs is what it asks for")
		require.Equal(t, first.Record, decode[rollout.Status](twin).Record)
		e.waitApproval()
		require.Zero(t, e.rollouts.wentHome(), "it does not take its own place")
		require.Len(t, e.history().Items, 1)
	}
}

func TestATwinThatIsRefusedLeavesTheRecordOfTheOther(t *testing.T) {
	t.Parallel()
	e := newRolloutEngine(t)
	held := make(chan struct{})
	goOn := sync.OnceFunc(func() { close(held) })
	t.Cleanup(goOn)
	e.atStart(func() { <-held })
	var first answer
	var answered sync.WaitGroup
	answered.Go(func() {
		first = e.call("POST", "/api/v1/rollouts", rolloutBody("x:2", ""), jsonBody, "Idempotency-Key: k1")
	})
	e.waitHistory(1) // the first has written its record and is about to start
	e.rollouts.answers(rollout.PreflightResult{Refusals: []rollout.Refusal{{Field: "images.app", Reason: "order has no container app"}}})
	e.call("POST", "/api/v1/rollouts", rolloutBody("x:2", ""), jsonBody, "Idempotency-Key: k1").is(http.StatusUnprocessableEntity, "the party refuses its twin")
	e.waitHistory(1)
	goOn()
	answered.Wait()
	record := decode[rollout.Status](first.is(http.StatusAccepted, "the first was checked before")).Record
	require.Equal(t, record, e.waitApproval().Record)
	require.Len(t, e.history().Items, 1)
	e.finishRollout(record)
}

// A server numbers releases by the records that it knows of. Another one may have written one a moment ago.
func TestANumberThatAnotherServerWasFasterWithIsNotTaken(t *testing.T) {
	t.Parallel()
	e := newRolloutEngine(t)
	first := store.NextNumber(nil)
	other := func() { // by now the release has its number
		spec := strategy.Spec{Name: "order", Namespace: "shop", WorkloadRef: catalog.WorkloadRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "order"}}
		record, err := store.NewRolloutRecord(machine.Asked{Spec: spec, Revision: first})
		require.NoError(t, err)
		record.Name, record.Labels[v1alpha1.LabelKind] = "rollout-of-another-server", v1alpha1.KindRollout
		record.Spec.CreatedAt = instant.MicroOf(time.Now().Add(-time.Second))
		require.NoError(t, e.store.CreateRecord(t.Context(), record))
	}
	e.home.atRecord.Store(&other)
	started := e.startRollout("x:2", "")
	record, err := e.store.GetRelease(t.Context(), started.Record)
	require.NoError(t, err)
	require.Equal(t, first+1, v1alpha1.RevisionOf(record), "the first number is taken")
	e.waitHistory(2)
}
