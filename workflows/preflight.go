package workflows

import (
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workloadops"
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
// writes nothing. It returns one outcome per party, in the input's order.
func Preflight(ctx workflow.Context, in PreflightInput) ([]PreflightOutcome, error) {
	rollouts := in.Rollouts
	if in.Rollout != nil {
		rollouts = append([]RolloutPreflight{*in.Rollout}, rollouts...)
	}
	outcomes := make([]PreflightOutcome, len(in.Parties)+len(rollouts))
	p := preflight{ctx: ctx, asked: workflow.NewWaitGroup(ctx)}
	ofRollouts := outcomes[len(in.Parties):]
	for i, check := range rollouts {
		ofRollouts[i].Party = check.Party
	}
	for _, group := range preflightGroups(ctx, rollouts) {
		p.checkRollouts(ofRollouts, rollouts, group)
	}
	for i, party := range in.Parties {
		outcomes[i].Party = party.Party
		p.checkParty(&outcomes[i], party, in.Diff)
	}
	p.asked.Wait(ctx)
	return outcomes, nil
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

// ask executes the activity, then calls then. If it fails, ask writes into the outcome why the party is unreachable and
// calls failed, which may be nil.
func (p preflight) ask(outcome *PreflightOutcome, q question, then func(), failed func(error)) {
	p.asked.Add(1)
	workflow.Go(p.ctx, func(ctx workflow.Context) {
		defer p.asked.Done()
		who := "party " + outcome.Party
		err := workflow.ExecuteActivity(withActivity(ctx, preflightOptions(q.queue), "preflight of "+who), q.activity,
			q.request).Get(ctx, q.result)
		if err == nil {
			then()
			return
		}
		if outcome.Unreachable, _ = systemTrouble(err, who); outcome.Unreachable == "" {
			outcome.Unreachable = message(err)
		}
		if failed != nil {
			failed(err)
		}
	})
}

// preflightGroups groups the indexes of rollouts that one activity checks: up to rolloutBatch of one queue, at the cost
// of one activity. In histories of an earlier build each rollout has an activity of its own.
func preflightGroups(ctx workflow.Context, rollouts []RolloutPreflight) (groups [][]int) {
	of := map[string]int{}
	for i, check := range rollouts {
		group, known := of[check.Queue]
		if !known || len(groups[group]) == rolloutBatch {
			group = len(groups)
			of[check.Queue] = group
			groups = append(groups, nil)
		}
		groups[group] = append(groups[group], i)
	}
	if len(groups) == len(rollouts) || workflow.GetVersion(ctx, changeLoop, workflow.DefaultVersion,
		versionChecksTogether) >= versionChecksTogether {
		return groups
	}
	groups = nil
	for i := range rollouts {
		groups = append(groups, []int{i})
	}
	return groups
}

// checkRollouts checks a group of rollouts of one queue by one activity. A worker of an earlier build answers the first
// one only: each of the others is then checked alone, as is one that the worker marked Alone.
func (p preflight) checkRollouts(outcomes []PreflightOutcome, rollouts []RolloutPreflight, group []int) {
	first, others := group[0], group[1:]
	request, result := rollouts[first].Request, &rollout.PreflightResult{}
	for _, i := range others {
		request.Others = append(request.Others, rollouts[i].Request)
	}
	p.ask(&outcomes[first], question{rollouts[first].Queue, rollout.ActivityPreflight, request, result}, func() {
		answers := append([]rollout.PreflightResult{*result}, result.Others...)
		answers[0].Others = nil
		for n, i := range group {
			switch missing := n >= len(answers) || answers[n].AskAlone; {
			case missing && len(group) > 1:
				p.checkRollouts(outcomes, rollouts, []int{i})
			case missing:
				outcomes[i].Unreachable = "party " + outcomes[i].Party + ": its worker returned no result"
			case answers[n].Unchecked != "":
				outcomes[i].Unreachable = answers[n].Unchecked
			default:
				outcomes[i].Rollout = &answers[n]
			}
		}
	}, func(err error) {
		var ofFirst *temporal.ApplicationError // from a worker of an earlier build, which ignores Others
		for _, i := range others {
			if errors.As(err, &ofFirst) {
				p.checkRollouts(outcomes, rollouts, []int{i})
			} else {
				outcomes[i].Unreachable = outcomes[first].Unreachable
			}
		}
	})
}

// checkParty checks a party's requests, in batches.
func (p preflight) checkParty(outcome *PreflightOutcome, party PreflightParty, diff bool) {
	if diff {
		outcome.Diffs = make([]workloadops.Diff, len(party.Requests))
	}
	for from := 0; diff && from < len(party.Requests); from += diffBatch {
		var result workloadops.DiffResult
		batch := workloadops.PreflightRequest{Requests: party.Requests[from:min(from+diffBatch, len(party.Requests))]}
		p.ask(outcome, question{party.Queue, workloadops.ActivityDiff, batch, &result}, func() {
			copy(outcome.Diffs[from:], result.Workloads)
		}, nil)
	}
	for from := 0; from < len(party.Requests); from += preflightBatch {
		var result workloadops.PreflightResult
		batch := workloadops.PreflightRequest{Requests: party.Requests[from:min(from+preflightBatch,
			len(party.Requests))]}
		p.ask(outcome, question{party.Queue, workloadops.ActivityPreflight, batch, &result}, func() {
			outcome.Refusals = appendFrom(outcome.Refusals, result.Refusals, from)
			outcome.Warnings = appendFrom(outcome.Warnings, result.Warnings, from)
		}, nil)
	}
}

// appendFrom appends a batch's refusals; from is the index of the batch's first request.
func appendFrom(all, batch []workloadops.Refusal, from int) []workloadops.Refusal {
	for _, refusal := range batch {
		refusal.Index += from
		all = append(all, refusal)
	}
	return all
}
