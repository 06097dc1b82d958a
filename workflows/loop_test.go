package workflows

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/serving"
)

// cancelling cancels the workflow in the same workflow task that delivers a signal of this name; the test suite would
// use a task of its own.
type cancelling struct {
	interceptor.WorkerInterceptorBase
	signal string
}

func (c *cancelling) InterceptWorkflow(_ workflow.Context,
	next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	i := &cancellingInbound{signal: c.signal}
	i.Next = next
	return i
}

type cancellingInbound struct {
	interceptor.WorkflowInboundInterceptorBase
	signal string
	cancel workflow.CancelFunc
}

func (i *cancellingInbound) ExecuteWorkflow(ctx workflow.Context, in *interceptor.ExecuteWorkflowInput) (any, error) {
	ctx, i.cancel = workflow.WithCancel(ctx)
	return i.Next.ExecuteWorkflow(ctx, in)
}

func (i *cancellingInbound) HandleSignal(ctx workflow.Context, in *interceptor.HandleSignalInput) error {
	if in.SignalName == i.signal {
		i.cancel()
	}
	return i.Next.HandleSignal(ctx, in)
}

// liveType is a long-lived workflow type, for tests of all such types.
type liveType struct {
	// stage plays the outside world; upserts counts the writes of search attributes.
	stage func(t *testing.T) (env *testsuite.TestWorkflowEnvironment, upserts func() int)
	name  string
	input any
	// next decodes the input of the next run.
	next func(t *testing.T, again *workflow.ContinueAsNewError) any
	// look returns the state and the verbs in the history.
	look func(t *testing.T, env *testsuite.TestWorkflowEnvironment) (state string, verbs []string)
	// held is the state while paused, stopped the state after stop, ended the state after the verbs of continuesAsNew.
	held, stopped, ended string
	goesOn               []string
}

func nextInput[T any](t *testing.T, again *workflow.ContinueAsNewError) any {
	var in T
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(again.Input, &in))
	return in
}

func queried[T any](t *testing.T, env *testsuite.TestWorkflowEnvironment) (state T) {
	value, err := env.QueryWorkflow(QueryState)
	require.NoError(t, err)
	require.NoError(t, value.Get(&state))
	return state
}

func verbsOf(history []audit.Entry) (verbs []string) {
	for _, e := range history {
		verbs = append(verbs, string(e.Verb))
	}
	return verbs
}

const pauses, resumes = "pause", "resume"

var liveTypes = map[string]liveType{
	"plan": {
		stage: func(t *testing.T) (*testsuite.TestWorkflowEnvironment, func() int) {
			s := newStage(t)
			s.slow(time.Minute)
			return s.TestWorkflowEnvironment, func() int { return len(s.upserts) }
		},
		name: TypeDeployPlan, input: planOf(2, 1), next: nextInput[DeployPlanInput],
		look: func(t *testing.T, env *testsuite.TestWorkflowEnvironment) (string, []string) {
			task := queried[plan.Task](t, env)
			if task.State == plan.TaskSucceeded {
				require.NotNil(t, task.StartedAt)
				require.Equal(t, plan.ItemSucceeded, task.Services[0].State, "the result of the first run is kept")
			}
			return string(task.State), verbsOf(task.History)
		},
		held: string(plan.TaskPaused), stopped: string(plan.TaskStopped), ended: string(plan.TaskSucceeded),
		goesOn: []string{resumes},
	},
	"rollout": {
		stage: func(t *testing.T) (*testsuite.TestWorkflowEnvironment, func() int) {
			p := newParty(t, 10)
			return p.TestWorkflowEnvironment, func() int { return p.upserts }
		},
		name: TypeRollout, next: nextInput[RolloutInput],
		input: rolloutOf(strategy.StylePartition, false, stepOf("20%", -1, 4*3600), stepOf("100%", -1, 0)),
		look: func(t *testing.T, env *testsuite.TestWorkflowEnvironment) (string, []string) {
			s := queried[rollout.Status](t, env)
			state := string(s.Phase)
			if s.WaitingFor != nil {
				state = string(s.WaitingFor.Kind)
			}
			return state, verbsOf(s.History)[1:] // the first entry is the start
		},
		held: string(rollout.WaitResume), stopped: string(rollout.PhaseRolledBack), ended: string(rollout.PhaseHealthy),
		goesOn: []string{resumes, "approve"},
	},
	"serving": {
		stage: func(t *testing.T) (*testsuite.TestWorkflowEnvironment, func() int) {
			p := updated(t)
			return p.TestWorkflowEnvironment, func() int { return len(p.upserts) }
		},
		name: TypeServing, input: asking(), next: nextInput[serving.Input],
		look: func(t *testing.T, env *testsuite.TestWorkflowEnvironment) (state string, verbs []string) {
			s := queried[ServingState](t, env)
			switch {
			case s.Ending != nil:
				state = string(s.Ending.State)
			case s.WaitingFor != nil:
				state = s.WaitingFor.Kind
			}
			for _, e := range s.History {
				verbs = append(verbs, e.Verb)
			}
			return state, verbs
		},
		held: serving.WaitResume, stopped: string(serving.StateRolledBack), ended: string(serving.StateSucceeded),
		goesOn: []string{resumes, "approve"},
	},
}

