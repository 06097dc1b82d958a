package workflows

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/workload"
)

// historyCounter is an upper bound for a workflow's history events: each command causes at most one workflow task, of
// three events.
type historyCounter struct {
	interceptor.WorkerInterceptorBase
	events, pending, mostPending int
	grown                        func()
}

const (
	eventsOfActivity = 3 + 3
	eventsOfTimer    = 2 + 3
	eventsOfSignal   = 2 + 3
	// suggestedAt is the number of events at which the server suggests continue-as-new.
	suggestedAt = 4096
)

// watch counts the commands of a stage's workflow, and suggests continue-as-new as the server does.
func (h *historyCounter) watch(s *stage) {
	s.SetWorkerOptions(worker.Options{Interceptors: interceptors(h)})
	s.SetOnActivityCompletedListener(func(*activity.Info, converter.EncodedValue, error) { h.pending-- })
	h.grown = func() { s.SetContinueAsNewSuggested(h.events >= suggestedAt) }
}

func (h *historyCounter) add(events int) {
	h.events += events
	h.grown()
}

func (h *historyCounter) InterceptWorkflow(_ workflow.Context,
	next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	i := &countingInbound{counter: h}
	i.Next = next
	return i
}

type countingInbound struct {
	interceptor.WorkflowInboundInterceptorBase
	counter *historyCounter
}

func (i *countingInbound) Init(outbound interceptor.WorkflowOutboundInterceptor) error {
	o := &countingOutbound{counter: i.counter}
	o.Next = outbound
	return i.Next.Init(o)
}

type countingOutbound struct {
	interceptor.WorkflowOutboundInterceptorBase
	counter *historyCounter
}

func (o *countingOutbound) ExecuteActivity(ctx workflow.Context, name string, args ...any) workflow.Future {
	o.counter.add(eventsOfActivity)
	o.counter.pending++
	o.counter.mostPending = max(o.counter.mostPending, o.counter.pending)
	return o.Next.ExecuteActivity(ctx, name, args...)
}

func (o *countingOutbound) NewTimerWithOptions(ctx workflow.Context, d time.Duration,
	options workflow.TimerOptions) workflow.Future {
	o.counter.add(eventsOfTimer)
	return o.Next.NewTimerWithOptions(ctx, d, options)
}

func (o *countingOutbound) SignalExternalWorkflow(ctx workflow.Context, id, run, signal string,
	arg any) workflow.Future {
	o.counter.add(eventsOfSignal)
	return o.Next.SignalExternalWorkflow(ctx, id, run, signal, arg)
}

// releaseOf is a release of one service with that many workloads.
func releaseOf(method plan.Method, workloads int) (ServiceReleaseInput, []operation.WorkloadOrder) {
	orders := make([]operation.WorkloadOrder, workloads)
	for i := range orders {
		orders[i] = order(fmt.Sprintf("w%04d", i))
		orders[i].Request.Method = method
	}
	return ServiceReleaseInput{Task: "shop-1", Plan: "shop", Item: 1, UnreachableBudgetSeconds: 120,
		Outline: ItemOutline{ServiceID: "1", Deployment: plan.Restart, Method: method}}, orders
}

// through executes a release through all runs of continue-as-new.
func through(t *testing.T, in ServiceReleaseInput, prepare func(s *stage)) (result ServiceReleaseResult,
	counters []*historyCounter) {
	for {
		s, counter := newStage(t), &historyCounter{}
		counters = append(counters, counter)
		counter.watch(s)
		prepare(s)
		if in.State != nil {
			s.SetContinuedExecutionRunID("before")
		}
		s.ExecuteWorkflow(TypeServiceRelease, in)
		var again *workflow.ContinueAsNewError
		if errors.As(s.GetWorkflowError(), &again) {
			in = ServiceReleaseInput{}
			require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(again.Input, &in))
			continue
		}
		require.NoError(t, s.GetWorkflowError())
		require.NoError(t, s.GetWorkflowResult(&result))
		return result, counters
	}
}

