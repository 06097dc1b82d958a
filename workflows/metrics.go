package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/waits"
)

// The metrics of releases. The SDK counts nothing when a history is replayed, so that they hold however often workers restart.
const (
	// MetricTime is a timer: how long a release was on its way, or waited, without a break. With the label spent (waits.Times); its sums are the ages of releases.
	MetricTime = "slipway_release_time"
	// MetricWaits counts the waits that began. With the label waiting_for (SlipwayWaitingFor).
	MetricWaits = "slipway_release_waits_total"
	// MetricRestorations counts the changes of others that a release has undone: in a rollout what it had borrowed, in a serving its objects.
	MetricRestorations = "slipway_release_restorations_total"
	// MetricCommands counts what people sent. With the label outcome (audit.Outcome).
	MetricCommands = "slipway_release_commands_total"
	// MetricFinished counts the releases that are over. With the label state.
	MetricFinished = "slipway_releases_finished_total"
)

// The labels. Each metric has the first.
const (
	labelKind       = "kind"
	labelSpent      = "spent"
	labelWaitingFor = "waiting_for"
	labelOutcome    = "outcome"
	labelState      = "state"
)

// MetricSeries are the values of each label of each metric of releases. A worker shows them all from its start: what is counted for the first time is then a step
// from 0 to 1 to Prometheus. A series that begins with 1 is no increase.
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
		series[MetricRestorations] = append(series[MetricRestorations], map[string]string{labelKind: kind})
	}
	return series
}

// endStates are the states in which releases end, by kind.
var endStates = map[string][]string{
	KindTask:    texts([]plan.TaskState{plan.TaskSucceeded, plan.TaskFailed, plan.TaskStopped}),
	KindRollout: texts([]rollout.Phase{rollout.PhaseHealthy, rollout.PhaseRolledBack, rollout.PhaseCancelled, rollout.PhaseFailed}),
	KindServing: texts([]serving.ReleaseState{serving.StateSucceeded, serving.StateRolledBack, serving.StateFailed, serving.StateSuperseded}),
}

func texts[S ~string](values []S) []string {
	out := make([]string, len(values))
	for i, value := range values {
		out[i] = string(value)
	}
	return out
}

// kindOfType is the kind of release of a type of workflow.
var kindOfType = map[string]string{TypeDeployPlan: KindTask, TypeRollout: KindRollout, TypeServing: KindServing}

// meter measures one run of a release.
type meter struct {
	ctx  workflow.Context
	kind string
	// spent is on whom time is spent since then.
	spent waits.Time
	since time.Time
	// waits is what the release waits for.
	waits string
}

func newMeter(ctx workflow.Context, info *workflow.Info) meter {
	return meter{ctx: ctx, kind: kindOfType[info.WorkflowType.Name], spent: waits.Machine, since: info.WorkflowStartTime}
}

// count counts one more, of a value of one label.
func (m *meter) count(metric, label, value string) {
	workflow.GetMetricsHandler(m.ctx).WithTags(map[string]string{labelKind: m.kind, label: value}).Counter(metric).Inc(1)
}

// restored counts changes of others that were undone.
func (m *meter) restored(n int) {
	if n > 0 {
		workflow.GetMetricsHandler(m.ctx).WithTags(map[string]string{labelKind: m.kind}).Counter(MetricRestorations).Inc(int64(n))
	}
}

// resume goes on with what the run of before waited for, which is not counted anew.
func (m *meter) resume(waitingFor string) { m.waits, m.spent = waitingFor, waits.Of(waitingFor) }

// turn has time be spent as what is waited for from now on says.
func (m *meter) turn(waitingFor string) {
	if waitingFor != "" && waitingFor != m.waits {
		m.count(MetricWaits, labelWaitingFor, waitingFor)
	}
	m.waits = waitingFor
	if next := waits.Of(waitingFor); next != m.spent {
		m.pass()
		m.spent = next
	}
}

// pass measures the time since it was measured last.
func (m *meter) pass() {
	now := workflow.Now(m.ctx)
	if passed := now.Sub(m.since); passed > 0 {
		workflow.GetMetricsHandler(m.ctx).WithTags(map[string]string{labelKind: m.kind, labelSpent: string(m.spent)}).Timer(MetricTime).Record(passed)
	}
	m.since = now
}

// commanded counts a command that was answered.
func (m *meter) commanded(outcome audit.Outcome) {
	m.count(MetricCommands, labelOutcome, string(outcome))
}

// finished counts the release.
func (m *meter) finished(state string) { m.count(MetricFinished, labelState, state) }
