package workflows

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/machine"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/serving"
)

// measuring records the release metrics by name and by our own labels.
type measuring struct {
	tags map[string]string
	kept *measured
}

type measured struct {
	mu    sync.Mutex
	count map[string]int64
	time  map[string]time.Duration
}

func newMeasuring() measuring {
	return measuring{kept: &measured{count: map[string]int64{}, time: map[string]time.Duration{}}}
}

func (m measuring) WithTags(tags map[string]string) client.MetricsHandler {
	merged := maps.Clone(m.tags)
	if merged == nil {
		merged = map[string]string{}
	}
	maps.Copy(merged, tags)
	return measuring{tags: merged, kept: m.kept}
}

func (m measuring) key(name string) string {
	labels := []string{name}
	for _, label := range slices.Sorted(maps.Keys(m.tags)) {
		if slices.Contains([]string{labelKind, labelSpent, labelWaitingFor, labelOutcome, labelState}, label) {
			labels = append(labels, label+"="+m.tags[label])
		}
	}
	return strings.Join(labels, " ")
}

func (m measuring) Counter(name string) client.MetricsCounter {
	return counting(func(n int64) {
		m.kept.mu.Lock()
		defer m.kept.mu.Unlock()
		m.kept.count[m.key(name)] += n
	})
}

func (m measuring) Timer(name string) client.MetricsTimer {
	return timing(func(d time.Duration) {
		m.kept.mu.Lock()
		defer m.kept.mu.Unlock()
		m.kept.time[m.key(name)] += d
	})
}

func (m measuring) Gauge(string) client.MetricsGauge { return client.MetricsNopHandler.Gauge("") }

type counting func(int64)

func (f counting) Inc(n int64) { f(n) }

type timing func(time.Duration)

func (f timing) Record(d time.Duration) { f(d) }

func (m *measured) spent(on string) time.Duration {
	return m.time[fmt.Sprintf("%s kind=rollout spent=%s", MetricTime, on)]
}

// A rollout has machine time, waits hours for a user and pauses as planned: the three times add up to its age.
func TestRolloutTimesAddUpToItsAge(t *testing.T) {
	t.Parallel()
	m := newMeasuring()
	var suite testsuite.WorkflowTestSuite
	suite.SetMetricsHandler(m)
	p := newPartyOf(t, 10, &suite)
	p.OnActivity(machine.ActivityLeg, mock.Anything, mock.Anything).After(10 * time.Minute).Return(p.leg)
	p.send(time.Minute, rollout.VerbRetry, RolloutVerbRequest{}) // refused: nothing has failed
	p.send(5*time.Hour, rollout.VerbApprove, RolloutVerbRequest{})
	in := rolloutOf(strategy.StylePartition, true, stepOf("20%", 20, -1), stepOf("50%", 50, 7200),
		stepOf("100%", 100, 0))
	s := p.run(in)
	require.Equal(t, rollout.PhaseHealthy, s.Phase)
	age := p.Now().Sub(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC))
	require.Equal(t, age, m.kept.spent("machine")+m.kept.spent("human")+m.kept.spent("planned"), "%v", m.kept.time)
	require.Equal(t, 2*time.Hour, m.kept.spent("planned"))
	require.Equal(t, 5*time.Hour-10*time.Minute, m.kept.spent("human"),
		"from the end of the first step to the approval")
	require.GreaterOrEqual(t, m.kept.spent("machine"), 30*time.Minute, "for each of three steps")
	require.Equal(t, map[string]int64{
		MetricWaits + " kind=rollout waiting_for=approval": 1,
		MetricWaits + " kind=rollout waiting_for=timer":    1,
		MetricCommands + " kind=rollout outcome=refused":   1,
		MetricCommands + " kind=rollout outcome=accepted":  1,
		MetricFinished + " kind=rollout state=Healthy":     1,
	}, onlyOurs(m.kept.count))
}

func onlyOurs(all map[string]int64) map[string]int64 {
	kept := maps.Clone(all)
	maps.DeleteFunc(kept, func(key string, _ int64) bool { return !strings.HasPrefix(key, "slipway_") })
	return kept
}

