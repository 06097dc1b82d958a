package centre_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"slipway.io/slipway/activities/centre"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/store"
	"slipway.io/slipway/test/harness"
)

// fakeTemporal knows the newest run of each workflow ID.
type fakeTemporal struct {
	client.Client
	mu     sync.Mutex
	newest map[string]*workflowpb.WorkflowExecutionInfo
}

func newFakeTemporal() *fakeTemporal {
	return &fakeTemporal{newest: map[string]*workflowpb.WorkflowExecutionInfo{}}
}

// set sets the newest run of a workflow; first is the first run of its chain.
func (r *fakeTemporal) set(workflowID, run, first string, status enumspb.WorkflowExecutionStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.newest[workflowID] = &workflowpb.WorkflowExecutionInfo{
		Execution: &commonpb.WorkflowExecution{WorkflowId: workflowID, RunId: run}, FirstRunId: first, Status: status}
}

func (r *fakeTemporal) DescribeWorkflowExecution(_ context.Context, workflowID,
	_ string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	info := r.newest[workflowID]
	if info == nil {
		return nil, serviceerror.NewNotFound("no such workflow")
	}
	return &workflowservice.DescribeWorkflowExecutionResponse{WorkflowExecutionInfo: info}, nil
}

const (
	running    = enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
	terminated = enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED
)

const trafficSpec = `{"objectRef":[{"service":"a","ingress":{"name":"a"},"gracePeriodSeconds":7}],"strategy":{"matches":[{"headers":[{"name":"agent","value":"x"}]}]}}`

// shared returns a TrafficRouting in a namespace of the test's own, with activities on it.
func shared(t *testing.T) (*store.Store, *centre.Activities, *fakeTemporal, rollout.HoldTrafficRequest) {
	t.Helper()
	store, temporal := newStore(t), newFakeTemporal()
	_, err := store.PutTrafficRouting(testContext(t), store.Namespace(), "mse", json.RawMessage(trafficSpec), nil)
	require.NoError(t, err)
	return store, centre.NewActivities(store, temporal, nil, 0), temporal,
		rollout.HoldTrafficRequest{Namespace: store.Namespace(), Name: "mse"}
}

func heldBy(in rollout.HoldTrafficRequest, holder string) rollout.HoldTrafficRequest {
	in.Holder = holder
	return in
}

func engineOf(t *testing.T, store *store.Store) workload.Engine {
	t.Helper()
	engine, err := store.Engine(testContext(t))
	require.NoError(t, err)
	require.NotEmpty(t, engine.UID)
	return engine
}

// TestHolderOfOtherEngine_IsNotDropped: two engines use one TrafficRouting, and this engine's Temporal does not have
// the other's workflows.
func TestHolderOfOtherEngine_IsNotDropped(t *testing.T) {
	t.Parallel()
	store, a, temporal, in := shared(t)
	ctx := testContext(t)
	theirs := workload.Holder{WorkflowID: "rollout/default/s/theirs", RunID: "1",
		Engine: workload.Engine{UID: "uid-b", Name: "b"}}.String()
	// another engine of the cluster may write at the same time that there is no holder
	require.NoError(t, failure.RetryOnConflict("mse", func() error {
		found, err := store.GetTrafficRouting(ctx, store.Namespace(), "mse")
		require.NoError(t, err)
		found.Status.Holders, found.Status.Phase = []string{theirs}, v1alpha1.TrafficProgressing
		return store.SetTrafficStatus(ctx, found)
	}))
	temporal.set("rollout/default/s/ours", "1", "1", running)
	_, err := a.HoldTraffic(ctx, heldBy(in, "rollout/default/s/ours@1"))
	requireType(t, err, failure.Refused, "it cannot be shared with another engine")
	require.ErrorContains(t, err, "is held by rollout/default/s/theirs of engine b: only engine b can take over its "+
		"own claims")
	_, holders := phaseOf(t, store)
	require.Equal(t, []string{theirs}, holders)
}

