package workflows

import (
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/machine"
)

// stateStays is how long the object shows the answer to a command at least: clients look each second, and repeat an approval until they see
// another state than the one that they have approved. The next step's pause must not be taken for it.
const stateStays = 2 * time.Second

// pace is how far writes are apart at first that only tell of what passes by itself, and paceMost at most: it doubles with each, until the release
// waits for somebody again. Who looks at a step that rests nowhere looks for the next rest.
const pace, paceMost = 2 * time.Second, 10 * time.Second

// easesOff is how many times as long as the last write took the next such write is away: a release goes on only when a write is done, and a home
// cluster that has much to do is not to be asked more often than it can answer.
const easesOff = 5

// How long it takes until a write of the object that failed is tried again: at first, and at most.
const publishAgain, publishAgainMost = time.Second, 15 * time.Second

// mostAtEnd is how often the end of a release that is over is tried to be written: some ten minutes. Then whoever watches the object finds
// that the release has ended.
const mostAtEnd = 40

// objectPublisher keeps the Rollout object that asked for a release as the release is: one write at a time, and only when something that the
// object shows has changed. Without an object it does nothing.
type objectPublisher struct {
	ctx     workflow.Context
	machine *machine.Machine
	object  *rollout.ObjectRef
	// shown is what the object shows, sent what is being written.
	shown, sent *rollout.Shown
	running     bool
	ended       bool
	result      rollout.PublishResult
	err         error
	// gone says that there is no such object any more, failed how often the last write failed.
	gone   bool
	failed int
	// wakes is when the timer fires that has the loop look again, zero when none runs; timers counts them, unset stops it. woken says that it has fired.
	wakes  time.Time
	timers int
	unset  workflow.CancelFunc
	woken  bool
	// began is when the write was begun, passing how many in a row told of what passes by itself.
	began   time.Time
	passing int
	// notBefore is when the next write may be made at the earliest, and soonest when one that nobody waits for may.
	notBefore, soonest time.Time
	// pending says that the object carries a command that has not come yet: it is written when that was answered.
	pending  bool
	answered int64
}

func newObjectPublisher(ctx workflow.Context, m *machine.Machine) *objectPublisher {
	return &objectPublisher{ctx: ctx, machine: m, object: m.Object()}
}

func (p *objectPublisher) hasNews() bool { return p.running && p.ended || p.woken }

// idle says that the object shows the release as it is, or cannot.
func (p *objectPublisher) idle() bool {
	return p.object == nil || p.gone || !p.running && !p.wanted()
}

// wanted says whether something is to be written. A release that makes way for a newer one leaves its end to that one. The end is shown when it
// is on record: who sees it may ask for that at once.
func (p *objectPublisher) wanted() bool {
	if p.object == nil || p.gone || p.machine.Completing() || p.machine.Over() && p.machine.Superseded() {
		return false
	}
	now := p.machine.View().Shown()
	if p.pending && now.Answered <= p.answered && !p.machine.Over() {
		return false
	}
	return p.shown == nil || *p.shown != now
}

// publish begins the next write, if there is one to be made now.
func (p *objectPublisher) publish() {
	if p.running || !p.wanted() {
		return
	}
	view := p.machine.View()
	shown := view.Shown()
	if at := p.earliest(shown); at.After(workflow.Now(p.ctx)) {
		p.wakeAt(at)
		return
	}
	// What fails is tried again by a timer, so that the release itself does not wait for it.
	p.sent, p.running, p.ended, p.began = &shown, true, false, workflow.Now(p.ctx)
	request := rollout.PublishRequest{Object: *p.object, View: view}
	workflow.Go(p.ctx, func(ctx workflow.Context) {
		ctx = workflow.WithLocalActivityOptions(ctx, localOnce)
		p.err = workflow.ExecuteLocalActivity(ctx, rollout.ActivityPublishRollout, request).Get(ctx, &p.result)
		p.ended = true
	})
}

// earliest is when a state may be written. What somebody waits for is written at once, but for the time in which an answer has to be seen.
func (p *objectPublisher) earliest(now rollout.Shown) time.Time {
	answers := p.shown == nil || now.Answered > p.shown.Answered || now.Generation > p.shown.Generation
	switch {
	case p.machine.Over() && p.failed == 0:
		return time.Time{}
	case p.failed > 0 || waitsForSomebody(now) || answers || p.soonest.Before(p.notBefore):
		return p.notBefore
	}
	return p.soonest
}

