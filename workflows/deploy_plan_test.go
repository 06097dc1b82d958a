package workflows

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	sdkpb "go.temporal.io/api/sdk/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/origin"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// stage is a test environment in which time is skipped and the outside world is scripted.
type stage struct {
	*testsuite.TestWorkflowEnvironment
	origins
	t *testing.T
	// run plays workload.Run; by default each operation succeeds at once.
	run func(request operation.Request) (workload.Result, error)
	// restore plays workload.Restore; by default it succeeds, or is forbidden for a while.
	restore func(request operation.RestoreRequest) error
	// restored are the workloads whose settings were restored.
	restored []string
	// orders are the workloads of every item; out is the count of unavailable pods of each. Without orders an item has
	// one workload.
	orders []operation.WorkloadOrder
	out    map[string]int32
	// centreAway is how often the centre fails to answer who holds a workload.
	centreAway int
	// restoreForbidden is how often a restore is forbidden before it succeeds.
	restoreForbidden int
	// superseded is the plan's newer task.
	superseded string
	// holderDead is the centre's answer about another holder.
	holderDead bool
	// recorded is true once the record was written.
	recorded bool
	// began are the workloads in the order in which their operations began.
	began []string
	// upserts are the written search attributes.
	upserts []temporal.SearchAttributes
	// rollOut makes rollouts release the orders; rollout plays such a rollout.
	rollOut *strategy.ServiceRollout
	rollout func(workflow.Context, RolloutInput) (RolloutResult, error)
}

func newStage(t *testing.T) *stage {
	var suite testsuite.WorkflowTestSuite
	s := &stage{TestWorkflowEnvironment: suite.NewTestWorkflowEnvironment(), t: t}
	// the race detector makes the digest of the largest input slow
	s.SetWorkerOptions(worker.Options{Interceptors: interceptors(), DeadlockDetectionTimeout: time.Minute})
	s.RegisterWorkflowWithOptions(DeployPlan, workflow.RegisterOptions{Name: TypeDeployPlan})
	s.RegisterWorkflowWithOptions(ServiceRelease, workflow.RegisterOptions{Name: TypeServiceRelease})
	s.RegisterWorkflowWithOptions(PackageSweep, workflow.RegisterOptions{Name: TypePackageSweep})
	s.RegisterWorkflowWithOptions(Preflight, workflow.RegisterOptions{Name: TypePreflight})
	s.RegisterWorkflowWithOptions(func(ctx workflow.Context, in RolloutInput) (RolloutResult, error) {
		return s.rollout(ctx, in)
	},
		workflow.RegisterOptions{Name: TypeRollout})
	s.run = func(operation.Request) (workload.Result, error) {
		return workload.Result{Message: "3 of 3 pods are ready", Changed: true}, nil
	}
	register := func(name string, fn any) { s.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name}) }
	register(origin.ActivityCheck, s.checkOrigin)
	register(operation.ActivityBeginTask, func(context.Context, operation.TaskRequest) (operation.BeginTaskResult,
		error) {
		return operation.BeginTaskResult{Superseded: s.superseded}, nil
	})
	register(operation.ActivityCompleteRecord, func(context.Context, operation.TaskRequest) error {
		s.recorded = true
		return nil
	})
	register(operation.ActivityCountUnavailable,
		func(_ context.Context, in operation.UnavailableRequest) (operation.UnavailableResult, error) {
			var answer operation.UnavailableResult
			for _, w := range in.Workloads {
				answer.Unavailable = append(answer.Unavailable, s.out[w.WorkloadRef.Name])
			}
			return answer, nil
		})
	register(operation.ActivityLoadItem, func(_ context.Context,
		in operation.LoadItemRequest) (operation.LoadItemResult, error) {
		if s.orders != nil {
			return operation.LoadItemResult{Workloads: s.orders, RollOut: s.rollOut}, nil
		}
		return operation.LoadItemResult{Workloads: []operation.WorkloadOrder{order(fmt.Sprintf("w%d", in.Item))}},
			nil
	})
	register(workload.ActivityClaimHolder, func(context.Context,
		workload.ClaimHolderRequest) (workload.ClaimHolderResult, error) {
		if s.centreAway > 0 {
			s.centreAway--
			return workload.ClaimHolderResult{},
				temporal.NewNonRetryableApplicationError("Temporal does not answer", "Unavailable", nil)
		}
		return workload.ClaimHolderResult{Dead: s.holderDead, Reason: "as scripted"}, nil
	})
	register(operation.ActivityRun, func(_ context.Context, request operation.Request) (workload.Result, error) {
		s.began = append(s.began, request.Workload.WorkloadRef.Name)
		return s.run(request)
	})
	register(operation.ActivityRestore, func(_ context.Context,
		request operation.RestoreRequest) (workload.Result, error) {
		if s.restore != nil {
			return workload.Result{}, s.restore(request)
		}
		if s.restoreForbidden > 0 {
			s.restoreForbidden--
			return workload.Result{}, temporal.NewNonRetryableApplicationError("may not patch",
				string(failure.Forbidden), nil)
		}
		s.restored = append(s.restored, request.Workload.WorkloadRef.Name)
		return workload.Result{}, nil
	})
	s.OnUpsertMemo(mock.Anything).Return(nil).Maybe()
	s.OnUpsertTypedSearchAttributes(mock.Anything).Run(func(args mock.Arguments) {
		s.upserts = append(s.upserts, args.Get(0).(temporal.SearchAttributes))
	}).Return(nil).Maybe()
	return s
}

