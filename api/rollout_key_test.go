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

// finishRollout approves the waiting release and waits for its end.
func (e *engine) finishRollout(record string) {
	e.t.Helper()
	e.call("POST", rolloutPath+"/approve", `{"gate":"`+e.waitApproval().WaitingFor.Gate+`"}`,
		jsonBody).is(http.StatusOK, "it waits for it")
	e.waitRecord(record, rollout.PhaseHealthy)
}

func TestRolloutKey_ReturnsItsOwnRelease(t *testing.T) {
	t.Parallel()
	e := newRolloutEngine(t)
	repeat := func(why string) rollout.Status {
		t.Helper()
		return decode[rollout.Status](e.call("POST", "/api/v1/rollouts", rolloutBody("x:2", ""), jsonBody,
			"Idempotency-Key: k1").is(http.StatusAccepted, why))
	}
	first := repeat("it is new")
	e.finishRollout(first.Record)
	require.Eventually(t, func() bool {
		return time.Since(first.CreatedAt) > 2*time.Second
	}, waitTimeout, pollInterval, "record timestamps have a resolution of seconds")
	second := e.startRollout("x:3", "")
	e.waitApproval()
	again := repeat("a newer release runs")
	require.Equal(t, first.Record, again.Record, "the key belongs to the first release")
	require.Equal(t, rollout.PhaseHealthy, again.Phase)
	require.Equal(t, "x:2", again.Images["app"])
	e.finishRollout(second.Record)
	again = repeat("a newer release has ended")
	require.Equal(t, first.Record, again.Record)

	subject := v1alpha1.SubjectLabel(v1alpha1.RolloutSubject("default", "shop", "order"))
	pruned, err := e.store.PruneRecords(t.Context(), v1alpha1.KindRollout, subject, second.Record, 1)
	require.NoError(t, err)
	require.Equal(t, 1, pruned)
	require.Len(t, e.history().Items, 1, "the first one is no longer kept")
	for _, unavailable := range []bool{false, true} {
		e.temporalDown.Store(unavailable)
		again = repeat("only its key is kept")
		require.Equal(t, first.Record, again.Record)
		require.Equal(t, rollout.PhaseHealthy, again.Phase)
		require.Equal(t, "x:2", again.Images["app"])
		require.NotNil(t, again.FinishedAt)
	}
}

// A repeat may reach a server whose cache does not have the first release yet, while a newer release runs.
func TestRolloutKey_Repeat_WhenNewerReleaseRunsAndCacheIsStale(t *testing.T) {
	t.Parallel()
	e := newRolloutEngine(t)
	other := e.secondServer()
	first := e.startRollout("x:2", "", "Idempotency-Key: k1")
	e.finishRollout(first.Record)
	e.startRollout("x:3", "")
	e.waitApproval()
	other()
	again := e.call("POST", "/api/v1/rollouts", rolloutBody("x:2", ""), jsonBody,
		"Idempotency-Key: k1").is(http.StatusAccepted, "it is the same request")
	require.Equal(t, first.Record, decode[rollout.Status](again).Record)
	e.call("POST", "/api/v1/rollouts", rolloutBody("x:4", ""), jsonBody, "Idempotency-Key: k2").is(http.StatusConflict,
		"another release is live")
}

func TestRolloutKey_ReturnsSupersedingRelease_WhileLiveOneRollsBack(t *testing.T) {
	t.Parallel()
	e := newRolloutEngine(t)
	first := e.startRollout("x:2", "")
	e.waitApproval()
	second := e.startRollout("x:3", `"supersede":true,`, "Idempotency-Key: k2")
	require.NotEqual(t, first.Record, second.Record)
	require.Equal(t, "x:3", second.Images["app"])
	require.Equal(t, second.Record, e.startRollout("x:3", `"supersede":true,`, "Idempotency-Key: k2").Record)
}

// onStart calls do before each call of the API that starts a rollout workflow.
func (e *engine) onStart(do func()) {
	before := func(request any) {
		if start, ok := request.(*workflowservice.StartWorkflowExecutionRequest); ok &&
			start.GetWorkflowType().GetName() == workflows.TypeRollout {
			do()
		}
	}
	e.onRequest.Store(&before)
}