func (l liveType) state(t *testing.T, env *testsuite.TestWorkflowEnvironment) string {
	state, _ := l.look(t, env)
	return state
}

// runOn executes a workflow through all runs of continue-as-new and returns the last one and their count. prepare gets
// the number of the starting run, from 1.
func (l liveType) runOn(t *testing.T, prepare func(env *testsuite.TestWorkflowEnvironment, run int,
	upserts func() int)) (last *testsuite.TestWorkflowEnvironment, runs int) {
	in := l.input
	for runs = 1; runs < 10; runs++ {
		env, upserts := l.stage(t)
		if runs > 1 {
			env.SetContinuedExecutionRunID("before")
		}
		prepare(env, runs, upserts)
		env.ExecuteWorkflow(l.name, in)
		var again *workflow.ContinueAsNewError
		if err := env.GetWorkflowError(); err == nil {
			return env, runs
		} else {
			require.ErrorAs(t, err, &again)
		}
		in = l.next(t, again)
	}
	t.Fatal("it continues forever")
	return nil, 0
}

// A Cancel means stop, also if it arrives in the same workflow task as the cause of a continue-as-new.
func TestCancelStops_WhenArrivingWithContinueAsNew(t *testing.T) {
	t.Parallel()
	for name, l := range liveTypes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env, _ := l.runOn(t, func(env *testsuite.TestWorkflowEnvironment, run int, _ func() int) {
				env.SetWorkerOptions(
					worker.Options{Interceptors: []interceptor.WorkerInterceptor{&cancelling{signal: "nothing"},
						NewInterceptor()}})
				if run > 1 {
					// if the Cancel was lost, the workflow ends with another state
					env.RegisterDelayedCallback(func() { env.SignalWorkflow(resumes, nil) }, 48*time.Hour)
					return
				}
				env.RegisterDelayedCallback(func() { env.SignalWorkflow(pauses, nil) }, 10*time.Second)
				env.RegisterDelayedCallback(func() {
					require.Equal(t, l.held, l.state(t, env))
					env.SetContinueAsNewSuggested(true)
					env.SignalWorkflow("nothing", nil)
				}, time.Hour)
			})
			require.Equal(t, l.stopped, l.state(t, env))
		})
	}
}

