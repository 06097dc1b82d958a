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

// diffBatch is preflightBatch for diffs, whose answers are larger.
const diffBatch = 50

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
	rollouts := in.Rollouts
	if in.Rollout != nil {
		rollouts = append([]RolloutPreflight{*in.Rollout}, rollouts...)
	}
	outcomes := make([]PreflightOutcome, len(in.Parties)+len(rollouts))
	wg := workflow.NewWaitGroup(ctx)
	ask := func(outcome *PreflightOutcome, queue, activity string, request, result any, then func()) {
		wg.Add(1)
		workflow.Go(ctx, func(ctx workflow.Context) {
			defer wg.Done()
			who := "party " + outcome.Party
			err := workflow.ExecuteActivity(withActivity(ctx, preflightOptions(queue), "preflight of "+who), activity, request).Get(ctx, result)
			if err == nil {
				then()
				return
			}
			if outcome.Unreachable, _ = systemTrouble(err, who); outcome.Unreachable == "" {
				outcome.Unreachable = message(err)
			}
		})
	}
	for i, check := range rollouts {
		outcome, result := &outcomes[len(in.Parties)+i], &rollout.PreflightResult{}
		outcome.Party = check.Party
		ask(outcome, check.Queue, rollout.ActivityPreflight, check.Request, result, func() { outcome.Rollout = result })
	}
	for i, party := range in.Parties {
		outcomes[i].Party = party.Party
		if in.Diff {
			outcomes[i].Diffs = make([]workloadops.Diff, len(party.Requests))
		}
		for from := 0; in.Diff && from < len(party.Requests); from += diffBatch {
			var result workloadops.DiffResult
			batch := workloadops.PreflightRequest{Requests: party.Requests[from:min(from+diffBatch, len(party.Requests))]}
			ask(&outcomes[i], party.Queue, workloadops.ActivityDiff, batch, &result, func() { copy(outcomes[i].Diffs[from:], result.Workloads) })
		}
		for from := 0; from < len(party.Requests); from += preflightBatch {
			var result workloadops.PreflightResult
			batch := workloadops.PreflightRequest{Requests: party.Requests[from:min(from+preflightBatch, len(party.Requests))]}
			ask(&outcomes[i], party.Queue, workloadops.ActivityPreflight, batch, &result, func() {
				outcomes[i].Refusals = appendFrom(outcomes[i].Refusals, result.Refusals, from)
				outcomes[i].Warnings = appendFrom(outcomes[i].Warnings, result.Warnings, from)
			})
		}
	}
	wg.Wait(ctx)
	return outcomes, nil
}

// appendFrom adds what a batch was told, whose first request has that index.
func appendFrom(all, batch []workloadops.Refusal, from int) []workloadops.Refusal {
	for _, told := range batch {
		told.Index += from
		all = append(all, told)
	}
	return all
}
