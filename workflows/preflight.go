package workflows

import (
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workloadops"
)

// preflightBatch bounds one activity's payload.
const preflightBatch = 300

// diffBatch is preflightBatch for diffs, whose answers are larger, and rolloutBatch for rollouts, which a worker checks side by side.
const diffBatch, rolloutBatch = 50, 16

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
	p := preflight{ctx: ctx, asked: workflow.NewWaitGroup(ctx)}
	ofRollouts := outcomes[len(in.Parties):]
	for i, check := range rollouts {
		ofRollouts[i].Party = check.Party
	}
	for _, group := range preflightGroups(ctx, rollouts) {
		p.askRollouts(ofRollouts, rollouts, group)
	}
	for i, party := range in.Parties {
		outcomes[i].Party = party.Party
		p.askParty(&outcomes[i], party, in.Diff)
	}
	p.asked.Wait(ctx)
	return outcomes, nil
}

// preflight is one check of all parties.
type preflight struct {
	ctx   workflow.Context
	asked workflow.WaitGroup
}

// question is what one activity is asked; it answers into result.
type question struct {
	queue, activity string
	request, result any
}

// ask has a question answered, and goes on with then; or says in the outcome why the party could not be asked, and goes on with failed, which may be nil.
func (p preflight) ask(outcome *PreflightOutcome, q question, then func(), failed func(error)) {
	p.asked.Add(1)
	workflow.Go(p.ctx, func(ctx workflow.Context) {
		defer p.asked.Done()
		who := "party " + outcome.Party
		err := workflow.ExecuteActivity(withActivity(ctx, preflightOptions(q.queue), "preflight of "+who), q.activity, q.request).Get(ctx, q.result)
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

// preflightGroups are the rollouts that one activity checks each, by their indexes: so many of one queue, which costs Temporal as much as one alone. A check that
// an earlier build has begun, or may have to go on with, has an activity for each.
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
	if len(groups) == len(rollouts) || workflow.GetVersion(ctx, changeLoop, workflow.DefaultVersion, versionChecksTogether) >= versionChecksTogether {
		return groups
	}
	groups = nil
	for i := range rollouts {
		groups = append(groups, []int{i})
	}
	return groups
}

// askRollouts checks rollouts of one queue by one activity. A worker of an earlier build answers the first one only: the others are
// asked about alone then, as is one that a worker could not answer and may yet.
func (p preflight) askRollouts(outcomes []PreflightOutcome, rollouts []RolloutPreflight, group []int) {
	first, others := group[0], group[1:]
	request, result := rollouts[first].Request, &rollout.PreflightResult{}
	for _, i := range others {
		request.Others = append(request.Others, rollouts[i].Request)
	}
	p.ask(&outcomes[first], question{rollouts[first].Queue, rollout.ActivityPreflight, request, result}, func() {
		answers := append([]rollout.PreflightResult{*result}, result.Others...)
		answers[0].Others = nil
		for n, i := range group {
			switch missing := n >= len(answers) || answers[n].Alone; {
			case missing && len(group) > 1:
				p.askRollouts(outcomes, rollouts, []int{i})
			case missing:
				outcomes[i].Unreachable = "party " + outcomes[i].Party + ": its worker has no answer"
			case answers[n].Unanswered != "":
				outcomes[i].Unreachable = answers[n].Unanswered
			default:
				outcomes[i].Rollout = &answers[n]
			}
		}
	}, func(err error) {
		var ofFirst *temporal.ApplicationError // of a worker of an earlier build, which knows of no others
		for _, i := range others {
			if errors.As(err, &ofFirst) {
				p.askRollouts(outcomes, rollouts, []int{i})
			} else {
				outcomes[i].Unreachable = outcomes[first].Unreachable
			}
		}
	})
}

// askParty checks what is asked of a party, in batches.
func (p preflight) askParty(outcome *PreflightOutcome, party PreflightParty, diff bool) {
	if diff {
		outcome.Diffs = make([]workloadops.Diff, len(party.Requests))
	}
	for from := 0; diff && from < len(party.Requests); from += diffBatch {
		var result workloadops.DiffResult
		batch := workloadops.PreflightRequest{Requests: party.Requests[from:min(from+diffBatch, len(party.Requests))]}
		p.ask(outcome, question{party.Queue, workloadops.ActivityDiff, batch, &result}, func() { copy(outcome.Diffs[from:], result.Workloads) }, nil)
	}
	for from := 0; from < len(party.Requests); from += preflightBatch {
		var result workloadops.PreflightResult
		batch := workloadops.PreflightRequest{Requests: party.Requests[from:min(from+preflightBatch, len(party.Requests))]}
		p.ask(outcome, question{party.Queue, workloadops.ActivityPreflight, batch, &result}, func() {
			outcome.Refusals = appendFrom(outcome.Refusals, result.Refusals, from)
			outcome.Warnings = appendFrom(outcome.Warnings, result.Warnings, from)
		}, nil)
	}
}

// appendFrom adds what a batch was told, whose first request has that index.
func appendFrom(all, batch []workloadops.Refusal, from int) []workloadops.Refusal {
	for _, told := range batch {
		told.Index += from
		all = append(all, told)
	}
	return all
}
