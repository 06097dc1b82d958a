package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/window"
)

// openingAnswer is what a task's times said of a moment.
type openingAnswer struct {
	at     time.Time
	answer window.Answer
}

// askOpening asks whether the task's times allow something to begin. The centre reckons: calendars depend on data that a replay may not have.
//
// Only a task with times asks, and no input of an earlier build has any: recorded histories have no such command, and need no version.
func (r *taskRun) askOpening(now time.Time) {
	r.asking = true
	workflow.Go(r.ctx, func(ctx workflow.Context) {
		a := openingAnswer{at: now}
		question := window.Question{Times: r.in.Times, At: now}
		if err := perform(withActivity(ctx, centreForever, "is a release window open?"), window.ActivityNextOpening, question, &a.answer); err != nil {
			again := workflow.Now(ctx).Add(time.Minute)
			a.answer = window.Answer{Until: &again, Reason: "whether a release window is open cannot be told (" + message(err) + ")"}
		}
		r.asking, r.openingAnswer = false, &a
	})
}
