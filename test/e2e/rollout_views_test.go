package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/machine"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/workflows"
)

// Workers are killed at random moments, and sometimes none runs for some seconds, while a rollout is read all the time
// by GET, list and event stream. Each view is one moment: the release has been in exactly the shown state, with this
// step, this phase and this gate together, as a replay of its history shows.
func TestLongRolloutViews_AreOneMoment_WhenWorkersKilled(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	testViewsUnderKills(t, 12)
}

func TestSoakRolloutViews_AreOneMoment_WhenWorkersKilled(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	testViewsUnderKills(t, 200)
}

func testViewsUnderKills(t *testing.T, kills int) {
	t.Helper()
	random := harness.Random(t)
	// a leg is taken up again soon after its worker has died
	options := harness.Options{SeparateWorker: true, Binary: "slipway-failpoints",
		Env: []string{"SLIPWAY_HEARTBEAT_TIMEOUT=2s"}}
	e := harness.Start(t, options)
	w := &viewedEngine{Engine: e, options: options, random: random, worker: e.Processes[1]}
	for round := 0; w.kills < kills; round++ {
		t.Run(fmt.Sprint(round+1), func(t *testing.T) { w.release(t) })
	}
	harness.Covered(t, w.kills, "kills of a worker while a rollout is read")
	harness.Covered(t, w.views, "views held against the history")
	harness.Covered(t, w.dark, "of them while no worker answered")
}

// viewedEngine is an engine whose worker is killed and started again.
type viewedEngine struct {
	*harness.Engine
	options            harness.Options
	random             *rand.Rand
	worker             *harness.Process
	kills, views, dark int
}

// view is what all views have in common. In a row of a list, Index and State are absent.
type view struct {
	Index int
	State rollout.StepState
	Phase rollout.Phase
	Kind  rollout.WaitKind
	Gate  string
}

func momentOf(s rollout.Status) view {
	return rowOf(s.Phase, s.WaitingFor).at(s)
}

func rowOf(phase rollout.Phase, waiting *rollout.WaitingFor) view {
	v := view{Phase: phase}
	if waiting != nil {
		v.Kind, v.Gate = waiting.Kind, waiting.Gate
	}
	return v
}

func (v view) at(s rollout.Status) view {
	v.Index, v.State = s.CurrentStepIndex, s.CurrentStepState
	return v
}

// row is the view without what a list does not show.
func (v view) row() view { return view{Phase: v.Phase, Kind: v.Kind, Gate: v.Gate} }

// sightings are the views of one rollout.
type sightings struct {
	mu    sync.Mutex
	whole []rollout.Status
	rows  []view
}

func (s *sightings) add(status rollout.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.whole = append(s.whole, status)
}

