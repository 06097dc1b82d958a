package workflows

import (
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/serving"
)

// coalesce is how long observations are collected before they are written.
const coalesce = 2 * time.Second

// ServingStatus carries one burst of what parties have seen of a serving to its status, then ends: a quiet serving has no open workflow.
func ServingStatus(ctx workflow.Context, id string) error {
	channel := workflow.GetSignalChannelWithOptions(ctx, serving.SignalObserved,
		workflow.SignalChannelOptions{Description: "What a party's worker has seen of its Deployment."})
	for {
		if err := collect(ctx); err != nil {
			return err
		}
		burst := latest(channel)
		if len(burst) == 0 {
			return nil
		}
		err := perform(withActivity(ctx, centreForever, "write what the parties see"), serving.ActivityObserve,
			serving.ObserveRequest{ID: id, Observations: burst, At: workflow.Now(ctx)}, nil)
		if err != nil {
			return err
		}
		if channel.Len() == 0 {
			return nil
		}
	}
}

// collect waits for more to come, but not when the history is long: the next observation then begins anew.
func collect(ctx workflow.Context) error {
	if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
		return nil
	}
	return workflow.NewTimerWithOptions(ctx, coalesce, workflow.TimerOptions{Summary: "collect what the parties see"}).Get(ctx, nil)
}

// latest takes what was sent, of each Deployment the newest, in the order in which they came first: one of two workers may lag behind.
func latest(channel workflow.ReceiveChannel) []serving.Observation {
	var burst []serving.Observation
	for {
		var o serving.Observation
		if !channel.ReceiveAsync(&o) {
			return burst
		}
		at := slices.IndexFunc(burst, func(b serving.Observation) bool {
			return b.UID == o.UID && b.Domain == o.Domain && b.Deployment == o.Deployment
		})
		switch {
		case at < 0:
			burst = append(burst, o)
		case !o.Seen.Before(burst[at].Seen.Look):
			burst[at] = o
		}
	}
}

// checkPickUp is how long a check waits for a worker of the queue, and checkEnd how long for the one that asked for it, which may be one of
// several with namespaces of their own: one that has gone away asks again when it is back.
const checkPickUp, checkEnd = time.Minute, 10 * time.Minute

// ServingCheck has a worker that has just started look for what it should find, page by page, and tells the statuses what is missing.
func ServingCheck(ctx workflow.Context, in serving.ExpectedRequest) error {
	for {
		var page serving.ExpectedPage
		err := perform(withActivity(ctx, centreForever, "list what should be there"), serving.ActivityExpected, in, &page)
		if err != nil {
			return err
		}
		if len(page.Expected) > 0 {
			if err := checkParty(ctx, in.Queue, page.Expected); err != nil {
				return err
			}
		}
		if in.Cursor = page.Next; in.Cursor == "" {
			return nil
		}
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			return workflow.NewContinueAsNewError(ctx, TypeServingCheck, in)
		}
	}
}

// checkParty has the worker of a queue look for Deployments, and writes into the statuses which of them are missing.
func checkParty(ctx workflow.Context, queue string, expected []serving.Expected) error {
	var found serving.CheckResult
	look := partyRun(queue, checkPickUp)
	look.HeartbeatTimeout, look.ScheduleToCloseTimeout = 0, checkEnd
	err := perform(withActivity(ctx, look, "look for what should be there"), serving.ActivityCheck,
		serving.CheckRequest{Expected: expected}, &found)
	if err != nil {
		return err
	}
	for len(found.Gone) > 0 {
		id, n := found.Gone[0].ID, 1
		for n < len(found.Gone) && found.Gone[n].ID == id {
			n++
		}
		err := perform(withActivity(ctx, centreForever, "write what is missing"), serving.ActivityObserve,
			serving.ObserveRequest{ID: id, Observations: found.Gone[:n], At: workflow.Now(ctx)}, nil)
		if err != nil {
			return err
		}
		found.Gone = found.Gone[n:]
	}
	return nil
}