func phaseOf(t *testing.T, store *store.Store) (v1alpha1.TrafficRoutingPhase, []string) {
	t.Helper()
	found, err := store.GetTrafficRouting(testContext(t), store.Namespace(), "mse")
	require.NoError(t, err)
	return found.Status.Phase, found.Status.Holders
}

func requireType(t *testing.T, err error, kind failure.Kind, reason string) {
	t.Helper()
	require.True(t, isType(err, kind), "%s: got %v", reason, err)
}

func TestLeaveTraffic_LastHolderRestoresRoutes(t *testing.T) {
	t.Parallel()
	store, a, temporal, in := shared(t)
	ctx := testContext(t)
	one, two := heldBy(in, "rollout/default/s/one@1"), heldBy(in, "rollout/default/s/two@1")
	temporal.set("rollout/default/s/one", "1", "1", running)
	temporal.set("rollout/default/s/two", "9", "1", running)

	held, err := a.HoldTraffic(ctx, one)
	require.NoError(t, err)
	require.Equal(t, "trafficrouting/"+store.Namespace()+"/mse", workload.ParseHolder(held.Claim).WorkflowID)
	require.Equal(t, "mse", held.Shared.Name)
	require.Equal(t, int64(7), held.Shared.Routings[0].GraceSeconds)
	_, err = a.HoldTraffic(ctx, two)
	require.NoError(t, err)
	_, err = a.HoldTraffic(ctx, one)
	require.NoError(t, err, "holding is idempotent")
	phase, holders := phaseOf(t, store)
	require.Equal(t, v1alpha1.TrafficProgressing, phase)
	require.Equal(t, []string{one.Holder, two.Holder}, holders)

	left, err := a.LeaveTraffic(ctx, rollout.LeaveTrafficRequest{HoldTrafficRequest: one})
	require.NoError(t, err)
	require.False(t, left.Restore, "another holder still routes by it")
	left, err = a.LeaveTraffic(ctx, rollout.LeaveTrafficRequest{HoldTrafficRequest: one})
	require.NoError(t, err)
	require.False(t, left.Restore, "it has left already")
	for range 2 {
		left, err = a.LeaveTraffic(ctx, rollout.LeaveTrafficRequest{HoldTrafficRequest: two})
		require.NoError(t, err)
		require.True(t, left.Restore, "the last holder restores the routes, also when it repeats the request")
		require.Equal(t, held.Shared, left.Shared)
	}
	phase, holders = phaseOf(t, store)
	require.Equal(t, v1alpha1.TrafficFinalizing, phase)
	require.Equal(t, []string{two.Holder}, holders, "it remains a holder until the routes are restored")

	_, err = a.HoldTraffic(ctx, one)
	requireType(t, err, failure.NotReady, "a new holder waits meanwhile")
	_, err = a.LeaveTraffic(ctx, rollout.LeaveTrafficRequest{HoldTrafficRequest: two, Restored: true})
	require.NoError(t, err)
	phase, holders = phaseOf(t, store)
	require.Equal(t, v1alpha1.TrafficHealthy, phase)
	require.Empty(t, holders)
	_, err = a.HoldTraffic(ctx, one)
	require.NoError(t, err, "now it is free")
}

// attemptToHold runs one activity attempt that continues from the progress left; it returns the last heartbeat.
func attemptToHold(t *testing.T, a *centre.Activities, in rollout.HoldTrafficRequest,
	left *workload.Progress) (last workload.Progress, err error) {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivity(a.HoldTraffic)
	if left != nil {
		env.SetHeartbeatDetails(*left)
	}
	env.SetOnActivityHeartbeatListener(func(_ *activity.Info, details converter.EncodedValues) {
		if err := details.Get(&last); err != nil {
			t.Error(err)
		}
	})
	_, err = env.ExecuteActivity(a.HoldTraffic, in)
	return last, err
}

