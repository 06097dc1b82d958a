package workflows

import (
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/backoff"
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
	for failed := 0; ; {
		if err := gather(ctx, channel, backoff.After(failed, coalesce, longestPause)); err != nil {
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
			failed++
		case channel.Len() == 0:
			return nil
		default:
			failed = 0
		}
	}
}

// gather waits for further observations: coalesce, or the longer pause before a retry unless an observation arrives. It
// doesn't wait if the history is long.
func gather(ctx workflow.Context, channel workflow.ReceiveChannel, pause time.Duration) error {
	if pause > coalesce {
		arrived := func() bool { return channel.Len() > 0 }
		if _, err := workflow.AwaitWithTimeout(ctx, pause-coalesce, arrived); err != nil {
			return err
		}
	}
	if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
		return nil
	}
	return sleep(ctx, coalesce, "collect what the parties see")
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
	for _, of := range grouped(burst, len(burst), func(o serving.Observation) string { return o.ID }) {
		servings = append(servings, serving.ObserveRequest{ID: of[0].ID, Observations: of, At: now})
	}
	return servings
}

// mergeNewest adds the received observations to left and keeps the newest of each Deployment, in the order of the first
// occurrence: of two workers, one may lag behind.
func mergeNewest(left []serving.Observation, channel workflow.ReceiveChannel) (burst []serving.Observation) {
	index := map[[3]string]int{}
	for sent, more := left, true; more; more = channel.ReceiveAsync(&sent) {
		for _, o := range sent {
			of := [3]string{o.UID, o.Domain, o.Deployment}
			switch at, known := index[of]; {
			case !known:
				index[of] = len(burst)
				burst = append(burst, o)
			case !o.Snapshot.Before(burst[at].Snapshot.ObservedDeployment):
				burst[at] = o
			}
		}
		sent = nil // the next ones must not be decoded into its elements
	}
	return burst
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
			if err := checkParty(ctx, in, page.Expected); err != nil {
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

// checkParty makes the worker of a queue check Deployments, and writes into the statuses which are missing. If a status
// cannot be written and the history is long, the next run checks the page again.
func checkParty(ctx workflow.Context, in serving.ExpectedRequest, expected []serving.Expected) error {
	var found serving.CheckResult
	look := partyRun(in.Queue, checkPickUp)
	look.HeartbeatTimeout, look.ScheduleToCloseTimeout = 0, checkEnd
	err := perform(withActivity(ctx, look, "look for what should be there"), serving.ActivityCheck,
		serving.CheckRequest{Expected: expected}, &found)
	if err != nil {
		return err
	}
	left, err := writeStatuses(ctx, found.Missing)
	for pause := coalesce; err == nil && len(left) > 0; pause = min(2*pause, longestPause) {
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			return workflow.NewContinueAsNewError(ctx, TypeServingCheck, in)
		}
		if err = workflow.Sleep(ctx, pause); err == nil {
			left, err = writeStatuses(ctx, left)
		}
	}
	return err
}
