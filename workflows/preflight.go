package workflows

import (
	"cmp"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/rollout"
)

// preflightBatch is the maximum number of requests per activity, which bounds its payload.
const preflightBatch = 300

// diffBatch is the same for diffs, whose answers are larger; rolloutBatch for rollouts, which a worker checks
// concurrently.
const diffBatch, rolloutBatch = 50, 16

// preflightOptions are short because a client waits for the HTTP response: a party whose worker does not take the
// activity within seconds is unreachable.
func preflightOptions(queue string) workflow.ActivityOptions {
	return workflow.ActivityOptions{
		TaskQueue:              queue,
		ScheduleToStartTimeout: 5 * time.Second,
		ScheduleToCloseTimeout: 12 * time.Second,
		StartToCloseTimeout:    10 * time.Second,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: 500 * time.Millisecond, BackoffCoefficient: 2,
			MaximumAttempts: 3},
	}
}

// Preflight asks each party's worker whether requests can be executed, so that impossible ones are refused up front. It
// writes nothing. It returns one outcome per party, then one per rollout, in the input's order.
func Preflight(ctx workflow.Context, in PreflightInput) ([]PreflightOutcome, error) {
	outcomes := make([]PreflightOutcome, len(in.Parties)+len(in.Rollouts))
	p := preflight{ctx: ctx, asked: workflow.NewWaitGroup(ctx)}
	for _, group := range rolloutGroups(in.Rollouts, outcomes[len(in.Parties):]) {
		p.checkRollouts(group)
	}
	for i, party := range in.Parties {
		outcomes[i].Party = party.Party
		p.checkParty(&outcomes[i], party, in.Diff)
	}
	p.asked.Wait(ctx)
	shorten(outcomes)
	return outcomes, nil
}

// maxOutcomes is how many bytes of reasons the outcomes of one preflight have at most, before those of each rollout are
// shortened: Temporal refuses a result of 2 MiB.
const maxOutcomes = 1 << 20

// shorten bounds the size of the outcomes: of each rollout the first reason stays. A party's direct requests have one
// reason each.
func shorten(outcomes []PreflightOutcome) {
	size := 0
	for _, outcome := range outcomes {
		if outcome.Rollout != nil {
			size += outcome.Rollout.ReasonBytes()
		}
	}
	if size <= maxOutcomes {
		return
	}
	for i := range outcomes {
		if result := outcomes[i].Rollout; result != nil {
			short := result.Limited(1)
			outcomes[i].Rollout = &short
		}
	}
}

// preflight is one run of the checks of all parties.
type preflight struct {
	ctx   workflow.Context
	asked workflow.WaitGroup
}

// question is one activity call; its answer is decoded into result.
type question struct {
	queue, activity string
	request, result any
}

// ask executes the activity, then calls then. If it fails, ask writes into the outcomes why their parties, which share
// the queue, are unreachable.
func (p preflight) ask(q question, then func(), outcomes ...*PreflightOutcome) {
	var parties []string
	for _, outcome := range outcomes {
		if who := "party " + outcome.Party; !slices.Contains(parties, who) {
			parties = append(parties, who)
		}
	}
	p.asked.Add(1)
	workflow.Go(p.ctx, func(ctx workflow.Context) {
		defer p.asked.Done()
		err := perform(withActivity(ctx, preflightOptions(q.queue), "preflight of "+phrase.List(parties, 3)), q.activity,
			q.request, q.result)
		if err == nil {
			then()
			return
		}
		for _, outcome := range outcomes {
			trouble, _ := systemTrouble(err, "party "+outcome.Party)
			outcome.Unreachable = cmp.Or(trouble, message(err))
		}
	})
}

// rolloutGroup is what one activity checks: up to rolloutBatch rollouts of one queue.
type rolloutGroup struct {
	queue    string
	request  rollout.PreflightRequests
	outcomes []*PreflightOutcome
}

// rolloutGroups groups the rollouts by queue; outcomes are theirs.
func rolloutGroups(rollouts []RolloutPreflight, outcomes []PreflightOutcome) (groups []*rolloutGroup) {
	of := map[string]*rolloutGroup{}
	for i, check := range rollouts {
		group := of[check.Queue]
		if group == nil || len(group.outcomes) == rolloutBatch {
			group = &rolloutGroup{queue: check.Queue}
			of[check.Queue], groups = group, append(groups, group)
		}
		outcomes[i].Party = check.Party
		group.request.Rollouts = append(group.request.Rollouts, check.Request)
		group.outcomes = append(group.outcomes, &outcomes[i])
	}
	return groups
}

func (p preflight) checkRollouts(group *rolloutGroup) {
	var results []rollout.PreflightResult
	p.ask(question{group.queue, rollout.ActivityPreflight, group.request, &results}, func() {
		for i, outcome := range group.outcomes {
			if outcome.Unreachable = results[i].Unchecked; outcome.Unreachable == "" {
				outcome.Rollout = &results[i]
			}
		}
	}, group.outcomes...)
}

// checkParty checks a party's requests, in batches.
func (p preflight) checkParty(outcome *PreflightOutcome, party PreflightParty, diff bool) {
	if diff {
		outcome.Diffs = make([]operation.Diff, len(party.Requests))
	}
	for from := 0; diff && from < len(party.Requests); from += diffBatch {
		var result operation.DiffResult
		batch := operation.PreflightRequest{Requests: party.Requests[from:min(from+diffBatch, len(party.Requests))]}
		p.ask(question{party.Queue, operation.ActivityDiff, batch, &result}, func() {
			copy(outcome.Diffs[from:], result.Workloads)
		}, outcome)
	}
	for from := 0; from < len(party.Requests); from += preflightBatch {
		var result operation.PreflightResult
		batch := operation.PreflightRequest{Requests: party.Requests[from:min(from+preflightBatch,
			len(party.Requests))]}
		p.ask(question{party.Queue, operation.ActivityPreflight, batch, &result}, func() {
			outcome.Refusals = appendFrom(outcome.Refusals, result.Refusals, from)
			outcome.Warnings = appendFrom(outcome.Warnings, result.Warnings, from)
		}, outcome)
	}
}

// appendFrom appends a batch's refusals; from is the index of the batch's first request.
func appendFrom(all, batch []operation.Refusal, from int) []operation.Refusal {
	for _, refusal := range batch {
		refusal.Index += from
		all = append(all, refusal)
	}
	return all
}