func order(name string) operation.WorkloadOrder {
	var o operation.WorkloadOrder
	o.Queue = catalog.PartyQueue("default")
	o.Request.Workload.Namespace = "shop"
	o.Request.Workload.WorkloadRef.Kind, o.Request.Workload.WorkloadRef.Name = "Deployment", name
	o.Request.Operation, o.Request.Method = plan.Restart, plan.Parallel
	o.Request.DeadlineSeconds, o.Request.UnreachableBudgetSeconds = 600, 120
	return o
}

// planOf returns a plan whose items have these priorities.
func planOf(priorities ...int64) DeployPlanInput {
	in := DeployPlanInput{Task: "shop-1", Plan: "shop", CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		MaxConcurrent: 50, UnreachableBudgetSeconds: 120}
	for n, p := range priorities {
		in.Items = append(in.Items, ItemOutline{ServiceID: plan.ServiceID(fmt.Sprint(n + 1)), Priority: p,
			Deployment: plan.Restart, Method: plan.Parallel})
	}
	return in
}

func (s *stage) task() plan.Task {
	value, err := s.QueryWorkflow(QueryState)
	require.NoError(s.t, err)
	var task plan.Task
	require.NoError(s.t, value.Get(&task))
	return task
}

// metadata is what Temporal's UI shows.
func (s *stage) metadata() *sdkpb.WorkflowMetadata {
	value, err := s.QueryWorkflow("__temporal_workflow_metadata")
	require.NoError(s.t, err)
	var metadata sdkpb.WorkflowMetadata
	require.NoError(s.t, value.Get(&metadata))
	return &metadata
}

// update sends a verb as the API does and calls then with the response.
func (s *stage) update(verb plan.Verb, request VerbRequest, then func(VerbResponse)) {
	s.UpdateWorkflow(string(verb), request.Key, &testsuite.TestUpdateCallback{
		OnAccept: func() {},
		OnReject: func(err error) { require.NoError(s.t, err, "only malformed verbs are rejected") },
		OnComplete: func(response any, err error) {
			require.NoError(s.t, err)
			if then != nil {
				then(response.(VerbResponse))
			}
		},
	}, request)
}

// slow makes every operation take that long, in the test's time.
func (s *stage) slow(d time.Duration) {
	s.run = nil
	s.OnActivity(operation.ActivityRun, mock.Anything,
		mock.Anything).After(d).Return(workload.Result{Message: "done", Changed: true}, nil)
}

