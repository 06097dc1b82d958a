package workflows

import (
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/serving"
)

// coalesce is how long observations are collected before they are written.
const coalesce = 2 * time.Second

// mostStatuses is how many statuses one activity writes at most, so that it is over within its time.
const mostStatuses = 50

// longestPause limits the pause before a status that could not be written is written again.
const longestPause = time.Minute

// ServingStatuses carries what the workers of a queue have seen of servings to their statuses, then ends: while all are quiet no workflow is open. left is what a run
// before this one has not written. A status that cannot be written holds up no other one.
func ServingStatuses(ctx workflow.Context, left []serving.Observation) error {
	channel := workflow.GetSignalChannelWithOptions(ctx, serving.SignalObservedMany,
		workflow.SignalChannelOptions{Description: "What a party's worker has seen of its Deployments."})
	for pause := coalesce; ; {
		if err := gather(ctx, channel, pause); err != nil {
			return err
		}
		burst := latestOfMany(left, channel)
		switch {
		case len(burst) == 0:
			return nil
		case workflow.GetInfo(ctx).GetContinueAsNewSuggested():
			return workflow.NewContinueAsNewError(ctx, TypeServingStatuses, burst)
		}
		var err error
		if left, err = writeStatuses(ctx, burst); err != nil {
			return err
		}
		switch {
		case len(left) > 0:
			pause = min(2*pause, longestPause)
		case channel.Len() == 0:
			return nil
		default:
			pause = coalesce
		}
	}
}

// gather waits for more to come: shortly, or for as long as is paused unless something comes.
func gather(ctx workflow.Context, channel workflow.ReceiveChannel, pause time.Duration) error {
	if pause > coalesce {
		came := func() bool { return channel.Len() > 0 }
		if _, err := workflow.AwaitWithTimeout(ctx, pause-coalesce, came); err != nil {
			return err
		}
	}
	return collect(ctx)
}

// writeStatuses writes what was seen, serving by serving, and answers what has to be written again.
func writeStatuses(ctx workflow.Context, burst []serving.Observation) (left []serving.Observation, err error) {
	for servings := range slices.Chunk(byServing(burst, workflow.Now(ctx)), mostStatuses) {
		var result serving.ObserveManyResult
		err := perform(withActivity(ctx, centreForever, "write what the parties see"), serving.ActivityObserveMany,
			serving.ObserveManyRequest{Servings: servings}, &result)
		if err != nil {
			return nil, err
		}
		for _, unwritten := range result.Left {
			workflow.GetLogger(ctx).Warn("a status could not be written", "serving", unwritten.ID, "again", !unwritten.Final, "error", unwritten.Message)
			if unwritten.Final {
				continue
			}
			at := slices.IndexFunc(servings, func(r serving.ObserveRequest) bool { return r.ID == unwritten.ID })
			left = append(left, servings[at].Observations...)
		}
	}
	return left, nil
}

// byServing are observations by their serving, in the order in which they came first.
func byServing(burst []serving.Observation, now time.Time) (servings []serving.ObserveRequest) {
	index := map[string]int{}
	for _, o := range burst {
		at, known := index[o.ID]
		if !known {
			at = len(servings)
			index[o.ID] = at
			servings = append(servings, serving.ObserveRequest{ID: o.ID, At: now})
		}
		servings[at].Observations = append(servings[at].Observations, o)
	}
	return servings
}

// latestOfMany adds what was sent to what is left, as latest does.
func latestOfMany(left []serving.Observation, channel workflow.ReceiveChannel) []serving.Observation {
	seen := newest{}
	seen.add(left...)
	for {
		var sent []serving.Observation
		if !channel.ReceiveAsync(&sent) {
			return seen.burst
		}
		seen.add(sent...)
	}
}

// newest keeps of each Deployment the newest observation, in the order in which they came first: one of two workers may lag behind.
type newest struct {
	burst []serving.Observation
	index map[[3]string]int
}

func (n *newest) add(observations ...serving.Observation) {
	if n.index == nil {
		n.index = map[[3]string]int{}
	}
	for _, o := range observations {
		of := [3]string{o.UID, o.Domain, o.Deployment}
		switch at, known := n.index[of]; {
		case !known:
			n.index[of] = len(n.burst)
			n.burst = append(n.burst, o)
		case !o.Seen.Before(n.burst[at].Seen.Look):
			n.burst[at] = o
		}
	}
}

// ServingStatus carries one burst of what parties have seen of a serving to its status, then ends: a quiet serving has no open workflow. Workers of earlier
// versions tell what they see by it.
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

// latest takes what was sent, of each Deployment the newest.
func latest(channel workflow.ReceiveChannel) []serving.Observation {
	seen := newest{}
	for {
		var o serving.Observation
		if !channel.ReceiveAsync(&o) {
			return seen.burst
		}
		seen.add(o)
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
