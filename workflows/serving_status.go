package workflows

import (
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/serving"
)

// coalesce is how long observations are collected before they are written.
const coalesce = 2 * time.Second

// maxStatuses is how many statuses one activity writes at most, so that it ends within its timeout.
const maxStatuses = 50

// longestPause limits the pause before a failed status write is retried.
const longestPause = time.Minute

// ServingStatuses writes what the workers of a queue observe into the statuses of servings, then ends: while nothing
// changes, no workflow is open. left are the unwritten observations of the previous run. A failing status write does
// not hold up other statuses.
func ServingStatuses(ctx workflow.Context, left []serving.Observation) error {
	channel := workflow.GetSignalChannelWithOptions(ctx, serving.SignalObservedMany,
		workflow.SignalChannelOptions{Description: "What a party's worker has seen of its Deployments."})
	for pause := coalesce; ; {
		if err := gather(ctx, channel, pause); err != nil {
			return err
		}
		burst := mergeNewest(left, channel)
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

// gather waits for further observations: coalesce, or the longer pause before a retry unless an observation arrives.
func gather(ctx workflow.Context, channel workflow.ReceiveChannel, pause time.Duration) error {
	if pause > coalesce {
		arrived := func() bool { return channel.Len() > 0 }
		if _, err := workflow.AwaitWithTimeout(ctx, pause-coalesce, arrived); err != nil {
			return err
		}
	}
	return collect(ctx)
}

// writeStatuses writes the observations, one serving after another, and returns those whose write has to be retried.
func writeStatuses(ctx workflow.Context, burst []serving.Observation) (left []serving.Observation, err error) {
	for servings := range slices.Chunk(byServing(burst, workflow.Now(ctx)), maxStatuses) {
		var result serving.ObserveManyResult
		err := perform(withActivity(ctx, centreForever, "write what the parties see"), serving.ActivityObserveMany,
			serving.ObserveManyRequest{Servings: servings}, &result)
		if err != nil {
			return nil, err
		}
		for _, unwritten := range result.Unwritten {
			workflow.GetLogger(ctx).Warn("could not write a status", "serving", unwritten.ID, "again", !unwritten.Final,
				"error", unwritten.Message)
			if unwritten.Final {
				continue
			}
			at := slices.IndexFunc(servings, func(r serving.ObserveRequest) bool { return r.ID == unwritten.ID })
			left = append(left, servings[at].Observations...)
		}
	}
	return left, nil
}

// byServing groups observations by serving, in the order of the first occurrence.
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

// mergeNewest adds the received observations to left and keeps the newest of each Deployment.
func mergeNewest(left []serving.Observation, channel workflow.ReceiveChannel) []serving.Observation {
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

// newest keeps the newest observation of each Deployment, in the order of the first occurrence: of two workers, one may
// lag behind.
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
		case !o.Snapshot.Before(n.burst[at].Snapshot.ObservedDeployment):
			n.burst[at] = o
		}
	}
}

// ServingStatus writes one burst of a serving's observations into its status, then ends: while nothing changes, no
// workflow is open. Workers of earlier versions send their observations to it.
func ServingStatus(ctx workflow.Context, id string) error {
	channel := workflow.GetSignalChannelWithOptions(ctx, serving.SignalObserved,
		workflow.SignalChannelOptions{Description: "What a party's worker has seen of its Deployment."})
	for {
		if err := collect(ctx); err != nil {
			return err
		}
		burst := receiveNewest(channel)
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

// collect waits for further observations, unless the history is long: the next observation then starts a new run.
func collect(ctx workflow.Context) error {
	if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
		return nil
	}
	return workflow.NewTimerWithOptions(ctx, coalesce,
		workflow.TimerOptions{Summary: "collect what the parties see"}).Get(ctx, nil)
}

// receiveNewest receives the pending observations and keeps the newest of each Deployment.
func receiveNewest(channel workflow.ReceiveChannel) []serving.Observation {
	seen := newest{}
	for {
		var o serving.Observation
		if !channel.ReceiveAsync(&o) {
			return seen.burst
		}
		seen.add(o)
	}
}

// checkPickUp is how long a check waits for a worker of the queue. checkEnd bounds the wait for the worker that
// requested it, which may be one of several workers with different namespaces; a worker that disappears requests a new
// check when it restarts.
const checkPickUp, checkEnd = time.Minute, 10 * time.Minute

// ServingCheck makes a worker that has just started check its expected Deployments, page by page, and writes missing
// ones into the statuses.
func ServingCheck(ctx workflow.Context, in serving.ExpectedRequest) error {
	for {
		var page serving.ExpectedPage
		err := perform(withActivity(ctx, centreForever, "list what should be there"), serving.ActivityExpected, in,
			&page)
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

// checkParty makes the worker of a queue check Deployments, and writes into the statuses which are missing.
func checkParty(ctx workflow.Context, queue string, expected []serving.Expected) error {
	var found serving.CheckResult
	look := partyRun(queue, checkPickUp)
	look.HeartbeatTimeout, look.ScheduleToCloseTimeout = 0, checkEnd
	err := perform(withActivity(ctx, look, "look for what should be there"), serving.ActivityCheck,
		serving.CheckRequest{Expected: expected}, &found)
	if err != nil {
		return err
	}
	for len(found.Missing) > 0 {
		id, n := found.Missing[0].ID, 1
		for n < len(found.Missing) && found.Missing[n].ID == id {
			n++
		}
		err := perform(withActivity(ctx, centreForever, "write what is missing"), serving.ActivityObserve,
			serving.ObserveRequest{ID: id, Observations: found.Missing[:n], At: workflow.Now(ctx)}, nil)
		if err != nil {
			return err
		}
		found.Missing = found.Missing[n:]
	}
	return nil
}