// waitHistory waits until the rollout shop/order has n records.
func (e *engine) waitHistory(n int) {
	e.t.Helper()
	labels := map[string]string{v1alpha1.LabelKind: v1alpha1.KindRollout}
	require.Eventually(e.t, func() bool {
		records, err := e.store.FindRecords(e.t.Context(), labels)
		return err == nil && len(records) == n
	}, waitTimeout, pollInterval, "%d records", n)
}

func TestStartRollout_LoserWithdrawsItsRecord_WhenConcurrent(t *testing.T) {
	t.Parallel()
	e := newRolloutEngine(t)
	var arrived atomic.Int32
	held := make(chan struct{})
	goOn := sync.OnceFunc(func() { close(held) })
	t.Cleanup(goOn)
	e.onStart(func() { // both have written their records and found no other release
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
	lost.is(http.StatusConflict, "the other is refused, with the faster release")
	record := decode[rollout.Status](won).Record
	require.Equal(t, record, lost.problem().Rollout.Record)
	items := e.history().Items
	require.Len(t, items, 1, "the slower request leaves no record")
	require.Equal(t, record, items[0].Rollout.Record, "the record of the faster request remains")
	require.Equal(t, record, e.waitApproval().Record)
}

func TestRolloutKey_ReturnsRunningRelease_WhenConcurrentRequestStartedIt(t *testing.T) {
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
		e.onRequest.Store(&before)
		var repeat answer
		var answered sync.WaitGroup
		answered.Go(func() {
			repeat = e.call("POST", "/api/v1/rollouts", rolloutBody("x:2", supersede), jsonBody, "Idempotency-Key: k1")
		})
		<-looking // its key has no release yet
		e.onRequest.Store(nil)
		first := e.startRollout("x:2", supersede, "Idempotency-Key: k1")
		goOn()
		answered.Wait()
		repeat.is(http.StatusAccepted, "the running release is the requested one")
		require.Equal(t, first.Record, decode[rollout.Status](repeat).Record)
		e.waitApproval()
		require.Zero(t, e.rollouts.rollbacks(), "it does not supersede itself")
		require.Len(t, e.history().Items, 1)
	}
}

func TestRolloutKey_RefusedRepeatKeepsRecordOfFirstRequest(t *testing.T) {
	t.Parallel()
	e := newRolloutEngine(t)
	held := make(chan struct{})
	goOn := sync.OnceFunc(func() { close(held) })
	t.Cleanup(goOn)
	e.onStart(func() { <-held })
	var first answer
	var answered sync.WaitGroup
	answered.Go(func() {
		first = e.call("POST", "/api/v1/rollouts", rolloutBody("x:2", ""), jsonBody, "Idempotency-Key: k1")
	})
	e.waitHistory(1) // the first has written its record and is about to start
	e.rollouts.answers(rollout.PreflightResult{Refusals: []rollout.Refusal{{Field: "images.app",
		Reason: "order has no container app"}}})
	e.call("POST", "/api/v1/rollouts", rolloutBody("x:2", ""), jsonBody,
		"Idempotency-Key: k1").is(http.StatusUnprocessableEntity, "the party refuses the repeat")
	e.waitHistory(1)
	goOn()
	answered.Wait()
	record := decode[rollout.Status](first.is(http.StatusAccepted, "the first was checked before")).Record
	require.Equal(t, record, e.waitApproval().Record)
	require.Len(t, e.history().Items, 1)
	e.finishRollout(record)
}

// A server numbers releases by the records in its cache. Another server may just have written one.
func TestRolloutNumber_IsUnique_WhenAnotherServerTookIt(t *testing.T) {
	t.Parallel()
	e := newRolloutEngine(t)
	first := store.NextNumber(nil)
	other := func() { // the release already has its number
		spec := strategy.Spec{Name: "order", Namespace: "shop",
			WorkloadRef: catalog.WorkloadRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "order"}}
		record, err := store.NewRolloutRecord(machine.Request{Spec: spec, Revision: first})
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