// A run that continues another one measures its own part, and counts no wait twice.
func TestRolloutTimesAreKept_AfterContinueAsNew(t *testing.T) {
	t.Parallel()
	m := newMeasuring()
	var suite testsuite.WorkflowTestSuite
	suite.SetMetricsHandler(m)
	p := newPartyOf(t, 10, &suite)
	in := rolloutOf(strategy.StylePartition, true, stepOf("20%", 20, 7200), stepOf("100%", 100, 0))
	p.at(time.Hour, func() {
		p.SetContinueAsNewSuggested(true)
		p.SignalWorkflow(string(rollout.VerbRetry), nil)
	})
	p.ExecuteWorkflow(TypeRollout, in)
	require.Equal(t, p.Now().Sub(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)),
		m.kept.spent("machine")+m.kept.spent("planned"), "up to the start of the next run")
	require.NotContains(t, m.kept.count, MetricFinished+" kind=rollout state=Progressing", "it has not ended")
	require.EqualValues(t, 1, m.kept.count[MetricWaits+" kind=rollout waiting_for=timer"])

	var again *workflow.ContinueAsNewError
	require.ErrorAs(t, p.GetWorkflowError(), &again)
	var next RolloutInput
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(again.Input, &next))
	after := newPartyOf(t, 10, &suite)
	after.updated, after.share = p.updated, p.share
	after.SetStartTime(p.Now())
	require.Equal(t, rollout.PhaseHealthy, after.run(next).Phase)
	require.EqualValues(t, 1, m.kept.count[MetricWaits+" kind=rollout waiting_for=timer"],
		"a continued wait is not counted again")
	require.Equal(t, 2*time.Hour, m.kept.spent("planned"), "its time keeps its category")
}

// Each restoration of a route that another client changed is counted, also in the next run.
func TestRestorationsOfARolloutAreCounted(t *testing.T) {
	t.Parallel()
	m := newMeasuring()
	var suite testsuite.WorkflowTestSuite
	suite.SetMetricsHandler(m)
	p := newPartyOf(t, 10, &suite)
	theirs := rollout.Observed{What: rollout.ObservedRoutes, By: "helm",
		Message: "another client changed HTTPRoute shop/order"}
	p.at(time.Hour, func() { p.SignalWorkflow(rollout.SignalObserved, theirs) })
	p.at(3*time.Hour, func() {
		p.SetContinueAsNewSuggested(true)
		p.SignalWorkflow(string(rollout.VerbRetry), nil)
	})
	p.ExecuteWorkflow(TypeRollout, rolloutOf(strategy.StylePartition, true, stepOf("20%", 20, -1),
		stepOf("100%", 100, 0)))
	require.EqualValues(t, 2, m.kept.count[MetricRestorations+" kind=rollout"], "the Service and the route")

	var again *workflow.ContinueAsNewError
	require.ErrorAs(t, p.GetWorkflowError(), &again)
	var next RolloutInput
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(again.Input, &next))
	after := newPartyOf(t, 10, &suite)
	after.updated, after.share = p.updated, p.share
	after.SetStartTime(p.Now())
	after.at(time.Hour, func() { after.SignalWorkflow(rollout.SignalObserved, theirs) })
	after.send(2*time.Hour, rollout.VerbApprove, RolloutVerbRequest{})
	require.Equal(t, rollout.PhaseHealthy, after.run(next).Phase)
	require.EqualValues(t, 4, m.kept.count[MetricRestorations+" kind=rollout"],
		"those of the previous run are not counted again")
}

func TestRestorationsOfAServingAreCounted(t *testing.T) {
	t.Parallel()
	m := newMeasuring()
	var suite testsuite.WorkflowTestSuite
	suite.SetMetricsHandler(m)
	for _, kind := range []string{serving.KindRecreate, serving.KindUpdate} {
		p := newPartiesOf(t, &suite)
		p.runs = map[string]string{"alice": "old", "bob": "old"}
		p.run(servingOf(kind))
	}
	require.EqualValues(t, 1, m.kept.count[MetricRestorations+" kind=serving"], "an update restores nothing")
}

// Every series is exported from the start: otherwise the first event would not be visible.
func TestMetricSeriesHaveAllValues(t *testing.T) {
	t.Parallel()
	series := MetricSeries()
	require.Len(t, series[MetricRestorations], 3)
	require.Len(t, series[MetricCommands], 6)
	require.Len(t, series[MetricTime], 9)
	for _, waitingFor := range []string{WaitingForResume, plan.WaitWindow, serving.WaitApproval, serving.WaitResume,
		string(rollout.WaitDrift)} {
		require.Contains(t, series[MetricWaits], map[string]string{labelKind: KindTask, labelWaitingFor: waitingFor})
	}
	for kind, states := range map[string][]string{KindTask: {"Succeeded", "Failed", "Stopped"},
		KindRollout: {"Healthy", "RolledBack", "Cancelled", "Failed"},
		KindServing: {"Succeeded", "RolledBack", "Failed", "Superseded"}} {
		for _, state := range states {
			require.Contains(t, series[MetricFinished], map[string]string{labelKind: kind, labelState: state})
		}
	}
}