func TestDeployPlan_ReleasesWaveByWave(t *testing.T) {
	s := newStage(t)
	s.ExecuteWorkflow(TypeDeployPlan, planOf(1, 3, 2, 3))
	require.NoError(t, s.GetWorkflowError())
	require.ElementsMatch(t, []string{"w2", "w4"}, s.began[:2], "the largest priority goes first, equal ones together")
	require.Equal(t, []string{"w3", "w1"}, s.began[2:], "then the others in falling order")
	task := s.task()
	require.Equal(t, plan.TaskSucceeded, task.State)
	require.NotNil(t, task.FinishedAt)
	require.True(t, s.recorded, "the record is written before the workflow ends")
	for _, service := range task.Services {
		require.Equal(t, plan.ItemSucceeded, service.State)
		require.Len(t, service.Workloads, 1)
	}
}

func TestDeployPlanPausesAndResumes(t *testing.T) {
	s := newStage(t)
	s.slow(time.Minute)
	var paused, refused, resumed VerbResponse
	s.RegisterDelayedCallback(func() {
		require.Contains(t, s.metadata().GetCurrentDetails(), "## Running", "the page shows what has just begun")
		s.update(plan.VerbPause, VerbRequest{Actor: "ann", Reason: "lunch", Key: "k1", Via: "cli"},
			func(r VerbResponse) { paused = r })
	}, 10*time.Second)
	s.RegisterDelayedCallback(func() {
		require.Equal(t, plan.TaskPausing, s.task().State, "running items finish first")
	}, 20*time.Second)
	s.RegisterDelayedCallback(func() {
		task := s.task()
		require.Equal(t, plan.TaskPaused, task.State)
		require.Equal(t, plan.ItemPending, task.Services[1].State, "nothing new starts")
		require.Contains(t, s.metadata().GetCurrentDetails(), "signal `resume`", "the page shows how to continue")
		s.update(plan.VerbPause, VerbRequest{Actor: "bob", Key: "k2"}, func(r VerbResponse) { refused = r })
	}, 48*time.Hour)
	s.RegisterDelayedCallback(func() {
		s.update(plan.VerbResume, VerbRequest{Actor: "ann", Key: "k3"}, func(r VerbResponse) { resumed = r })
	}, 49*time.Hour)
	s.ExecuteWorkflow(TypeDeployPlan, planOf(2, 1))
	require.NoError(t, s.GetWorkflowError())
	require.Equal(t, audit.Accepted, paused.Outcome)
	require.Equal(t, audit.Refused, refused.Outcome, "a second pause is refused")
	require.Equal(t, audit.Accepted, resumed.Outcome)
	task := s.task()
	require.Equal(t, plan.TaskSucceeded, task.State)
	require.Len(t, task.History, 3, "refusals are recorded too")
	require.Equal(t, audit.Entry{At: task.History[0].At, Actor: "ann", Via: "cli", Verb: plan.VerbPause,
		Reason: "lunch", Key: "k1",
		Outcome: audit.Accepted, Message: paused.Message}, task.History[0])
}

func TestDeployPlan_AcceptsEmptySignalPayloads(t *testing.T) {
	s := newStage(t)
	s.slow(time.Minute)
	s.RegisterDelayedCallback(func() {
		var names []string
		for _, d := range s.metadata().GetDefinition().GetSignalDefinitions() {
			names = append(names, d.GetName())
			require.NotEmpty(t, d.GetDescription(), "the signal menu describes %s", d.GetName())
		}
		require.Equal(t, []string{"approve", "pause", "resume", "stop"}, names, "the menu lists the verbs only")
		s.SignalWorkflow("pause", nil)
	}, time.Second)
	s.RegisterDelayedCallback(func() { s.SignalWorkflow("resume", VerbRequest{Actor: "ann"}) }, time.Hour)
	s.ExecuteWorkflow(TypeDeployPlan, planOf(2, 1))
	require.NoError(t, s.GetWorkflowError())
	task := s.task()
	require.Equal(t, plan.TaskSucceeded, task.State)
	require.Equal(t, []string{"unknown", "ann"}, []string{task.History[0].Actor, task.History[1].Actor},
		"an empty payload is a valid pause by an unknown actor")
	require.Equal(t, "temporal", task.History[0].Via)
}

