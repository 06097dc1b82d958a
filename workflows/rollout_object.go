package workflows

import (
	"reflect"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/backoff"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/machine"
)

// minShown is the minimum time for which the Rollout object shows the answer to a command. Clients poll every second
// and repeat an approval until they see a different state than the approved one; they must not mistake the next step's
// pause for it.
const minShown = 2 * time.Second

// minorInterval is the initial time between two writes that only show intermediate progress. It doubles with each such
// write up to minorIntervalMax, until the release waits for a decision again.
const minorInterval, minorIntervalMax = 2 * time.Second, 10 * time.Second

// writeTimeFactor keeps minor writes apart by at least this multiple of the last write's duration: the release
// continues only after a write ends, and a loaded home cluster must not be asked more often than it can answer.
const writeTimeFactor = 5

// publishRetry is the first pause after a failed write of the object, publishRetryMax the longest.
const publishRetry, publishRetryMax = time.Second, 15 * time.Second

// maxEndWrites is how many attempts are made to write the end of a release, about ten minutes. After that the
// controller of the Rollout object finds that the release has ended.
const maxEndWrites = 40

// objectPublisher keeps the Rollout object that requested a release up to date: one write at a time, and only when
// something that the object shows has changed. Without an object it does nothing.
type objectPublisher struct {
	ctx     workflow.Context
	machine *machine.Machine
	object  *rollout.ObjectRef
	// shown is what the object shows, sent what is being written.
	shown, sent *rollout.View
	running     bool
	ended       bool
	result      rollout.PublishResult
	err         error
	// stopped is true when there is nothing more to write: the object is deleted, or its end could not be written.
	// failed counts consecutive failed writes.
	stopped bool
	failed  int
	// wakeTime is when the timer wakes the loop, zero if none runs. timers counts timers, cancelTimer cancels the
	// current one. woken is true when it has fired.
	wakeTime    time.Time
	timers      int
	cancelTimer workflow.CancelFunc
	woken       bool
	// began is when the write began. minorWrites counts consecutive writes of intermediate progress.
	began       time.Time
	minorWrites int
	// notBefore is the earliest time of the next write, notBeforeMinor that of the next minor one.
	notBefore, notBeforeMinor time.Time
	// pending is true if the object carries a command that has not arrived yet: the object is written after the command
	// is answered.
	pending  bool
	answered int64
}

func newObjectPublisher(ctx workflow.Context, m *machine.Machine) *objectPublisher {
	return &objectPublisher{ctx: ctx, machine: m, object: m.Object()}
}

func (p *objectPublisher) mustWake() bool { return p.running && p.ended || p.woken }

// idle reports whether the object is up to date, or cannot be written.
func (p *objectPublisher) idle() bool {
	return p.object == nil || p.stopped || !p.running && !p.needsWrite()
}

// needsWrite reports whether the object is out of date. A superseded release leaves its end to the newer one. The end
// is shown only after the record is written, because clients may read the record as soon as they see it.
func (p *objectPublisher) needsWrite() bool {
	if p.object == nil || p.stopped || p.machine.Completing() || p.machine.Finished() && p.machine.Superseded() {
		return false
	}
	now := p.machine.View().Shown()
	if p.pending && now.AnsweredState <= p.answered && !p.machine.Finished() {
		return false
	}
	return p.shown == nil || !reflect.DeepEqual(*p.shown, now)
}

// publish begins the next write if one is due.
func (p *objectPublisher) publish() {
	if p.running || !p.needsWrite() {
		return
	}
	view := p.machine.View()
	shown := view.Shown()
	if at := p.earliestWrite(shown); at.After(workflow.Now(p.ctx)) {
		p.wakeAt(at)
		return
	}
	// A failed write is retried after a timer, so that the release does not wait for it.
	p.sent, p.running, p.ended, p.began = &shown, true, false, workflow.Now(p.ctx)
	request := rollout.PublishRequest{Object: *p.object, View: view}
	workflow.Go(p.ctx, func(ctx workflow.Context) {
		ctx = workflow.WithLocalActivityOptions(ctx, localOnce)
		p.err = workflow.ExecuteLocalActivity(ctx, rollout.ActivityPublishRollout, request).Get(ctx, &p.result)
		p.ended = true
	})
}

