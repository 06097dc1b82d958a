package workflows

import (
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/serving"
)

// partyStep is what one party does.
type partyStep struct {
	party int
	step  serving.Step
	// ctx is its own: it is cancelled when the step is stopped.
	ctx     workflow.Context
	cancel  workflow.CancelFunc
	stopped bool
	ended   bool
	err     error
	// seen is what it was seen to run in the end; nil when that is not known.
	seen *serving.Seen
	// unanswered says that it has ended beside others without an answer of its own, through how far they have come together (StepCreate).
	unanswered bool
	through    serving.Through
}

func (r *partyStep) end(err error) { r.err, r.ended = err, true }

// stepActivity is the activity that takes a step, and its summary.
var stepActivity = map[serving.Step]struct{ name, summary string }{
	serving.StepPrepare: {serving.ActivityPrepare, "ask %s whether it can run it"},
	serving.StepApply:   {serving.ActivityApply, "bring %s to the version asked"},
	serving.StepBack:    {serving.ActivityApply, "bring %s back to the version of before"},
	serving.StepRemove:  {serving.ActivityRemove, "remove what %s runs"},
	serving.StepCreate:  {serving.ActivityCreate, "bring %s to the version asked, once all can run it"},
}

// groups are those of the parties that begin a step by one activity: so many of one queue that begin the same, which costs Temporal as much as one alone. One that
// is tried again goes alone.
func (s *servingRun) groups(begin []int) (groups [][]int) {
	type what struct {
		queue string
		step  serving.Step
	}
	of := map[what]int{}
	for _, party := range begin {
		key := what{s.in.Parties[party].Queue, s.machine.Wanted(party)}
		alone := s.version < versionPartiesTogether || !s.machine.NotBefore(party).IsZero()
		group, known := of[key]
		if alone || !known || len(groups[group]) == serving.MostTogether {
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

// start has parties take a step, beside the loop. What is stopped ends before anything else begins there: two writers would undo each other.
func (s *servingRun) start(group []int) {
	begun := make([]*partyStep, len(group))
	for n, party := range group {
		ctx, cancel := workflow.WithCancel(s.ctx)
		begun[n] = &partyStep{party: party, step: s.machine.Wanted(party), ctx: ctx, cancel: cancel}
		s.running[party] = begun[n]
	}
	if len(begun) == 1 && begun[0].step != serving.StepCreate {
		s.alone(begun[0])
		return
	}
	s.together(begun)
}

// alone has a party take its step by an activity of its own.
func (s *servingRun) alone(r *partyStep) {
	request := s.partyRequest(r)
	pause := s.machine.NotBefore(r.party).Sub(workflow.Now(s.ctx))
	workflow.Go(s.stepContext(r.ctx, r), func(ctx workflow.Context) {
		var err error
		var answer serving.TogetherResult
		if pause > 0 {
			what := workflow.TimerOptions{Summary: "before " + s.in.Parties[r.party].Name() + " tries again"}
			err = workflow.NewTimerWithOptions(ctx, pause, what).Get(ctx, nil)
		}
		if err == nil {
			err = workflow.ExecuteActivity(ctx, stepActivity[r.step].name, request).Get(ctx, &answer)
		}
		r.seen = answer.Of(0).Seen
		r.end(err)
	})
}

// together has parties of one queue take their step by one attempt at one activity. Whoever has no answer from it, and is not stopped, takes it alone: a worker
// of an earlier build does what the first one is asked only, one that dies answers nothing, and to stop one stops all.
func (s *servingRun) together(begun []*partyStep) {
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
		var answer serving.TogetherResult
		err := workflow.ExecuteActivity(ctx, stepActivity[first.step].name, request).Get(ctx, &answer)
		var ofFirst *temporal.ApplicationError
		for n, r := range begun {
			outcome := answer.Of(n)
			r.through = answer.Through
			switch {
			case n == 0 && errors.As(err, &ofFirst) && ofFirst.NonRetryable():
				r.end(err)
			case err == nil && outcome.Done:
				r.seen = outcome.Seen
				r.end(nil)
			case err == nil && outcome.Kind != "":
				r.end(temporal.NewNonRetryableApplicationError(outcome.Message, string(outcome.Kind), nil))
			case r.stopped:
				r.end(r.ctx.Err())
			default:
				s.spent[r.party] = outcome.SpentSeconds
				if r.step != serving.StepCreate {
					s.alone(r)
					continue
				}
				r.unanswered = true
				r.end(nil)
			}
		}
	})
}

// stepContext is the context of the activity by which parties take a step.
func (s *servingRun) stepContext(ctx workflow.Context, begun ...*partyStep) workflow.Context {
	parties := make([]serving.PartyTarget, len(begun))
	for n, r := range begun {
		parties[n] = s.in.Parties[r.party]
	}
	options := partyRun(parties[0].Queue, 0)
	options.WaitForCancellation = true
	return withActivity(ctx, options, fmt.Sprintf(stepActivity[begun[0].step].summary, serving.Names(parties)))
}

// partyRequest is what a party is asked for its step.
func (s *servingRun) partyRequest(r *partyStep) serving.PartyRequest {
	target := s.in.Parties[r.party]
	request := serving.PartyRequest{
		ID: s.in.ID, UID: s.in.UID, Generation: s.in.Generation, Started: s.began.UnixMilli(),
		Domain: target.Domain, Deployment: target.Deployment, Version: s.in.TargetDigest,
		Source: s.source(r.step == serving.StepBack), Claim: s.claim(),
		DeadlineSeconds: int64(s.in.Policy.ProgressDeadline() / time.Second), UnreachableBudgetSeconds: s.machine.Budget(r.party),
		KnownFailure: s.machine.KnownFailure(r.party),
	}
	request.SpentSeconds, s.spent[r.party] = s.spent[r.party], 0
	if r.step == serving.StepBack {
		request.Version = s.in.PreviousDigest
	}
	return request
}