// paces says when the next write may be made that nobody waits for.
func (p *objectPublisher) paces(now time.Time) {
	if waitsForSomebody(*p.shown) {
		p.passing = 0
	}
	apart := min(pace<<min(p.passing, 4), paceMost)
	p.passing++
	p.soonest = now.Add(max(apart, easesOff*now.Sub(p.began)))
}

// waitsForSomebody says that the release stands until somebody, or the time, has it go on.
func waitsForSomebody(s rollout.Shown) bool {
	return s.Waits == rollout.WaitApproval || s.Waits == rollout.WaitTimer || s.Waits == rollout.WaitWindow || s.Waits == rollout.WaitResume || s.Waits == rollout.WaitDrift
}

// wakeAt has the loop look again at a time, or earlier if it looks then anyway.
func (p *objectPublisher) wakeAt(at time.Time) {
	switch {
	case p.wakes.IsZero():
	case !at.Before(p.wakes):
		return
	default:
		p.unset()
	}
	ctx, unset := workflow.WithCancel(p.ctx)
	p.wakes, p.unset, p.timers = at, unset, p.timers+1
	n := p.timers
	future := workflow.NewTimerWithOptions(ctx, at.Sub(workflow.Now(p.ctx)), workflow.TimerOptions{Summary: "until the Rollout object is written"})
	workflow.Go(p.ctx, func(ctx workflow.Context) {
		_ = future.Get(ctx, nil)
		if n == p.timers { // an earlier one has taken its place else
			p.wakes, p.woken = time.Time{}, true
		}
	})
}

// settle takes in what became of a write, or that its time has come.
func (p *objectPublisher) settle(now time.Time) {
	p.woken = false
	if !p.running || !p.ended {
		return
	}
	p.running, p.ended = false, false
	sent := p.sent
	switch {
	case p.err != nil && p.machine.Over() && p.failed >= mostAtEnd:
		p.gone = true
		workflow.GetLogger(p.ctx).Error("the Rollout object does not show the release's end: it could not be written", "error", p.err)
	case p.err != nil:
		p.failed++
		p.notBefore = now.Add(min(publishAgain<<min(p.failed-1, 4), publishAgainMost))
		workflow.GetLogger(p.ctx).Warn("the Rollout object could not be written; it is tried again", "error", p.err)
	case p.result.Gone:
		p.gone = true
	case p.result.Pending:
		p.failed, p.pending, p.answered = 0, true, sent.Answered
	default:
		if p.shown != nil && sent.Answered > p.shown.Answered {
			p.notBefore = now.Add(stateStays)
		}
		p.failed, p.pending, p.shown = 0, false, sent
		p.paces(now)
	}
	p.sent, p.result, p.err = nil, rollout.PublishResult{}, nil
}

// detachEntry and replanEntry are Updates alone, sent for the Rollout object that asked for the release: RolloutVerbRequest and ReplanRequest
// → VerbResponse.
var (
	detachEntry = menuEntry{rollout.VerbDetach, "The Rollout object was disabled or deleted: what was borrowed is given back at once."}
	replanEntry = menuEntry{rollout.VerbReplan, "The Rollout object's strategy was edited: the steps are made as it has them now."}
)

func readDetach(payloads *commonpb.Payloads) (*envelope[rollout.Command], error) {
	var q RolloutVerbRequest
	if err := decodePayload(payloads, &q); err != nil {
		return nil, err
	}
	return &envelope[rollout.Command]{command: commandOf(rollout.VerbDetach, q)}, validateRolloutVerb(rollout.VerbDetach, q)
}

func readReplan(payloads *commonpb.Payloads) (*envelope[rollout.Command], error) {
	var q ReplanRequest
	if err := decodePayload(payloads, &q); err != nil {
		return nil, err
	}
	return &envelope[rollout.Command]{command: commandOf(rollout.VerbReplan, q.RolloutVerbRequest), with: &q.Strategy},
		validateRolloutVerb(rollout.VerbReplan, q.RolloutVerbRequest)
}