// An idempotency key is valid for the whole life of a release, across continue-as-new.
func TestIdempotencyKeyIsKept_AfterContinueAsNew(t *testing.T) {
	t.Parallel()
	for name, l := range liveTypes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var answers, others []VerbResponse
			keyed := func(env *testsuite.TestWorkflowEnvironment, times int, reason string, answers *[]VerbResponse) {
				for i := range times {
					env.UpdateWorkflow(pauses, fmt.Sprint(reason, len(*answers), "-", i), &testsuite.TestUpdateCallback{
						OnAccept: func() {},
						OnReject: func(err error) { require.NoError(t, err) },
						OnComplete: func(response any, err error) {
							require.NoError(t, err)
							*answers = append(*answers, response.(VerbResponse))
						},
					}, VerbRequest{Actor: "ann", Reason: reason, Key: "same", Via: "cli"})
				}
			}
			env, runs := l.runOn(t, func(env *testsuite.TestWorkflowEnvironment, run int, upserts func() int) {
				if run == 1 {
					env.RegisterDelayedCallback(func() { keyed(env, 49, "lunch", &answers) }, 10*time.Second)
					env.RegisterDelayedCallback(func() {
						env.SetContinueAsNewSuggested(true)
						keyed(env, 1, "lunch", &answers)
					}, 30*time.Second)
					return
				}
				env.RegisterDelayedCallback(func() {
					require.Equal(t, l.held, l.state(t, env), "the state is unchanged")
					require.Zero(t, upserts(), "the search attributes are inherited")
					keyed(env, 50, "lunch", &answers)
					keyed(env, 1, "dinner", &others)
				}, time.Hour)
				for i, verb := range l.goesOn {
					env.RegisterDelayedCallback(func() {
						env.SignalWorkflow(verb, VerbRequest{Actor: "ann", Key: verb})
					}, time.Duration(i+2)*time.Hour)
				}
			})
			require.Equal(t, 2, runs, "a long history continues as new once nothing runs")
			state, verbs := l.look(t, env)
			require.Equal(t, l.ended, state)
			require.Len(t, answers, 100)
			for _, answer := range answers {
				require.Equal(t, audit.Accepted, answer.Outcome)
				require.Equal(t, answers[0].Message, answer.Message, "a repeated request gets the first answer")
			}
			require.Len(t, others, 1)
			require.Equal(t, audit.Refused, others[0].Outcome, "the same key with another body is not a repeat")
			require.Equal(t, append([]string{pauses, pauses}, l.goesOn...), verbs,
				"one pause, one refusal, and the verbs that continue it")
		})
	}
}

// An Update sent directly to Temporal is read as strictly as a signal and as over HTTP: a misspelt step must not mean
// "the step that waits now".
func TestUpdatesWithUnknownKeysAreRejected(t *testing.T) {
	t.Parallel()
	for name, l := range liveTypes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env, _ := l.stage(t)
			rejected := map[string]string{}
			answers := map[string]VerbResponse{}
			send := func(reason, verb string, payload ...any) {
				env.UpdateWorkflow(verb, reason, &testsuite.TestUpdateCallback{
					OnAccept:   func() {},
					OnReject:   func(err error) { rejected[reason] = err.Error() },
					OnComplete: func(answer any, _ error) { answers[reason] = answer.(VerbResponse) },
				}, payload...)
			}
			env.RegisterDelayedCallback(func() {
				send("misspelt", pauses, map[string]any{"reasn": "lunch"})
				send("too long", pauses, map[string]any{"via": "a front door whose name is longer than any"})
			}, 10*time.Second)
			env.RegisterDelayedCallback(func() { send("empty", pauses) }, 20*time.Second)
			env.RegisterDelayedCallback(func() {
				send("known", "stop", map[string]any{"actor": "ann"})
			}, 30*time.Second)
			env.ExecuteWorkflow(l.name, l.input)
			require.NoError(t, env.GetWorkflowError())
			require.Contains(t, rejected["misspelt"], `unknown field "reasn"`)
			require.Contains(t, rejected["too long"], "at most 32 are kept")
			require.Len(t, rejected, 2)
			require.Len(t, answers, 2, "the empty and the valid Updates are answered")
			require.Equal(t, l.stopped, l.state(t, env))
		})
	}
}