func TestHoldTraffic_WaitsUntilDeadline(t *testing.T) {
	t.Parallel()
	store, a, temporal, in := shared(t)
	one, two := heldBy(in, "rollout/default/s/one@1"), heldBy(in, "rollout/default/s/two@1")
	two.DeadlineSeconds = 600
	temporal.set("rollout/default/s/one", "1", "1", running)
	_, err := a.HoldTraffic(testContext(t), one)
	require.NoError(t, err)
	_, err = a.LeaveTraffic(testContext(t), rollout.LeaveTrafficRequest{HoldTrafficRequest: one})
	require.NoError(t, err)

	last, err := attemptToHold(t, a, two, nil)
	requireType(t, err, failure.NotReady, "the deadline has only begun")
	require.Contains(t, last.Message, "TrafficRouting "+store.Namespace()+
		"/mse gives its routes back for rollout/default/s/one", "the message names the object and the holder")
	require.False(t, last.ReadAt.IsZero(), "the next attempt counts from here")
	last, err = attemptToHold(t, a, two, &workload.Progress{ElapsedSeconds: 100,
		ReadAt: time.Now().Add(-5 * time.Second)})
	requireType(t, err, failure.NotReady, "the deadline has not passed")
	require.InDelta(t, 105, last.ElapsedSeconds, 3)
	long := &workload.Progress{ElapsedSeconds: 598, ReadAt: time.Now().Add(-5 * time.Second)}
	_, err = attemptToHold(t, a, two, long)
	requireType(t, err, failure.WorkloadFailed, "the deadline has passed")
	require.ErrorContains(t, err, "gives its routes back for rollout/default/s/one")
	two.DeadlineSeconds = 0
	_, err = attemptToHold(t, a, two, long)
	requireType(t, err, failure.NotReady, "a rollout of an earlier version has no deadline")
}

func TestHoldTraffic_DropsDeadHolders(t *testing.T) {
	t.Parallel()
	store, a, temporal, in := shared(t)
	ctx := testContext(t)
	dead, alive := heldBy(in, "rollout/default/s/dead@1"), heldBy(in, "rollout/default/s/alive@1")
	temporal.set("rollout/default/s/dead", "1", "1", running)
	temporal.set("rollout/default/s/alive", "1", "1", running)
	_, err := a.HoldTraffic(ctx, dead)
	require.NoError(t, err)
	_, err = a.LeaveTraffic(ctx, rollout.LeaveTrafficRequest{HoldTrafficRequest: dead})
	require.NoError(t, err)
	temporal.set("rollout/default/s/dead", "1", "1", terminated)
	claim := workload.ClaimHolderRequest{Claim: v1alpha1.TrafficClaim(store.Namespace(), "mse", engineOf(t, store))}
	held, err := a.ClaimHolder(ctx, claim)
	require.NoError(t, err)
	require.True(t, held.Dead, "it has no living holder")
	_, err = a.HoldTraffic(ctx, alive)
	require.NoError(t, err, "a dead holder that was restoring the routes does not block others")
	_, holders := phaseOf(t, store)
	require.Equal(t, []string{alive.Holder}, holders)
	held, err = a.ClaimHolder(ctx, claim)
	require.NoError(t, err)
	require.False(t, held.Dead)
	require.Contains(t, held.Reason, "rollout/default/s/alive")
}