func TestDeployPlan_KeepsTheOrderOfSignals(t *testing.T) {
	s := newStage(t)
	s.slow(time.Minute)
	s.RegisterDelayedCallback(func() {
		for _, verb := range []string{"pause", "resume", "pause", "stop"} {
			s.SignalWorkflow(verb, VerbRequest{})
		}
	}, time.Second)
	s.ExecuteWorkflow(TypeDeployPlan, planOf(2, 1))
	require.NoError(t, s.GetWorkflowError())
	task := s.task()
	require.Equal(t, plan.TaskStopped, task.State)
	var verbs []plan.Verb
	for _, d := range task.History {
		verbs = append(verbs, d.Verb)
		require.Equal(t, audit.Accepted, d.Outcome, "in this order each of them is legal")
	}
	require.Equal(t, []plan.Verb{"pause", "resume", "pause", "stop"}, verbs,
		"signals of different names keep their order")
	require.Equal(t, plan.ItemSkipped, task.Services[1].State, "an item never begun is skipped")
}

func TestDeployPlan_ExecutesARepeatedKeyOnce(t *testing.T) {
	s := newStage(t)
	s.slow(time.Minute)
	s.RegisterDelayedCallback(func() {
		s.SignalWorkflow("pause", VerbRequest{Key: "same"})
		s.SignalWorkflow("pause", VerbRequest{Key: "same"})
	}, time.Second)
	s.RegisterDelayedCallback(func() { s.SignalWorkflow("resume", nil) }, time.Hour)
	s.ExecuteWorkflow(TypeDeployPlan, planOf(2, 1))
	require.NoError(t, s.GetWorkflowError())
	require.Len(t, s.task().History, 2, "the same key twice is one command")
}

func TestDeployPlan_FailsImmediately_WhenAnItemFails(t *testing.T) {
	s := newStage(t)
	s.OnActivity(operation.ActivityRun, mock.Anything, mock.MatchedBy(func(r operation.Request) bool {
		return r.Workload.WorkloadRef.Name == "w1"
	})).
		Return(workload.Result{}, temporal.NewNonRetryableApplicationError("pod x: ImagePullBackOff",
			string(failure.WorkloadFailed), nil))
	s.OnActivity(operation.ActivityRun, mock.Anything,
		mock.Anything).After(time.Hour).Return(workload.Result{Message: "done", Changed: true}, nil)
	s.RegisterDelayedCallback(func() {
		task := s.task()
		require.Equal(t, plan.TaskFailed, task.State, "the task is failed at once")
		require.Nil(t, task.FinishedAt, "it finishes when the other running items have ended")
	}, 30*time.Minute)
	s.ExecuteWorkflow(TypeDeployPlan, planOf(2, 2, 1))
	var app *temporal.ApplicationError
	require.ErrorAs(t, s.GetWorkflowError(), &app)
	require.Equal(t, TypeTaskFailed, app.Type(), "Temporal shows a failed task as failed")
	task := s.task()
	require.Contains(t, task.Reason, "service 1 failed")
	require.Contains(t, task.Reason, "pod x: ImagePullBackOff", "the pod's own message is in the reason")
	require.Equal(t, []plan.ItemState{plan.ItemFailed, plan.ItemSucceeded, plan.ItemSkipped},
		[]plan.ItemState{task.Services[0].State, task.Services[1].State, task.Services[2].State})
}

