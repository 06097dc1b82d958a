package workflows

import (
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/waits"
	"slipway.io/slipway/release/workload"
)

// The metrics of releases. The SDK emits nothing while a history is replayed, so the numbers stay correct when workers
// restart.
const (
	// MetricTime is a timer: how long a release was in progress, or waited, without interruption. Label spent
	// (waits.Times). The sums are the ages of releases.
	MetricTime = "slipway_release_time"
	// MetricWaits counts the waits that began. Label waiting_for (SlipwayWaitingFor).
	MetricWaits = "slipway_release_waits_total"
	// MetricRestorations counts changes by other clients that a release reverted: in a rollout to what it had borrowed,
	// in a serving to its objects.
	MetricRestorations = "slipway_release_restorations_total"
	// MetricCommands counts the commands that users sent. Label outcome (audit.Outcome).
	MetricCommands = "slipway_release_commands_total"
	// MetricFinished counts the releases that have ended. Label state.
	MetricFinished = "slipway_releases_finished_total"
)

// The labels. Every metric has labelKind.
const (
	labelKind       = "kind"
	labelSpent      = "spent"
	labelWaitingFor = "waiting_for"
	labelOutcome    = "outcome"
	labelState      = "state"
)

// MetricSeries returns all label values of each release metric. A worker exports them all from its start, so that the
// first count is a step from 0 to 1. Prometheus sees no increase in a series that begins with 1.
func MetricSeries() map[string][]map[string]string {
	series := map[string][]map[string]string{}
	for kind, states := range endStates {
		add := func(metric, label string, values ...string) {
			for _, value := range values {
				series[metric] = append(series[metric], map[string]string{labelKind: kind, label: value})
			}
		}
		add(MetricTime, labelSpent, texts(waits.Times)...)
		add(MetricWaits, labelWaitingFor, texts(rollout.WaitKinds)...) // those of tasks and servings are among them
		add(MetricCommands, labelOutcome, string(audit.Accepted), string(audit.Refused))
		add(MetricFinished, labelState, states...)
		add(workload.MetricBlocked, workload.LabelCause, texts(workload.Causes)...)
		series[MetricRestorations] = append(series[MetricRestorations], map[string]string{labelKind: kind})
	}
	return series
}

// endStates are the final states of releases, by kind.
var endStates = map[string][]string{
	KindTask: texts([]plan.TaskState{plan.TaskSucceeded, plan.TaskFailed, plan.TaskStopped}),
	KindRollout: texts([]rollout.Phase{rollout.PhaseHealthy, rollout.PhaseRolledBack, rollout.PhaseCancelled,
		rollout.PhaseFailed}),
	KindServing: texts([]serving.ReleaseState{serving.StateSucceeded, serving.StateRolledBack, serving.StateFailed,
		serving.StateSuperseded}),
}

func texts[S ~string](values []S) []string {
	out := make([]string, len(values))
	for i, value := range values {
		out[i] = string(value)
	}
	return out
}

// kindOfType is the kind of release of a workflow type.
var kindOfType = map[string]string{TypeDeployPlan: KindTask, TypeRollout: KindRollout, TypeServing: KindServing}

// meter measures one run of a release.
type meter struct {
	ctx  workflow.Context
	kind string
	// spent is the category of the time that has passed since `since`.
	spent waits.Time
	since time.Time
	// waits is the awaited condition.
	waits string
}

func newMeter(ctx workflow.Context, info *workflow.Info) meter {
	return meter{ctx: ctx, kind: kindOfType[info.WorkflowType.Name], spent: waits.Machine,
		since: info.WorkflowStartTime}
}

// with returns the handler of metrics with one label besides the kind.
func (m *meter) with(label, value string) client.MetricsHandler {
	return workflow.GetMetricsHandler(m.ctx).WithTags(map[string]string{labelKind: m.kind, label: value})
}

func (m *meter) count(metric, label, value string) { m.with(label, value).Counter(metric).Inc(1) }

// restored counts reverted changes by other clients.
func (m *meter) restored(n int) {
	if n > 0 {
		m.with(labelKind, m.kind).Counter(MetricRestorations).Inc(int64(n))
	}
}

// resume continues with the wait of the previous run, which is not counted again.
func (m *meter) resume(waitingFor string) { m.waits, m.spent = waitingFor, waits.Of(waitingFor) }

// setWaiting records the awaited condition; from now on, time is counted under its category.
func (m *meter) setWaiting(waitingFor string) {
	if waitingFor != "" && waitingFor != m.waits {
		m.count(MetricWaits, labelWaitingFor, waitingFor)
	}
	m.waits = waitingFor
	if next := waits.Of(waitingFor); next != m.spent {
		m.recordElapsed()
		m.spent = next
	}
}

// recordElapsed records the time since the last call.
func (m *meter) recordElapsed() {
	now := workflow.Now(m.ctx)
	if passed := now.Sub(m.since); passed > 0 {
		m.with(labelSpent, string(m.spent)).Timer(MetricTime).Record(passed)
	}
	m.since = now
}

// commanded counts an answered command.
func (m *meter) commanded(outcome audit.Outcome) {
	m.count(MetricCommands, labelOutcome, string(outcome))
}

// finished counts the ended release.
func (m *meter) finished(state string) { m.count(MetricFinished, labelState, state) }
