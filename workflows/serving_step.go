package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/serving"
)

// partyStep is the current step of one party. The parties of a group share an activity.
type partyStep struct {
	step   serving.Step
	cancel workflow.CancelFunc
	// stopped is true when the step is no longer wanted, ended when its outcome is known.
	stopped, ended bool
	outcome        serving.PartyOutcome
	// through is how far the parties of a StepCreate got together.
	through serving.Step
}

// spentTime is the used part of the deadline of a step.
type spentTime struct {
	step    serving.Step
	seconds int64
}

// stepActivity is the activity of each step, and its summary.
var stepActivity = map[serving.Step]struct{ name, summary string }{
	serving.StepPrepare:  {serving.ActivityPrepare, "check whether %s can run the version"},
	serving.StepApply:    {serving.ActivityApply, "bring %s to the requested version"},
	serving.StepRollback: {serving.ActivityApply, "return %s to the previous version"},
	serving.StepRemove:   {serving.ActivityRemove, "remove what %s runs"},
	serving.StepCreate:   {serving.ActivityCreate, "bring %s to the requested version, once all can run it"},
}

// groups groups the parties that begin the same step on one queue, at most serving.MaxGroup per activity: a group costs
// Temporal as much as one party. A party that has failed before is alone, so that the others do not wait for it.
func (s *servingRun) groups(begin []int) [][]int {
	type what struct {
		queue string
		step  serving.Step
		alone int
	}
	return grouped(begin, serving.MaxGroup, func(party int) what {
		key := what{s.in.Parties[party].Queue, s.machine.NextStep(party), -1}
		if !s.machine.NotBefore(party).IsZero() || s.machine.KnownFailure(party) != "" {
			key.alone = party
		}
		return key
	})
}

// start starts a step of a group by one activity, concurrently with the loop. A stopped step must end before the
// party's next begins: two writers would overwrite each other.
func (s *servingRun) start(group []int) {
	step := s.machine.NextStep(group[0])
	ctx, cancel := workflow.WithCancel(s.ctx)
	begun, parties := make([]*partyStep, len(group)), make([]serving.PartyTarget, len(group))
	request := serving.GroupRequest{Parties: make([]serving.PartyRequest, len(group))}
	for n, party := range group {
		begun[n], parties[n] = &partyStep{step: step, cancel: cancel}, s.in.Parties[party]
		s.running[party], request.Parties[n] = begun[n], s.partyRequest(party, step)
	}
	pause := s.machine.NotBefore(group[0]).Sub(workflow.Now(s.ctx))
	workflow.Go(stepContext(ctx, step, parties), func(ctx workflow.Context) {
		var result serving.GroupResult
		var err error
		if pause > 0 {
			err = sleep(ctx, pause, "before "+parties[0].Name()+" tries again")
		}
		if err == nil {
			err = perform(ctx, stepActivity[step].name, request, &result)
		}
		for n, r := range begun {
			r.ended, r.through = true, result.Through
			switch {
			case n < len(result.Parties):
				r.outcome = result.Parties[n]
			// it says nothing about the party; without an error, an operator has completed the activity by hand
			case err == nil || step == serving.StepCreate || temporal.IsCanceledError(err):
				r.outcome = serving.PartyOutcome{Unfinished: true}
			default:
				r.outcome = serving.PartyOutcome{Kind: kindOf(err), Message: message(err)}
			}
		}
	})
}

// stepContext returns the context of the activity that executes a step. Only a StepCreate is not retried: the machine
// decides what follows it.
func stepContext(ctx workflow.Context, step serving.Step, parties []serving.PartyTarget) workflow.Context {
	options := partyRun(parties[0].Queue, 0)
	options.WaitForCancellation = true
	if step == serving.StepCreate {
		options.RetryPolicy = &temporal.RetryPolicy{MaximumAttempts: 1}
	}
	return withActivity(ctx, options, fmt.Sprintf(stepActivity[step].summary, serving.SummaryNames(parties)))
}

// partyRequest returns the request for a party's step.
func (s *servingRun) partyRequest(party int, step serving.Step) serving.PartyRequest {
	target := s.in.Parties[party]
	request := serving.PartyRequest{
		ID: s.in.ID, UID: s.in.UID, Generation: s.in.Generation, Started: s.Began.UnixMilli(),
		Domain: target.Domain, Deployment: target.Deployment, Version: s.in.TargetDigest,
		Source: s.source(step == serving.StepRollback), Claim: s.claim(),
		DeadlineSeconds:          int64(s.in.Policy.ProgressDeadline() / time.Second),
		UnreachableBudgetSeconds: s.machine.UnreachableBudget(party),
		KnownFailure:             s.machine.KnownFailure(party),
	}
	if step == serving.StepRollback {
		request.Version = s.in.PreviousDigest
	}
	if spent := s.spent[party]; spent.step == step {
		request.SpentSeconds = spent.seconds
	}
	s.spent[party] = spentTime{}
	return request
}