func TestDeployPlan_IsInterruptedAndResumed_WhenClusterUnreachable(t *testing.T) {
	s := newStage(t)
	calls := 0
	var spent int64
	s.run = func(r operation.Request) (workload.Result, error) {
		calls++
		if calls == 1 {
			return workload.Result{}, temporal.NewNonRetryableApplicationError(
				"party default: connection refused for 120 s", string(failure.Unreachable), nil,
				failure.Details{SpentSeconds: 42})
		}
		spent = r.SpentSeconds
		return workload.Result{Message: "done", Changed: true}, nil
	}
	s.RegisterDelayedCallback(func() {
		task := s.task()
		require.Equal(t, plan.TaskInterrupted, task.State, "system trouble is not a failure")
		require.Contains(t, task.Reason, "connection refused")
		s.update(plan.VerbResume, VerbRequest{Key: "r1"}, func(r VerbResponse) {
			require.Equal(t, audit.Accepted, r.Outcome, r.Message)
		})
	}, 24*time.Hour)
	s.ExecuteWorkflow(TypeDeployPlan, planOf(1))
	require.NoError(t, s.GetWorkflowError())
	require.Equal(t, plan.TaskSucceeded, s.task().State)
	interruptions := s.task().Interruptions
	require.Len(t, interruptions, 1, "the report contains the time and the reason of the interruption")
	require.Equal(t, 24*time.Hour, interruptions[0].Until.Sub(interruptions[0].At).Round(time.Minute))
	require.Contains(t, interruptions[0].Reason, "connection refused")
	require.Equal(t, int64(42), spent, "the used part of the deadline is carried over")
	require.Empty(t, s.restored, "resume continues; it restores nothing")
}

func TestDeployPlan_RefusesResume_WhenSuperseded(t *testing.T) {
	s := newStage(t)
	s.run = func(operation.Request) (workload.Result, error) {
		return workload.Result{}, temporal.NewNonRetryableApplicationError("forbidden", string(failure.Forbidden),
			nil)
	}
	s.RegisterDelayedCallback(func() {
		s.superseded, s.restoreForbidden = "shop-2", 3
		s.update(plan.VerbResume, VerbRequest{Key: "r1"}, func(r VerbResponse) {
			require.Equal(t, audit.Refused, r.Outcome)
			require.Contains(t, r.Message, "shop-2", "the refusal points at the newer task")
		})
	}, time.Hour)
	s.RegisterDelayedCallback(func() { s.update(plan.VerbStop, VerbRequest{Key: "s1"}, nil) }, 2*time.Hour)
	s.ExecuteWorkflow(TypeDeployPlan, planOf(2, 1))
	require.NoError(t, s.GetWorkflowError(), "a stopped task is not a failed workflow")
	require.Equal(t, plan.TaskStopped, s.task().State)
	require.Equal(t, []string{"w1"}, s.restored, "borrowed settings are restored before the task ends")
}

func TestDeployPlanCancelMeansStop(t *testing.T) {
	s := newStage(t)
	s.slow(time.Minute)
	s.RegisterDelayedCallback(s.CancelWorkflow, time.Second)
	s.ExecuteWorkflow(TypeDeployPlan, planOf(2, 1))
	require.NoError(t, s.GetWorkflowError())
	task := s.task()
	require.Equal(t, plan.TaskStopped, task.State)
	require.Equal(t, plan.ItemSucceeded, task.Services[0].State, "running items finish")
}

func TestServiceRelease_TakesOverClaim_WhenHolderDead(t *testing.T) {
	s := newStage(t)
	s.holderDead = true
	var takeOver string
	s.run = func(r operation.Request) (workload.Result, error) {
		if r.TakeOver == "" {
			return workload.Result{}, temporal.NewNonRetryableApplicationError("claimed", string(failure.Claimed),
				nil, failure.Details{Holder: "task/old/1-111@run"})
		}
		takeOver = r.TakeOver
		return workload.Result{Message: "done", Changed: true}, nil
	}
	s.ExecuteWorkflow(TypeDeployPlan, planOf(1))
	require.NoError(t, s.GetWorkflowError())
	require.Equal(t, "task/old/1-111@run", takeOver, "the claim of a dead workflow is taken over, by name")
}

