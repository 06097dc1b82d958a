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
	"slipway.io/slipway/release/workloadops"
	"slipway.io/slipway/store"
	"slipway.io/slipway/test/harness"
)

// runs plays Temporal: the newest run of each workflow ID.
type runs struct {
	client.Client
	mu     sync.Mutex
	newest map[string]*workflowpb.WorkflowExecutionInfo
}

func newRuns() *runs { return &runs{newest: map[string]*workflowpb.WorkflowExecutionInfo{}} }

// set says how the newest run of a workflow is; first is the run with which its chain began.
func (r *runs) set(workflowID, run, first string, status enumspb.WorkflowExecutionStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.newest[workflowID] = &workflowpb.WorkflowExecutionInfo{Execution: &commonpb.WorkflowExecution{WorkflowId: workflowID, RunId: run}, FirstRunId: first, Status: status}
}

func (r *runs) DescribeWorkflowExecution(_ context.Context, workflowID, _ string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
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

// shared is a TrafficRouting in a namespace of the test's own, and the activities on it.
func shared(t *testing.T) (*store.Store, *centre.Activities, *runs, rollout.HoldTrafficRequest) {
	t.Helper()
	store, temporal := newStore(t), newRuns()
	_, err := store.PutTrafficRouting(testContext(t), store.Namespace(), "mse", json.RawMessage(trafficSpec), nil)
	require.NoError(t, err)
	return store, centre.NewActivities(store, temporal, nil, 0), temporal, rollout.HoldTrafficRequest{Namespace: store.Namespace(), Name: "mse"}
}

func by(in rollout.HoldTrafficRequest, holder string) rollout.HoldTrafficRequest {
	in.Holder = holder
	return in
}

func engineOf(t *testing.T, store *store.Store) workloadops.Engine {
	t.Helper()
	engine, err := store.Engine(testContext(t))
	require.NoError(t, err)
	require.NotEmpty(t, engine.UID)
	return engine
}

// TestAnotherEnginesHolderIsNeverDropped has two engines on one TrafficRouting: this one's Temporal knows nothing of the other's workflows.
func TestAnotherEnginesHolderIsNeverDropped(t *testing.T) {
	t.Parallel()
	store, a, temporal, in := shared(t)
	ctx := testContext(t)
	theirs := workloadops.Holder{WorkflowID: "rollout/default/s/theirs", RunID: "1", Engine: workloadops.Engine{UID: "uid-b", Name: "b"}}.String()
	require.NoError(t, failure.UntilNoConflict("mse", func() error { // any engine of the cluster may note meanwhile that nobody held it
		found, err := store.GetTrafficRouting(ctx, store.Namespace(), "mse")
		require.NoError(t, err)
		found.Status.Holders, found.Status.Phase = []string{theirs}, v1alpha1.TrafficProgressing
		return store.SetTrafficStatus(ctx, found)
	}))
	temporal.set("rollout/default/s/ours", "1", "1", running)
	_, err := a.HoldTraffic(ctx, by(in, "rollout/default/s/ours@1"))
	requireType(t, err, failure.Refused, "it isn't shared with another engine")
	require.ErrorContains(t, err, "is held by rollout/default/s/theirs of engine b: only engine b can take over its own claims")
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

func TestTheLastHolderGivesTheRoutesBack(t *testing.T) {
	t.Parallel()
	store, a, temporal, in := shared(t)
	ctx := testContext(t)
	one, two := by(in, "rollout/default/s/one@1"), by(in, "rollout/default/s/two@1")
	temporal.set("rollout/default/s/one", "1", "1", running)
	temporal.set("rollout/default/s/two", "9", "1", running)

	held, err := a.HoldTraffic(ctx, one)
	require.NoError(t, err)
	require.Equal(t, "trafficrouting/"+store.Namespace()+"/mse", workloadops.ParseHolder(held.Claim).WorkflowID)
	require.Equal(t, "mse", held.Shared.Name)
	require.Equal(t, int64(7), held.Shared.Routings[0].GraceSeconds)
	_, err = a.HoldTraffic(ctx, two)
	require.NoError(t, err)
	_, err = a.HoldTraffic(ctx, one)
	require.NoError(t, err, "to hold twice is to hold once")
	phase, holders := phaseOf(t, store)
	require.Equal(t, v1alpha1.TrafficProgressing, phase)
	require.Equal(t, []string{one.Holder, two.Holder}, holders)

	left, err := a.LeaveTraffic(ctx, rollout.LeaveTrafficRequest{HoldTrafficRequest: one})
	require.NoError(t, err)
	require.False(t, left.Restore, "another still routes by it")
	left, err = a.LeaveTraffic(ctx, rollout.LeaveTrafficRequest{HoldTrafficRequest: one})
	require.NoError(t, err)
	require.False(t, left.Restore, "it has left already")
	for range 2 {
		left, err = a.LeaveTraffic(ctx, rollout.LeaveTrafficRequest{HoldTrafficRequest: two})
		require.NoError(t, err)
		require.True(t, left.Restore, "the last gives the routes back, however often it asks")
		require.Equal(t, held.Shared, left.Shared)
	}
	phase, holders = phaseOf(t, store)
	require.Equal(t, v1alpha1.TrafficFinalizing, phase)
	require.Equal(t, []string{two.Holder}, holders, "it stays a holder until it has")

	_, err = a.HoldTraffic(ctx, one)
	requireType(t, err, failure.NotReady, "who wants to hold meanwhile waits")
	_, err = a.LeaveTraffic(ctx, rollout.LeaveTrafficRequest{HoldTrafficRequest: two, Restored: true})
	require.NoError(t, err)
	phase, holders = phaseOf(t, store)
	require.Equal(t, v1alpha1.TrafficHealthy, phase)
	require.Empty(t, holders)
	_, err = a.HoldTraffic(ctx, one)
	require.NoError(t, err, "now it is free")
}

// attemptToHold is one attempt as Temporal has it made, after an earlier one that left that; it answers what it told last.
func attemptToHold(t *testing.T, a *centre.Activities, in rollout.HoldTrafficRequest, left *workloadops.Progress) (told workloadops.Progress, err error) {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivity(a.HoldTraffic)
	if left != nil {
		env.SetHeartbeatDetails(*left)
	}
	env.SetOnActivityHeartbeatListener(func(_ *activity.Info, details converter.EncodedValues) {
		if err := details.Get(&told); err != nil {
			t.Error(err)
		}
	})
	_, err = env.ExecuteActivity(a.HoldTraffic, in)
	return told, err
}

func TestWhoWaitsForAHolderWaitsNoLongerThanItsDeadline(t *testing.T) {
	t.Parallel()
	store, a, temporal, in := shared(t)
	one, two := by(in, "rollout/default/s/one@1"), by(in, "rollout/default/s/two@1")
	two.DeadlineSeconds = 600
	temporal.set("rollout/default/s/one", "1", "1", running)
	_, err := a.HoldTraffic(testContext(t), one)
	require.NoError(t, err)
	_, err = a.LeaveTraffic(testContext(t), rollout.LeaveTrafficRequest{HoldTrafficRequest: one})
	require.NoError(t, err)

	told, err := attemptToHold(t, a, two, nil)
	requireType(t, err, failure.NotReady, "the deadline has only begun")
	require.Contains(t, told.Message, "TrafficRouting "+store.Namespace()+"/mse gives its routes back for rollout/default/s/one", "it is said for what and for whom")
	require.False(t, told.ReadAt.IsZero(), "the next attempt counts from here")
	told, err = attemptToHold(t, a, two, &workloadops.Progress{ElapsedSeconds: 100, ReadAt: time.Now().Add(-5 * time.Second)})
	requireType(t, err, failure.NotReady, "the deadline is not over")
	require.InDelta(t, 105, told.ElapsedSeconds, 3)
	long := &workloadops.Progress{ElapsedSeconds: 598, ReadAt: time.Now().Add(-5 * time.Second)}
	_, err = attemptToHold(t, a, two, long)
	requireType(t, err, failure.WorkloadFailed, "the deadline is over")
	require.ErrorContains(t, err, "gives its routes back for rollout/default/s/one")
	two.DeadlineSeconds = 0
	_, err = attemptToHold(t, a, two, long)
	requireType(t, err, failure.NotReady, "a rollout of before has no deadline")
}

func TestDeadHoldersAreDropped(t *testing.T) {
	t.Parallel()
	store, a, temporal, in := shared(t)
	ctx := testContext(t)
	dead, alive := by(in, "rollout/default/s/dead@1"), by(in, "rollout/default/s/alive@1")
	temporal.set("rollout/default/s/dead", "1", "1", running)
	temporal.set("rollout/default/s/alive", "1", "1", running)
	_, err := a.HoldTraffic(ctx, dead)
	require.NoError(t, err)
	_, err = a.LeaveTraffic(ctx, rollout.LeaveTrafficRequest{HoldTrafficRequest: dead})
	require.NoError(t, err)
	temporal.set("rollout/default/s/dead", "1", "1", terminated)
	claim := workloadops.ClaimHolderRequest{Claim: v1alpha1.TrafficClaim(store.Namespace(), "mse", engineOf(t, store))}
	held, err := a.ClaimHolder(ctx, claim)
	require.NoError(t, err)
	require.True(t, held.Dead, "nobody alive holds it")
	_, err = a.HoldTraffic(ctx, alive)
	require.NoError(t, err, "a dead holder that was giving the routes back is not waited for")
	_, holders := phaseOf(t, store)
	require.Equal(t, []string{alive.Holder}, holders)
	held, err = a.ClaimHolder(ctx, claim)
	require.NoError(t, err)
	require.False(t, held.Dead)
	require.Contains(t, held.Reason, "rollout/default/s/alive")
}

func TestADeletionWaitsForTheHolders(t *testing.T) {
	t.Parallel()
	store, a, temporal, in := shared(t)
	ctx := testContext(t)
	one, two := by(in, "rollout/default/s/one@1"), by(in, "rollout/default/s/two@1")
	temporal.set("rollout/default/s/one", "1", "1", running)
	_, err := a.HoldTraffic(ctx, one)
	require.NoError(t, err)
	path := "/apis/rollouts.kruise.io/v1alpha1/namespaces/" + store.Namespace() + "/trafficroutings/mse"
	require.NoError(t, harness.SharedStack(t).Kube.CoreV1().RESTClient().Delete().AbsPath(path).Do(ctx).Error(), "kubectl delete is accepted")
	_, err = a.HoldTraffic(ctx, two)
	requireType(t, err, failure.Refused, "nobody new may hold what is being deleted")
	left, err := a.LeaveTraffic(ctx, rollout.LeaveTrafficRequest{HoldTrafficRequest: one})
	require.NoError(t, err)
	require.True(t, left.Restore, "it is still there, so that its routes can be given back")
	require.NotEmpty(t, left.Shared.Routings)
	_, err = a.LeaveTraffic(ctx, rollout.LeaveTrafficRequest{HoldTrafficRequest: one, Restored: true})
	require.NoError(t, err)
	_, err = store.GetTrafficRouting(ctx, store.Namespace(), "mse")
	require.True(t, failure.Is(err, failure.NotFound), "the last one has let it go: got %v", err)
	_, err = a.HoldTraffic(ctx, two)
	requireType(t, err, failure.NotFound, "it is gone")
}

func TestTwentyHoldersAtOnce(t *testing.T) {
	t.Parallel()
	store, a, temporal, in := shared(t)
	var wg sync.WaitGroup
	for i := range 20 {
		id := "rollout/default/s/r" + string(rune('a'+i))
		temporal.set(id, "1", "1", running)
		wg.Go(func() {
			for { // as Temporal tries an activity again that is not ready
				_, err := a.HoldTraffic(testContext(t), by(in, id+"@1"))
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
	require.Len(t, holders, 20, "nobody's hold was lost")
}

func isType(err error, kind failure.Kind) bool {
	var app *temporal.ApplicationError
	return errors.As(err, &app) && app.Type() == string(kind)
}

func TestWhoseClaimsAreAlive(t *testing.T) {
	t.Parallel()
	store, temporal := newStore(t), newRuns()
	a := centre.NewActivities(store, temporal, nil, 0)
	own, other := engineOf(t, store), workloadops.Engine{UID: "uid-b", Name: "b"}
	temporal.set("rollout/default/s/one", "3", "1", running)
	temporal.set("rollout/default/s/over", "2", "2", terminated)
	for _, c := range []struct {
		reason, claim string
		dead          bool
	}{
		{"the run with which a chain began stands for all of it", "rollout/default/s/one@1", false},
		{"so does the present run", "rollout/default/s/one@3", false},
		{"an earlier release of that name is over", "rollout/default/s/one@0", true},
		{"a terminated one is dead", "rollout/default/s/over@2", true},
		{"one that Temporal does not know is dead", "rollout/default/s/none@1", true},
		{"a TrafficRouting that is gone holds nothing", v1alpha1.TrafficClaim(store.Namespace(), "gone", own), true},
		{"so does one of an earlier build's claim", "trafficrouting/" + store.Namespace() + "/gone", true},
		{"a dead claim of this engine", workloadops.Holder{WorkflowID: "rollout/default/s/over", RunID: "2", Engine: own}.String(), true},
		{"another engine's is not known here, even if one of that name is over", workloadops.Holder{WorkflowID: "rollout/default/s/over", RunID: "2", Engine: other}.String(), false},
		{"nor is its TrafficRouting", v1alpha1.TrafficClaim(store.Namespace(), "gone", other), false},
	} {
		answer, err := a.ClaimHolder(testContext(t), workloadops.ClaimHolderRequest{Claim: c.claim})
		require.NoError(t, err, c.reason)
		require.Equal(t, c.dead, answer.Dead, c.reason)
		require.NotEmpty(t, answer.Reason, c.reason)
	}
}
