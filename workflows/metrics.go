package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/waits"
)

// The metrics of releases. The SDK counts nothing when a history is replayed, so that they hold however often workers restart.
const (
	// MetricTime is a timer: how long a release was on its way, or waited, without a break. With the label spent (waits.Times); its sums are the ages of releases.
	MetricTime = "slipway_release_time"
	// MetricWaits counts the waits that began. With the label waiting_for (SlipwayWaitingFor).
	MetricWaits = "slipway_release_waits_total"
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

// count counts one more.
func (m *meter) count(metric, label, value string) {
	workflow.GetMetricsHandler(m.ctx).WithTags(map[string]string{labelKind: m.kind, label: value}).Counter(metric).Inc(1)
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