// earliestWrite returns when a state may be written. A state that waits for a decision or answers a command is written
// at once, except while the previous answer has to stay visible.
func (p *objectPublisher) earliestWrite(now rollout.View) time.Time {
	answers := p.shown == nil || now.AnsweredState > p.shown.AnsweredState || now.Generation > p.shown.Generation
	switch {
	case p.machine.Finished() && p.failed == 0:
		return time.Time{}
	case p.failed > 0 || isWaiting(now) || answers || p.notBeforeMinor.Before(p.notBefore):
		return p.notBefore
	}
	return p.notBeforeMinor
}

// scheduleMinor calculates when the next minor write may be made.
func (p *objectPublisher) scheduleMinor(now time.Time) {
	if isWaiting(*p.shown) {
		p.minorWrites = 0
	}
	apart := backoff.After(p.minorWrites, minorInterval, minorIntervalMax)
	p.minorWrites++
	p.notBeforeMinor = now.Add(max(apart, writeTimeFactor*now.Sub(p.began)))
}

// isWaiting reports whether the release waits for a user or a time.
func isWaiting(v rollout.View) bool {
	w := v.Status.WaitingFor
	return w != nil && w.Kind != rollout.WaitPods && w.Kind != rollout.WaitTraffic && w.Kind != rollout.WaitParty
}

// wakeAt wakes the loop at the given time, unless it wakes earlier.
func (p *objectPublisher) wakeAt(at time.Time) {
	switch {
	case p.wakeTime.IsZero():
	case !at.Before(p.wakeTime):
		return
	default:
		p.cancelTimer()
	}
	ctx, unset := workflow.WithCancel(p.ctx)
	p.wakeTime, p.cancelTimer, p.timers = at, unset, p.timers+1
	n := p.timers
	future := workflow.NewTimerWithOptions(ctx, at.Sub(workflow.Now(p.ctx)),
		workflow.TimerOptions{Summary: "until the Rollout object is written"})
	workflow.Go(p.ctx, func(ctx workflow.Context) {
		_ = future.Get(ctx, nil)
		if n == p.timers { // otherwise an earlier timer has replaced this one
			p.wakeTime, p.woken = time.Time{}, true
		}
	})
}

// takeResult processes the result of a write, or that the timer has fired.
func (p *objectPublisher) takeResult(now time.Time) {
	p.woken = false
	if !p.running || !p.ended {
		return
	}
	p.running, p.ended = false, false
	sent := p.sent
	switch {
	case p.err != nil && p.machine.Finished() && p.failed >= maxEndWrites:
		p.stopped = true
		workflow.GetLogger(p.ctx).Error("could not write the release's end to the Rollout object", "error", p.err)
	case p.err != nil:
		p.notBefore = now.Add(backoff.After(p.failed, publishRetry, publishRetryMax))
		p.failed++
		workflow.GetLogger(p.ctx).Warn("could not write the Rollout object; retrying", "error", p.err)
	case p.result.ObjectDeleted:
		p.stopped = true
	case p.result.Pending:
		p.failed, p.pending, p.answered = 0, true, sent.AnsweredState
	default:
		if p.shown != nil && sent.AnsweredState > p.shown.AnsweredState {
			p.notBefore = now.Add(minShown)
		}
		p.failed, p.pending, p.shown = 0, false, sent
		p.scheduleMinor(now)
	}
	p.sent, p.result, p.err = nil, rollout.PublishResult{}, nil
}

// detachEntry and replanEntry exist as Updates only and are sent for the Rollout object that requested the release:
// RolloutVerbRequest and ReplanRequest → VerbResponse.
var (
	detachEntry = menuEntry{rollout.VerbDetach, "The Rollout object was disabled or deleted: borrowed settings are " +
		"restored at once."}
	replanEntry = menuEntry{rollout.VerbReplan,
		"The Rollout object's strategy was edited: the release uses the new steps."}
)

func readDetach(payloads *commonpb.Payloads) (*envelope[rollout.Command], error) {
	var q RolloutVerbRequest
	if err := decodePayload(payloads, &q); err != nil {
		return nil, err
	}
	return &envelope[rollout.Command]{command: commandOf(rollout.VerbDetach, q)},
		validateRolloutVerb(rollout.VerbDetach, q)
}

func readReplan(payloads *commonpb.Payloads) (*envelope[rollout.Command], error) {
	var q ReplanRequest
	if err := decodePayload(payloads, &q); err != nil {
		return nil, err
	}
	return &envelope[rollout.Command]{command: commandOf(rollout.VerbReplan, q.RolloutVerbRequest),
		attachment: &q.Strategy}, validateRolloutVerb(rollout.VerbReplan, q.RolloutVerbRequest)
}