func TestServiceRelease_Fails_WhenHolderAlive(t *testing.T) {
	s := newStage(t)
	s.run = func(operation.Request) (workload.Result, error) {
		return workload.Result{}, temporal.NewNonRetryableApplicationError("held by task/other",
			string(failure.Claimed), nil, failure.Details{Holder: "task/other/1-111@run"})
	}
	s.ExecuteWorkflow(TypeDeployPlan, planOf(1))
	require.Error(t, s.GetWorkflowError())
	require.Contains(t, s.task().Reason, "held by task/other", "the refusal points at the holder")
}

func TestDecodePayload(t *testing.T) {
	var r VerbRequest
	require.NoError(t, decodePayload(nil, &r), "the UI sends no payload for an empty editor")
	require.NoError(t, decodePayload(&commonpb.Payloads{}, &r))
	require.Error(t,
		decodePayload(&commonpb.Payloads{Payloads: []*commonpb.Payload{{Metadata: map[string][]byte{"encoding": []byte(
			"json/plain")}, Data: []byte("{")}}}, &r))
}

// The workflow stays open until the borrowed settings are restored.
func TestServiceRelease_StaysOpen_UntilRestored(t *testing.T) {
	s := newStage(t)
	s.restoreForbidden = 2
	s.run = func(operation.Request) (workload.Result, error) {
		return workload.Result{}, temporal.NewNonRetryableApplicationError("an admission policy refuses",
			string(failure.Refused), nil, failure.Details{RestorePending: true})
	}
	s.ExecuteWorkflow(TypeDeployPlan, planOf(1))
	require.Error(t, s.GetWorkflowError())
	require.Equal(t, []string{"w1"}, s.restored, "the settings are restored before the workflow closes")
	require.Contains(t, s.task().Reason, "an admission policy refuses", "the failure is unchanged")
}

// A queue without a worker interrupts the task even with a small budget; the workflow does not retry forever.
func TestServiceRelease_IsInterrupted_WhenQueueHasNoWorker(t *testing.T) {
	s := newStage(t)
	asked := 0
	s.run = func(operation.Request) (workload.Result, error) {
		if asked++; asked <= 2 {
			return workload.Result{}, temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START, nil)
		}
		return workload.Result{Message: "done", Changed: true}, nil
	}
	s.RegisterDelayedCallback(func() {
		task := s.task()
		require.Equal(t, plan.TaskInterrupted, task.State)
		require.Contains(t, task.Reason, "no worker of party default takes work")
		s.SignalWorkflow("resume", nil)
	}, time.Hour)
	in := planOf(1)
	in.UnreachableBudgetSeconds = 10
	s.ExecuteWorkflow(TypeDeployPlan, in)
	require.NoError(t, s.GetWorkflowError())
	require.Equal(t, 3, asked, "one retry in case the engine itself was down, and another after resume")
}

// If the centre cannot answer whether a holder is alive, that is system trouble.
func TestServiceRelease_IsInterrupted_WhenHolderUnknown(t *testing.T) {
	s := newStage(t)
	s.holderDead, s.centreAway = true, 1
	s.run = func(r operation.Request) (workload.Result, error) {
		if r.TakeOver == "" {
			return workload.Result{}, temporal.NewNonRetryableApplicationError("claimed", string(failure.Claimed),
				nil, failure.Details{Holder: "task/old/1-111@run"})
		}
		return workload.Result{Message: "done", Changed: true}, nil
	}
	s.RegisterDelayedCallback(func() {
		require.Equal(t, plan.TaskInterrupted, s.task().State)
		s.SignalWorkflow("resume", nil)
	}, time.Hour)
	s.ExecuteWorkflow(TypeDeployPlan, planOf(1))
	require.NoError(t, s.GetWorkflowError())
}

// A workload with an unavailable pod is released first, regardless of the catalogue's order.
func TestServiceRelease_ReleasesWorkloadWithUnavailablePodsFirst(t *testing.T) {
	s := newStage(t)
	s.orders = []operation.WorkloadOrder{order("intact"), order("broken"), order("also-intact")}
	s.out = map[string]int32{"broken": 1}
	s.run = func(r operation.Request) (workload.Result, error) {
		s.out[r.Workload.WorkloadRef.Name] = 0
		return workload.Result{Message: "done", Changed: true}, nil
	}
	in := planOf(1)
	in.Items[0].Method = plan.Sequential
	s.ExecuteWorkflow(TypeDeployPlan, in)
	require.NoError(t, s.GetWorkflowError())
	require.Equal(t, []string{"broken", "intact", "also-intact"}, s.began)
}

