package workflows

import (
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/serving"
)

// partyStep is the current step of one party.
type partyStep struct {
	party int
	step  serving.Step
	// ctx is the step's own context, which is cancelled when the step is stopped.
	ctx     workflow.Context
	cancel  workflow.CancelFunc
	stopped bool
	ended   bool
	err     error
	// seen is what the party was last seen to run; nil if unknown.
	seen *serving.DeploymentSnapshot
	// unanswered is true if a shared activity ended without a result for this party. through is how far the parties got
	// together (StepCreate).
	unanswered bool
	through    serving.CreatePhase
}

func (r *partyStep) end(err error) { r.err, r.ended = err, true }

// stepActivity is the activity of each step, and its summary.
var stepActivity = map[serving.Step]struct{ name, summary string }{
	serving.StepPrepare:  {serving.ActivityPrepare, "check whether %s can run the version"},
	serving.StepApply:    {serving.ActivityApply, "bring %s to the requested version"},
	serving.StepRollback: {serving.ActivityApply, "return %s to the previous version"},
	serving.StepRemove:   {serving.ActivityRemove, "remove what %s runs"},
	serving.StepCreate:   {serving.ActivityCreate, "bring %s to the requested version, once all can run it"},
}

// groups groups the parties that begin the same step on one queue, at most serving.MaxGroup per activity: a group costs
// Temporal as much as one party. A retrying party is alone.
func (s *servingRun) groups(begin []int) (groups [][]int) {
	type what struct {
		queue string
		step  serving.Step
	}
	of := map[what]int{}
	for _, party := range begin {
		key := what{s.in.Parties[party].Queue, s.machine.NextStep(party)}
		alone := s.version < versionPartiesTogether || !s.machine.NotBefore(party).IsZero()
		group, known := of[key]
		if alone || !known || len(groups[group]) == serving.MaxGroup {
			group = len(groups)
			groups = append(groups, nil)
			if !alone {
				of[key] = group
			}
		}
		groups[group] = append(groups[group], party)
	}
	return groups
}

// start starts a step of several parties, concurrently with the loop. A stopped step must end before the party's next
// begins: two writers would overwrite each other.
func (s *servingRun) start(group []int) {
	begun := make([]*partyStep, len(group))
	for n, party := range group {
		ctx, cancel := workflow.WithCancel(s.ctx)
		begun[n] = &partyStep{party: party, step: s.machine.NextStep(party), ctx: ctx, cancel: cancel}
		s.running[party] = begun[n]
	}
	if len(begun) == 1 && begun[0].step != serving.StepCreate {
		s.startAlone(begun[0])
		return
	}
	s.startTogether(begun)
}

// startAlone executes a party's step by an activity of its own.
func (s *servingRun) startAlone(r *partyStep) {
	request := s.partyRequest(r)
	pause := s.machine.NotBefore(r.party).Sub(workflow.Now(s.ctx))
	workflow.Go(s.stepContext(r.ctx, r), func(ctx workflow.Context) {
		var err error
		var answer serving.GroupResult
		if pause > 0 {
			what := workflow.TimerOptions{Summary: "before " + s.in.Parties[r.party].Name() + " tries again"}
			err = workflow.NewTimerWithOptions(ctx, pause, what).Get(ctx, nil)
		}
		if err == nil {
			err = workflow.ExecuteActivity(ctx, stepActivity[r.step].name, request).Get(ctx, &answer)
		}
		r.seen = answer.OutcomeOf(0).Snapshot
		r.end(err)
	})
}

// startTogether executes a step of several parties of one queue by one activity with a single attempt. A party without
// a result repeats the step alone, unless it is stopped: a worker of an earlier build executes the first request only,
// a worker that dies returns nothing, and stopping one party stops all.
func (s *servingRun) startTogether(begun []*partyStep) {
	first := begun[0]
	request := s.partyRequest(first)
	for _, r := range begun[1:] {
		request.Others = append(request.Others, s.partyRequest(r))
	}
	ctx, cancel := workflow.WithCancel(s.ctx)
	for _, r := range begun {
		own := r.cancel
		r.cancel = func() {
			own()
			cancel()
		}
	}
	ctx = workflow.WithRetryPolicy(s.stepContext(ctx, begun...), temporal.RetryPolicy{MaximumAttempts: 1})
	workflow.Go(ctx, func(ctx workflow.Context) {
		var answer serving.GroupResult
		err := workflow.ExecuteActivity(ctx, stepActivity[first.step].name, request).Get(ctx, &answer)
		var ofFirst *temporal.ApplicationError
		for n, r := range begun {
			outcome := answer.OutcomeOf(n)
			r.through = answer.CreatePhase
			switch {
			case n == 0 && errors.As(err, &ofFirst) && ofFirst.NonRetryable():
				r.end(err)
			case err == nil && outcome.Done:
				r.seen = outcome.Snapshot
				r.end(nil)
			case err == nil && outcome.Kind != "":
				r.end(temporal.NewNonRetryableApplicationError(outcome.Message, string(outcome.Kind), nil))
			case r.stopped:
				r.end(r.ctx.Err())
			default:
				s.spent[r.party] = outcome.SpentSeconds
				if r.step != serving.StepCreate {
					s.startAlone(r)
					continue
				}
				r.unanswered = true
				r.end(nil)
			}
		}
	})
}

// stepContext returns the context of the activity that executes a step.
func (s *servingRun) stepContext(ctx workflow.Context, begun ...*partyStep) workflow.Context {
	parties := make([]serving.PartyTarget, len(begun))
	for n, r := range begun {
		parties[n] = s.in.Parties[r.party]
	}
	options := partyRun(parties[0].Queue, 0)
	options.WaitForCancellation = true
	return withActivity(ctx, options, fmt.Sprintf(stepActivity[begun[0].step].summary, serving.SummaryNames(parties)))
}

// partyRequest returns the request for a party's step.
func (s *servingRun) partyRequest(r *partyStep) serving.PartyRequest {
	target := s.in.Parties[r.party]
	request := serving.PartyRequest{
		ID: s.in.ID, UID: s.in.UID, Generation: s.in.Generation, Started: s.began.UnixMilli(),
		Domain: target.Domain, Deployment: target.Deployment, Version: s.in.TargetDigest,
		Source: s.source(r.step == serving.StepRollback), Claim: s.claim(),
		DeadlineSeconds:          int64(s.in.Policy.ProgressDeadline() / time.Second),
		UnreachableBudgetSeconds: s.machine.UnreachableBudget(r.party),
		KnownFailure:             s.machine.KnownFailure(r.party),
	}
	request.SpentSeconds, s.spent[r.party] = s.spent[r.party], 0
	if r.step == serving.StepRollback {
		request.Version = s.in.PreviousDigest
	}
	return request
}
