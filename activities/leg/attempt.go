package leg

import (
	"context"
	"errors"
	"maps"
	"time"

	"go.temporal.io/sdk/temporal"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/activities/heartbeat"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/machine"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// maxSlotTime is how long one attempt of a leg keeps its worker slot at most, even if it makes progress: less than the
// activity's StartToCloseTimeout.
const maxSlotTime = 4 * time.Minute

// legAttempt is one attempt of a leg: it holds the progress of the current action and of the whole leg.
type legAttempt struct {
	*attempt.WorkerSlot
	details *heartbeat.Details[machine.LegProgress]
	options Options
	// unknown is true until the first part of an attempt that follows one whose last heartbeat is not complete.
	unknown bool
}

func newLegAttempt(ctx context.Context, options Options) *legAttempt {
	w := &legAttempt{WorkerSlot: attempt.NewWorkerSlot(options.Now, options.ListenFor, maxSlotTime),
		details: heartbeat.Take(ctx, machine.LegProgress{}), options: options}
	w.unknown = heartbeat.IsRepeated(ctx) && !w.details.Progress().Complete
	w.details.Note(func(p *machine.LegProgress) { p.Complete = false })
	return w
}

// resume returns the leg at its start, or after the parts of earlier attempts.
func (w *legAttempt) resume(in machine.LegRequest) *machine.Leg {
	leg := machine.NewLeg(in, w.completedParts())
	if w.unknown {
		leg.Repeat()
	}
	w.unknown = leg.Repeats()
	w.details.Note(func(p *machine.LegProgress) { p.Parts = leg.Parts() })
	return leg
}

// spentSeconds returns how much of its deadline the action after the completed ones has used, by earlier activities
// too.
func (w *legAttempt) spentSeconds(a machine.Action) int64 {
	return max(w.details.Progress().SpentSeconds(), a.SpentSeconds())
}

// mayHandOver reports whether a leg whose attempt ends with this error can be continued by another leg: it has results,
// and its heartbeat has nothing that only its next attempt can use.
func (w *legAttempt) mayHandOver(err error) bool {
	var app *temporal.ApplicationError
	p := w.details.Progress()
	begun := p.PartNumber == len(p.Parts)+1
	return len(p.Parts) > 0 && (!begun || len(p.Data) == 0 && !p.Modified && p.UnreachableSince == nil) &&
		errors.As(err, &app) && app.Type() == string(failure.NotReady)
}

// startHeartbeats sends heartbeats until stop, which must be called.
func (w *legAttempt) startHeartbeats(ctx context.Context) (stop func(well bool)) {
	end := w.details.Begin(ctx)
	return func(well bool) {
		w.details.Note(func(p *machine.LegProgress) { p.Complete = !w.unknown })
		end(well)
	}
}

// completedParts are the actions that earlier attempts have completed.
func (w *legAttempt) completedParts() []machine.Part { return w.details.Progress().Parts }

// noteAction records the action that the leg is about to take. It sends that to Temporal at once, as far as the SDK
// lets heartbeats through, so that users see it; not for the first action, which the workflow shows. What an earlier
// attempt has recorded of another action does not count for it.
func (w *legAttempt) noteAction(ctx context.Context, leg *machine.Leg, a machine.Action) {
	key := leg.Key(a)
	w.details.Note(func(p *machine.LegProgress) {
		if p.Status = leg.Status(); p.Action == key {
			return
		}
		if p.PartNumber == len(p.Parts)+1 { // it was interrupted, and may come again
			spent := maps.Clone(p.Spent)
			if spent == nil {
				spent = map[string]float64{}
			}
			spent[p.Action], p.Spent = p.ElapsedSeconds, spent
		}
		p.Action, p.PartNumber = key, 0
	})
	if len(w.completedParts()) > 0 {
		w.details.Send(ctx)
	}
}

// heartbeatBeforeFinish makes sure that Temporal has the completed steps before the workload is finalised. A retry that
// repeated a step after that would take this release's own final write for drift, and route to deleted pods. Without
// routes, and when the workload itself was changed all along, neither can happen.
func (w *legAttempt) heartbeatBeforeFinish(ctx context.Context, a machine.Action, style strategy.Style) error {
	if a.Kind != machine.ActFinish || len(w.completedParts()) == 0 {
		return nil
	}
	if resumes := a.Finish.Action; resumes == rollout.FinishResume || resumes == rollout.FinishResumeAndRelease &&
		style == strategy.StyleCanary {
		return w.Record(ctx, w.options.Recorder)
	}
	return nil
}

// noteWait records what the leg waits for.
func (w *legAttempt) noteWait(s *rollout.Status) {
	w.details.Note(func(p *machine.LegProgress) { p.Status = s })
}

// noteDone records the completed actions.
func (w *legAttempt) noteDone(parts []machine.Part) {
	w.unknown = false
	w.details.Note(func(p *machine.LegProgress) { p.Parts = parts })
	w.Progressed()
}

// BeginPart implements attempt.Parent. Progress that an earlier attempt has made with the same action is kept.
func (w *legAttempt) BeginPart(first workload.Progress) {
	w.details.Note(func(p *machine.LegProgress) {
		if part := len(p.Parts) + 1; p.PartNumber != part {
			p.PartNumber, p.Progress = part, first
			p.ElapsedSeconds = max(p.ElapsedSeconds, p.Spent[p.Action])
		}
	})
}

// Progress implements attempt.Details.
func (w *legAttempt) Progress() workload.Progress { return w.details.Progress().Progress }

// Note implements attempt.Details.
func (w *legAttempt) Note(change func(p *workload.Progress)) {
	w.details.Note(func(p *machine.LegProgress) { change(&p.Progress) })
}

// Begin implements attempt.Details: the leg sends the heartbeats of its parts.
func (w *legAttempt) Begin(context.Context) (stop func(well bool)) { return func(bool) {} }

// Record implements attempt.Details.
func (w *legAttempt) Record(ctx context.Context, recorder heartbeat.Recorder) error {
	return w.details.Record(ctx, recorder)
}
