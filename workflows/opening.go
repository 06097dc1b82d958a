package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/window"
)

// openingAnswer is whether the task's times allow an item to begin at a given moment.
type openingAnswer struct {
	at     time.Time
	answer window.Answer
}

// askOpening checks whether the task's times allow an item to begin now. The centre calculates it: calendars depend on
// time zone data that may differ during a replay. Only a task with times calls it.
func (r *taskRun) askOpening(now time.Time) {
	r.askingWindow = true
	workflow.Go(r.ctx, func(ctx workflow.Context) {
		a := openingAnswer{at: now}
		question := window.Question{Times: r.in.Times, At: now}
		if err := perform(withActivity(ctx, centreForever, "is a release window open?"), window.ActivityNextOpening,
			question, &a.answer); err != nil {
			again := workflow.Now(ctx).Add(time.Minute)
			a.answer = window.Answer{Until: &again,
				Reason: "cannot determine whether a release window is open (" + message(err) + ")"}
		}
		r.askingWindow, r.openingAnswer = false, &a
	})
}
