package workflows

import (
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
		err := workflow.ExecuteActivity(withActivity(ctx, centreForever, "write what the parties see"), serving.ActivityObserve,
			serving.ObserveRequest{ID: id, Observations: burst, At: workflow.Now(ctx)}).Get(ctx, nil)
		if err != nil {
			return err
		}
		if channel.Len() == 0 {
			return nil
		}
	}
}

// collect waits for more to come. It does not when the history is long: there is a moment at which nothing waits then, and the next observation begins anew.
func collect(ctx workflow.Context) error {
	if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
		return nil
	}
	return workflow.NewTimerWithOptions(ctx, coalesce, workflow.TimerOptions{Summary: "collect what the parties see"}).Get(ctx, nil)
}

// latest takes what was sent, of each Deployment the newest, in the order in which they came first: of two workers of one party one may lag behind.
func latest(channel workflow.ReceiveChannel) []serving.Observation {
	var burst []serving.Observation
	for {
		var o serving.Observation
		if !channel.ReceiveAsync(&o) {
			return burst
		}
		known := false
		for i := range burst {
			if burst[i].UID == o.UID && burst[i].Domain == o.Domain && burst[i].Deployment == o.Deployment {
				known = true
				if !o.Seen.Before(burst[i].Seen) {
					burst[i] = o
				}
			}
		}
		if !known {
			burst = append(burst, o)
		}
	}
}