func TestDeletingTrafficRouting_WaitsForHolders(t *testing.T) {
	t.Parallel()
	store, a, temporal, in := shared(t)
	ctx := testContext(t)
	one, two := heldBy(in, "rollout/default/s/one@1"), heldBy(in, "rollout/default/s/two@1")
	temporal.set("rollout/default/s/one", "1", "1", running)
	_, err := a.HoldTraffic(ctx, one)
	require.NoError(t, err)
	path := "/apis/rollouts.kruise.io/v1alpha1/namespaces/" + store.Namespace() + "/trafficroutings/mse"
	require.NoError(t, harness.SharedStack(t).Kube.CoreV1().RESTClient().Delete().AbsPath(path).Do(ctx).Error(),
		"kubectl delete is accepted")
	_, err = a.HoldTraffic(ctx, two)
	requireType(t, err, failure.Refused, "a routing that is being deleted accepts no new holder")
	left, err := a.LeaveTraffic(ctx, rollout.LeaveTrafficRequest{HoldTrafficRequest: one})
	require.NoError(t, err)
	require.True(t, left.Restore, "it still exists, so that its routes can be restored")
	require.NotEmpty(t, left.Shared.Routings)
	_, err = a.LeaveTraffic(ctx, rollout.LeaveTrafficRequest{HoldTrafficRequest: one, Restored: true})
	require.NoError(t, err)
	_, err = store.GetTrafficRouting(ctx, store.Namespace(), "mse")
	require.True(t, failure.Is(err, failure.NotFound), "the last holder has released it: got %v", err)
	_, err = a.HoldTraffic(ctx, two)
	requireType(t, err, failure.NotFound, "it is deleted")
}

func TestHoldTraffic_TwentyConcurrentHolders(t *testing.T) {
	t.Parallel()
	store, a, temporal, in := shared(t)
	var wg sync.WaitGroup
	for i := range 20 {
		id := "rollout/default/s/r" + string(rune('a'+i))
		temporal.set(id, "1", "1", running)
		wg.Go(func() {
			for { // retries like Temporal
				_, err := a.HoldTraffic(testContext(t), heldBy(in, id+"@1"))
				if err == nil {
					return
				}
				if !isType(err, failure.NotReady) {
					t.Errorf("%s cannot hold: %v", id, err)
					return
				}
			}
		})
	}
	wg.Wait()
	_, holders := phaseOf(t, store)
	require.Len(t, holders, 20, "no holder was lost")
}

func isType(err error, kind failure.Kind) bool {
	var app *temporal.ApplicationError
	return errors.As(err, &app) && app.Type() == string(kind)
}

func TestClaimHolder_ReportsDeadHolders(t *testing.T) {
	t.Parallel()
	store, temporal := newStore(t), newFakeTemporal()
	a := centre.NewActivities(store, temporal, nil, 0)
	own, other := engineOf(t, store), workload.Engine{UID: "uid-b", Name: "b"}
	temporal.set("rollout/default/s/one", "3", "1", running)
	temporal.set("rollout/default/s/over", "2", "2", terminated)
	for _, c := range []struct {
		reason, claim string
		dead          bool
	}{
		{"the first run of a chain is alive if its newest run is", "rollout/default/s/one@1", false},
		{"so is the newest run", "rollout/default/s/one@3", false},
		{"an earlier release of that name is dead", "rollout/default/s/one@0", true},
		{"a terminated one is dead", "rollout/default/s/over@2", true},
		{"one that Temporal does not know is dead", "rollout/default/s/none@1", true},
		{"the claim of a deleted TrafficRouting is dead", v1alpha1.TrafficClaim(store.Namespace(), "missing", own), true},
		{"so is one written by an earlier version", "trafficrouting/" + store.Namespace() + "/missing", true},
		{"a terminated workflow of this engine is dead",
			workload.Holder{WorkflowID: "rollout/default/s/over", RunID: "2", Engine: own}.String(), true},
		{"another engine's workflow counts as alive, even if one of that ID is closed here",
			workload.Holder{WorkflowID: "rollout/default/s/over", RunID: "2", Engine: other}.String(), false},
		{"so does another engine's TrafficRouting", v1alpha1.TrafficClaim(store.Namespace(), "missing", other), false},
	} {
		answer, err := a.ClaimHolder(testContext(t), workload.ClaimHolderRequest{Claim: c.claim})
		require.NoError(t, err, c.reason)
		require.Equal(t, c.dead, answer.Dead, c.reason)
		require.NotEmpty(t, answer.Reason, c.reason)
	}
}
