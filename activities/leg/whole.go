package leg

import (
	"context"
	"time"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/activities/heartbeat"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/machine"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workloadops"
)

// longest is how long one attempt at a leg keeps its place at most, however its pods come on: less than the activity's StartToCloseTimeout.
const longest = 4 * time.Minute

// whole is one attempt at a leg: the progress of its part, and of all of it.
type whole struct {
	*attempt.Place
	details *heartbeat.Details[machine.LegProgress]
	options Options
}

func newWhole(ctx context.Context, options Options) *whole {
	return &whole{Place: attempt.NewPlace(options.Now, options.ListenFor, longest), details: heartbeat.Take(ctx, machine.LegProgress{}), options: options}
}

// begin begins to tell; stop must be called.
func (w *whole) begin(ctx context.Context) (stop func(well bool)) { return w.details.Begin(ctx) }

// parts are those that earlier attempts have done.
func (w *whole) parts() []machine.Part { return w.details.Now().Parts }

// at notes what the leg is about to do. Whoever watches is told at once, as far as the SDK lets heartbeats through, but of the claim, which takes no time.
func (w *whole) at(ctx context.Context, a machine.Action, s *rollout.Status) {
	w.details.Note(func(p *machine.LegProgress) { p.Status = s })
	if a.Kind != machine.ActBegin {
		w.details.Tell(ctx)
	}
}

// certain has Temporal know that the steps are done before the workload goes home: an attempt that went through a step once more from then on would take what
// this release writes there for somebody else's, and route to pods that are gone. Where there are no routes and the workload itself has moved all along, nothing
// of that can be mistaken.
func (w *whole) certain(ctx context.Context, a machine.Action, style strategy.Style) error {
	if a.Kind != machine.ActFinish {
		return nil
	}
	if resumes := a.Finish.Action; resumes == rollout.FinishResume || resumes == rollout.FinishResumeAndRelease && style == strategy.StyleCanary {
		return w.Record(ctx, w.options.Recorder)
	}
	return nil
}

// rests notes what the leg waits for.
func (w *whole) rests(s *rollout.Status) {
	w.details.Note(func(p *machine.LegProgress) { p.Status = s })
}

// done notes what the leg has done.
func (w *whole) done(parts []machine.Part) {
	w.details.Note(func(p *machine.LegProgress) { p.Parts = parts })
	w.Moved()
}

// Begins implements attempt.Whole. What an earlier attempt has left of this very part goes on.
func (w *whole) Begins(first workloadops.Progress) {
	w.details.Note(func(p *machine.LegProgress) {
		if part := len(p.Parts) + 1; p.Of != part {
			p.Of, p.Progress = part, first
		}
	})
}

// Now implements attempt.Details.
func (w *whole) Now() workloadops.Progress { return w.details.Now().Progress }

// Note implements attempt.Details.
func (w *whole) Note(change func(p *workloadops.Progress)) {
	w.details.Note(func(p *machine.LegProgress) { change(&p.Progress) })
}

// Begin implements attempt.Details: the whole tells of its parts.
func (w *whole) Begin(context.Context) (stop func(well bool)) { return func(bool) {} }

// Record implements attempt.Details.
func (w *whole) Record(ctx context.Context, recorder heartbeat.Recorder) error {
	return w.details.Record(ctx, recorder)
}
