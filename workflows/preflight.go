package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workloadops"
)

// preflightBatch bounds one activity's payload.
const preflightBatch = 300

// preflightOptions answer while somebody waits for the HTTP answer: a party that does not take the work within seconds is unreachable.
func preflightOptions(queue string) workflow.ActivityOptions {
	return workflow.ActivityOptions{
		TaskQueue:              queue,
		ScheduleToStartTimeout: 5 * time.Second,
		ScheduleToCloseTimeout: 12 * time.Second,
		StartToCloseTimeout:    10 * time.Second,
		RetryPolicy:            &temporal.RetryPolicy{InitialInterval: 500 * time.Millisecond, BackoffCoefficient: 2, MaximumAttempts: 3},
	}
}

// Preflight asks each party's worker, without a write, whether requests can be carried out: what cannot be done is refused at the door.
// It answers one outcome for each party, in the input's order.
func Preflight(ctx workflow.Context, in PreflightInput) ([]PreflightOutcome, error) {
	outcomes := make([]PreflightOutcome, len(in.Parties))
	wg := workflow.NewWaitGroup(ctx)
	if in.Rollout != nil {
		outcomes = append(outcomes, PreflightOutcome{Party: in.Rollout.Party})
		wg.Add(1)
		workflow.Go(ctx, func(ctx workflow.Context) {
			defer wg.Done()
			preflightRollout(ctx, *in.Rollout, &outcomes[len(in.Parties)])
		})
	}
	for i, party := range in.Parties {
		outcomes[i].Party = party.Party
		for from := 0; from < len(party.Requests); from += preflightBatch {
			wg.Add(1)
			batch := party.Requests[from:min(from+preflightBatch, len(party.Requests))]
			workflow.Go(ctx, func(ctx workflow.Context) {
				defer wg.Done()
				var result workloadops.PreflightResult
				err := workflow.ExecuteActivity(withActivity(ctx, preflightOptions(party.Queue), "preflight of party "+party.Party),
					workloadops.ActivityPreflight, workloadops.PreflightRequest{Requests: batch}).Get(ctx, &result)
				if err != nil {
					trouble, _ := systemTrouble(err, "party "+party.Party)
					if trouble == "" {
						trouble = message(err)
					}
					outcomes[i].Unreachable = trouble
					return
				}
				for _, refusal := range result.Refusals {
					refusal.Index += from
					outcomes[i].Refusals = append(outcomes[i].Refusals, refusal)
				}
			})
		}
	}
	wg.Wait(ctx)
	return outcomes, nil
}

// preflightRollout asks the party's worker about one rollout.
func preflightRollout(ctx workflow.Context, check RolloutPreflight, outcome *PreflightOutcome) {
	var result rollout.PreflightResult
	err := workflow.ExecuteActivity(withActivity(ctx, preflightOptions(check.Queue), "preflight of party "+check.Party),
		rollout.ActivityPreflight, check.Request).Get(ctx, &result)
	if err == nil {
		outcome.Rollout = &result
		return
	}
	trouble, _ := systemTrouble(err, "party "+check.Party)
	if trouble == "" {
		trouble = message(err)
	}
	outcome.Unreachable = trouble
}