func TestServiceReleaseOfManyWorkloads(t *testing.T) {
	cases := map[string]struct {
		method    plan.Method
		workloads int
		atOnce    int
		// events bounds all runs together; runs is their number.
		events, runs int
		mostPending  int
	}{
		"sequential queries all pending workloads before each": {plan.Sequential, 300, 0, 300*2*eventsOfActivity + 100,
			1, 1},
		"sequential continues as new": {plan.Sequential, 700, 0, 700 * 4 * eventsOfActivity, 3,
			1},
		"parallel is bounded by default": {plan.Parallel, 300, 0, 300*eventsOfActivity + 100, 1,
			DefaultConcurrentWorkloads},
		"parallel is bounded by the input": {plan.Parallel, 300, 7, 300*eventsOfActivity + 100, 1,
			7},
		"parallel continues as new": {plan.Parallel, 1000, 0, 1000*eventsOfActivity + 100, 2,
			DefaultConcurrentWorkloads},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			in, orders := releaseOf(c.method, c.workloads)
			in.MaxConcurrentWorkloads = c.atOnce
			released := map[string]int{}
			result, counters := through(t, in, func(s *stage) {
				s.orders = orders
				s.run = func(r operation.Request) (workload.Result, error) {
					return workload.Result{Message: "3 of 3 pods are ready", Changed: true}, nil
				}
				s.SetOnActivityStartedListener(func(info *activity.Info, _ context.Context,
					args converter.EncodedValues) {
					if info.ActivityType.Name == operation.ActivityRun {
						var r operation.Request
						require.NoError(t, args.Get(&r))
						released[r.Workload.WorkloadRef.Name]++
					}
				})
			})
			require.Equal(t, plan.ItemSucceeded, result.State, result.Reason)
			require.Len(t, result.Workloads, c.workloads)
			require.Len(t, released, c.workloads, "every workload is released")
			for name, times := range released {
				require.Equal(t, 1, times, "%s is released once, in one of the runs", name)
			}
			events := 0
			for _, counter := range counters {
				events += counter.events
				require.Less(t, counter.events, suggestedAt+(DefaultConcurrentWorkloads+2)*eventsOfActivity,
					"the history of one run is bounded")
				require.LessOrEqual(t, counter.mostPending, c.mostPending,
					"not more activities are in progress at once")
			}
			require.Equal(t, c.mostPending, counters[0].mostPending, "the allowed number is in progress")
			require.Less(t, events, c.events)
			require.Len(t, counters, c.runs)
		})
	}
}

// A pending restore is retried without a limit: a cluster that refuses it for a week costs two activities, not ten
// thousand.
func TestServiceReleaseRestoreForAWeek_CostsNoHistory(t *testing.T) {
	in, orders := releaseOf(plan.Parallel, 1)
	var restored time.Time
	tries := 0
	result, counters := through(t, in, func(s *stage) {
		began := s.Now()
		s.orders = orders
		s.run = func(operation.Request) (workload.Result, error) {
			return workload.Result{}, temporal.NewNonRetryableApplicationError("an admission policy refuses",
				string(failure.Refused), nil, failure.Details{RestorePending: true})
		}
		s.restore = func(r operation.RestoreRequest) error {
			tries++
			switch {
			case s.Now().Sub(began) > 7*24*time.Hour:
				restored = s.Now()
				return nil
			case r.Persist: // as the worker does it: the server tries again
				return temporal.NewApplicationErrorWithOptions("may not patch", string(failure.NotReady),
					temporal.ApplicationErrorOptions{NextRetryDelay: operation.RestoreRetryInterval})
			}
			return temporal.NewNonRetryableApplicationError("may not patch", string(failure.Forbidden), nil)
		}
		s.RegisterDelayedCallback(func() {
			value, err := s.QueryWorkflow(QueryState)
			require.NoError(t, err)
			var status plan.ServiceStatus
			require.NoError(t, value.Get(&status))
			require.Equal(t, plan.ItemRunning, status.State, "it does not close before the restore")
			require.Contains(t, status.Reason, "may not patch", "the reason shows the cause")
		}, 6*24*time.Hour)
	})
	require.Equal(t, plan.ItemFailed, result.State)
	require.Contains(t, result.Reason, "an admission policy refuses", "the failure is unchanged")
	require.False(t, restored.IsZero(), "the settings are restored before the workflow closes")
	require.Greater(t, tries, 7*24*30, "it is retried continuously")
	require.Len(t, counters, 1)
	require.Less(t, counters[0].events, 100, "a retry costs no history")
}

// A release that is given up starts no further workload, and reports the outcome of each.
func TestServiceRelease_StartsNoMoreWorkloads_WhenGivenUp(t *testing.T) {
	in, orders := releaseOf(plan.Parallel, 20)
	in.MaxConcurrentWorkloads = 3
	result, _ := through(t, in, func(s *stage) {
		s.orders = orders
		s.run = func(operation.Request) (workload.Result, error) {
			return workload.Result{}, temporal.NewNonRetryableApplicationError("connection refused",
				string(failure.Unreachable), nil)
		}
		s.RegisterDelayedCallback(func() { s.SignalWorkflow(SignalItemAbandon, nil) }, time.Hour)
	})
	require.Equal(t, plan.ItemFailed, result.State)
	require.True(t, result.Abandoned)
	states := map[plan.ItemState]int{}
	for _, w := range result.Workloads {
		states[w.State]++
	}
	require.Equal(t, map[plan.ItemState]int{plan.ItemFailed: 3, plan.ItemSkipped: 17}, states)
}