// Signals sent directly to Temporal can neither block a task nor bloat its record.
func TestDeployPlan_RefusesMalformedSignals(t *testing.T) {
	s := newStage(t)
	s.slow(time.Minute)
	s.RegisterDelayedCallback(func() {
		s.SignalWorkflow("puase", nil)
		s.SignalWorkflow(SignalItem, nil)
		s.SignalWorkflow(SignalItem, ItemSignal{Item: 99, Interrupted: true, Reason: "no such item"})
		s.SignalWorkflow(SignalItem, "no object")
		s.SignalWorkflow("pause", VerbRequest{Actor: "ann", Reason: strings.Repeat("長", MaxReason+1)})
		s.SignalWorkflow("stop", "no object")
		s.SignalWorkflow("pause", VerbRequest{Actor: "ann", Reason: strings.Repeat("長", MaxReason), Key: "k"})
		s.SignalWorkflow("stop", VerbRequest{Key: "k"})
		s.SignalWorkflow("resume", nil)
	}, time.Second)
	s.ExecuteWorkflow(TypeDeployPlan, planOf(2, 1))
	require.NoError(t, s.GetWorkflowError())
	task := s.task()
	require.Equal(t, plan.TaskSucceeded, task.State)
	var outcomes []audit.Outcome
	for _, d := range task.History {
		outcomes = append(outcomes, d.Outcome)
		require.LessOrEqual(t, len([]rune(d.Reason)), MaxReason)
	}
	require.Contains(t, task.History[0].Message, `no signal "puase"`, "a misspelt signal is answered in the record")
	require.Equal(t, []audit.Outcome{audit.Refused, audit.Refused, audit.Refused, audit.Accepted, audit.Refused,
		audit.Accepted}, outcomes,
		"unknown, too long, unreadable, legal, a key of another verb, legal: %+v", task.History)
}

// A task continues as new only if its state fits into one payload; otherwise it ends in the current run.
func TestDeployPlan_EndsInSameRun_WhenStateTooLarge(t *testing.T) {
	s := newStage(t)
	s.SetContinueAsNewSuggested(true)
	in := planOf(2, 1)
	in.Comment = strings.Repeat("x", maxInputBytes)
	s.ExecuteWorkflow(TypeDeployPlan, in)
	require.NoError(t, s.GetWorkflowError(), "the server would fail a workflow that sends so much")
	require.Equal(t, plan.TaskSucceeded, s.task().State)
}

// A task shows why pods of an item are not created, and goes on with the deadline that the operation has left.
func TestDeployPlan_ShowsPodsThatAreNotCreated(t *testing.T) {
	s := newStage(t)
	s.OnActivity(operation.ActivityRun, mock.Anything, mock.MatchedBy(func(r operation.Request) bool {
		return r.ReportBlocked
	})).Return(workload.Result{Blocked: "its pods cannot be created: exceeded quota", SpentSeconds: 7}, nil).Once()
	s.OnActivity(operation.ActivityRun, mock.Anything, mock.MatchedBy(func(r operation.Request) bool {
		return !r.ReportBlocked && r.SpentSeconds == 7
	})).After(time.Hour).Return(workload.Result{Message: "done", Changed: true}, nil).Once()
	s.RegisterDelayedCallback(func() {
		task := s.task()
		require.Equal(t, plan.TaskRunning, task.State)
		require.Contains(t, task.Services[0].Reason, ": its pods cannot be created: exceeded quota")
	}, 30*time.Minute)
	s.ExecuteWorkflow(TypeDeployPlan, planOf(1))
	require.NoError(t, s.GetWorkflowError())
	require.Equal(t, plan.TaskSucceeded, s.task().State)
}