// keepReading reads the rollout and the list until the context ends. A server whose worker is dead answers late, or
// that it is unavailable.
func (s *sightings) keepReading(ctx context.Context, e *harness.Engine, name string) {
	for ctx.Err() == nil {
		var status rollout.Status
		if read(e, "/api/v1/rollouts/"+e.Apps+"/"+name, &status) {
			s.add(status)
		}
		var list struct {
			Items []struct {
				Phase      rollout.Phase       `json:"phase"`
				WaitingFor *rollout.WaitingFor `json:"waitingFor"`
			} `json:"items"`
		}
		if read(e, "/api/v1/rollouts?namespace="+e.Apps, &list) && len(list.Items) == 1 {
			s.mu.Lock()
			s.rows = append(s.rows, rowOf(list.Items[0].Phase, list.Items[0].WaitingFor))
			s.mu.Unlock()
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func read(e *harness.Engine, path string, into any) bool {
	a, err := e.TryCall(http.MethodGet, path, "")
	return err == nil && a.Status == http.StatusOK && json.Unmarshal(a.Body, into) == nil
}

// release runs one rollout under kills: two steps wait for a person, one pauses within a leg, one longer.
func (w *viewedEngine) release(t *testing.T) {
	e := w.ForTest(t)
	const name = "order"
	e.Deployment(name, 4, nil)
	e.WaitReadyPods(name, 4)
	e.StartRollout(harness.Rollout{Kind: harness.Deployment, Name: name, Strategy: strategy.Strategy{
		Style: strategy.StylePartition, Steps: []strategy.Step{harness.Step("25%", -1),
			harness.TimedStep(harness.Step("50%", -1), 2*time.Second), harness.Step("75%", -1),
			harness.TimedStep(harness.Step("100%", -1), 16*time.Second)}}})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var others sync.WaitGroup
	seen := &sightings{}
	others.Go(func() { seen.keepReading(ctx, e, name) })
	others.Go(func() { w.keepKilling(ctx) })
	for _, step := range []int{1, 3, 0} {
		at := e.WaitRollout(name, fmt.Sprint("the wait of step ", step), func(s rollout.Status) bool {
			seen.add(s)
			return s.Phase != rollout.PhaseProgressing || s.CurrentStepIndex == step && s.WaitingFor != nil &&
				s.WaitingFor.Kind == rollout.WaitApproval
		})
		if step > 0 {
			require.Equal(t, rollout.PhaseProgressing, at.Phase, at.Reason)
			e.Approve(name, at)
		}
	}
	e.WaitPhase(name, rollout.PhaseHealthy)
	stop()
	others.Wait()
	w.requireMoments(t, e, name, seen)
}

// keepKilling kills the worker at random moments. Each third time none runs for longer than a query waits.
func (w *viewedEngine) keepKilling(ctx context.Context) {
	pause := func(least, most time.Duration) {
		select {
		case <-time.After(least + time.Duration(w.random.Int64N(int64(most-least)))):
		case <-ctx.Done():
		}
	}
	for {
		if pause(300*time.Millisecond, 8*time.Second); ctx.Err() != nil {
			return
		}
		w.worker.Kill()
		if w.kills++; w.kills%3 == 0 {
			pause(4*time.Second, 7*time.Second)
		}
		w.worker = w.Worker(w.options)
	}
}

// requireMoments requires that the rollout was in the state of each view.
func (w *viewedEngine) requireMoments(t *testing.T, e *harness.Engine, name string, seen *sightings) {
	t.Helper()
	was := momentsOf(t, e.History(e.RolloutID(name)))
	rows := map[view]bool{{Phase: rollout.PhaseProgressing}: true} // the short waits are in no list
	for moment := range was {
		rows[moment.row()] = true
	}
	w.views += len(seen.whole) + len(seen.rows)
	for _, status := range seen.whole {
		moment := momentOf(status)
		if moment.State == rollout.StateUnknown {
			w.dark++
			require.Zero(t, moment.Index, "an unknown step has no number")
			require.Empty(t, moment.Gate, "nor a gate")
			continue
		}
		if strings.Contains(status.Reason, "does not answer") {
			w.dark++
		}
		require.True(t, was[moment], "the rollout was never in this state: %+v, %s\nof %+v", moment, status.Reason, was)
	}
	for _, row := range seen.rows {
		require.True(t, rows[row], "the rollout was never in this state: %+v of %+v", row, rows)
	}
}

// momentsOf returns all states of a rollout: those of its workflow when it waits, by a replay of its history, and those
// of its legs before each of their actions.
func momentsOf(t *testing.T, events []*historypb.HistoryEvent) map[view]bool {
	t.Helper()
	replayed := &momentRecorder{seen: map[view]bool{}}
	replayer, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{
		Interceptors: []interceptor.WorkerInterceptor{workflows.NewInterceptor(), replayed}})
	require.NoError(t, err)
	replayer.RegisterWorkflowWithOptions(workflows.Rollout, workflow.RegisterOptions{Name: workflows.TypeRollout})
	began := events[0].GetWorkflowExecutionStartedEventAttributes()
	require.NoError(t, replayer.ReplayWorkflowHistoryWithOptions(nil, &historypb.History{Events: events},
		worker.ReplayWorkflowHistoryOptions{OriginalExecution: workflow.Execution{ID: began.GetWorkflowId(),
			RunID: began.GetOriginalExecutionRunId()}}))
	require.NotEmpty(t, replayed.seen)
	scheduled := map[int64]machine.LegRequest{}
	for _, event := range events {
		if a := event.GetActivityTaskScheduledEventAttributes(); a.GetActivityType().GetName() == machine.ActivityLeg {
			var request machine.LegRequest
			require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(a.GetInput(), &request))
			scheduled[event.GetEventId()] = request
		}
		if a := event.GetActivityTaskCompletedEventAttributes(); a != nil {
			if request, is := scheduled[a.GetScheduledEventId()]; is {
				var result machine.LegResult
				require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(a.GetResult(), &result))
				addLeg(replayed.seen, request, result.Parts)
			}
		}
	}
	return replayed.seen
}

// addLeg adds the states of a leg: at each of its actions, and while it waits before one.
func addLeg(seen map[view]bool, request machine.LegRequest, parts []machine.Part) {
	for done := range len(parts) + 1 {
		var moments []time.Time
		if done > 0 {
			moments = append(moments, parts[done-1].At)
		}
		if done < len(parts) {
			moments = append(moments, parts[done].From)
		}
		for _, at := range moments {
			l := machine.NewLeg(request, parts[:done])
			l.Next(at)
			seen[momentOf(*l.Status())] = true
		}
	}
}

// momentRecorder records the state of a rollout's workflow whenever it waits: then it can be queried.
type momentRecorder struct {
	interceptor.WorkerInterceptorBase
	seen map[view]bool
}

func (m *momentRecorder) InterceptWorkflow(_ workflow.Context,
	next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	in := &recordedInbound{recorder: m}
	in.Next = next
	return in
}

type recordedInbound struct {
	interceptor.WorkflowInboundInterceptorBase
	recorder *momentRecorder
}

func (i *recordedInbound) Init(outbound interceptor.WorkflowOutboundInterceptor) error {
	out := &recordedOutbound{recorder: i.recorder}
	out.Next = outbound
	return i.Next.Init(out)
}

type recordedOutbound struct {
	interceptor.WorkflowOutboundInterceptorBase
	recorder *momentRecorder
	state    func() (workflows.RolloutState, error)
}

func (o *recordedOutbound) SetQueryHandlerWithOptions(ctx workflow.Context, name string, handler any,
	options workflow.QueryHandlerOptions) error {
	if state, is := handler.(func() (workflows.RolloutState, error)); is {
		o.state = state
	}
	return o.Next.SetQueryHandlerWithOptions(ctx, name, handler, options)
}

func (o *recordedOutbound) Await(ctx workflow.Context, condition func() bool) error {
	if o.state != nil {
		if s, err := o.state(); err == nil {
			o.recorder.seen[momentOf(s.Status)] = true
		}
	}
	return o.Next.Await(ctx, condition)
}
