package workflows

import (
	"encoding/json"
	"errors"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/machine"
)

// This file is about the activities of a rollout's party: how a leg starts, what stops it, and how it ends.

// takesInput is false while an action runs, which is stopped for the input if it may take long: a command applies to
// what the action has done. An approval is for what the approver has seen, so it is answered at once.
func (r *rolloutRun) takesInput(item any) bool {
	a := r.running
	if a == nil || r.answeredAtOnce(item) {
		return true
	}
	if a.action.Stoppable() && !a.stopped {
		a.stopped = true
		a.cancel()
	}
	return false
}

// answeredAtOnce reports whether an item needs no end of the running action: an approval, what is refused or changes
// nothing whatever the action has done by now, and a hint about another release.
func (r *rolloutRun) answeredAtOnce(item any) bool {
	e, is := item.(*envelope[rollout.Command])
	if s, isSignal := item.(*signal); isSignal && s.SignalName == rollout.SignalObserved {
		return !r.machine.Heeds(readObserved(s))
	} else if isSignal {
		e, is = r.menu.readSignal(s), true
	}
	if !is {
		return false
	}
	if e.unreadable != "" || e.command.Verb == rollout.VerbApprove {
		return true
	}
	trial := r.machine.Trial(r.running.action, e.command)
	before := trial.Audit().Seq
	outcome, _ := carryOutOn(trial, e, workflow.Now(r.ctx))
	return outcome == audit.Refused || trial.Audit().Seq == before
}

// legEnd returns how a leg has ended. Its completed actions travel in the details of its failure or cancellation.
func (r *rolloutRun) legEnd(a *runningAction) machine.LegEnd {
	end := machine.LegEnd{LegResult: a.leg}
	var canceled *temporal.CanceledError
	var timeout *temporal.TimeoutError
	switch {
	case a.err == nil:
		end.Stopped = a.leg.Unfinished
		return end
	// its last attempt died, for example while being cancelled
	case errors.As(a.err, &timeout):
		var progress machine.LegProgress
		if timeout.HasLastHeartbeatDetails() && timeout.LastHeartbeatDetails(&progress) == nil {
			end.Parts, end.SpentSeconds, end.Action = progress.Parts, progress.SpentSeconds(), progress.Action
		}
		// the cause is the failure of the attempt before one that no worker took up
		ran := timeout.TimeoutType() != enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START || timeout.Unwrap() != nil ||
			timeout.HasLastHeartbeatDetails()
		end.Unknown = ran && !progress.Complete
	case errors.As(a.err, &canceled):
		// Cancelled while no attempt ran: Temporal's server answers, without the heartbeat of the last one. If that
		// one ended by itself, nothing was done in this leg yet; if its worker died, more may have been done.
		if !canceled.HasDetails() || canceled.Details(&end.LegResult) != nil {
			end.Unknown = true
		}
		if end.Stopped = a.stopped; a.stopped {
			return end
		}
	default:
		details := detailsOf(a.err)
		// a panic, or a reset of the workflow, has no results
		end.Unknown = details.LegUnknown || !kindOf(a.err).Known()
		if len(details.Leg) > 0 && json.Unmarshal(details.Leg, &end.Parts) != nil {
			end.Parts, end.Unknown = nil, true
		}
		if end.Stopped = a.stopped && endsAttempt(a.err); end.Stopped {
			end.SpentSeconds = details.SpentSeconds
			return end
		}
	}
	end.Failure = new(r.failure(a.err))
	return end
}

// endsAttempt reports whether an activity that was to stop has ended without a result of its own: it was cancelled, or
// the server didn't repeat an attempt that would have been repeated.
func endsAttempt(err error) bool {
	var app *temporal.ApplicationError
	return temporal.IsCanceledError(err) || errors.As(err, &app) && !app.NonRetryable()
}

// start executes an action's activity concurrently with the loop: a leg for the party's worker, or one action for the
// centre.
func (r *rolloutRun) start(a machine.Action) {
	ctx, cancel := workflow.WithCancel(r.ctx)
	carryOut := r.atCentre
	if a.OnParty() {
		leg := r.machine.BeginLeg(&a)
		carryOut = func(ctx workflow.Context, running *runningAction) error {
			return perform(workflow.WithActivityOptions(ctx, r.legOptions(running.action)), machine.ActivityLeg, leg,
				&running.leg)
		}
	}
	running := &runningAction{action: a, cancel: cancel}
	if !a.OnParty() {
		r.machine.Start(a)
	}
	r.running = running
	workflow.Go(ctx, func(ctx workflow.Context) {
		running.err = carryOut(ctx, running)
		running.ended = true
	})
}

// legOptions let an attempt keep its worker slot while its pods make progress. If the party is known to be unreachable,
// there is no limit on the wait for its worker.
func (r *rolloutRun) legOptions(a machine.Action) workflow.ActivityOptions {
	pickUp := time.Duration(r.in.UnreachableBudgetSeconds) * time.Second
	if a.NoPickUpTimeout {
		pickUp = 0
	}
	o := options(partyRun(r.in.Queue, pickUp), a)
	o.StartToCloseTimeout = legTimeout
	return o
}

// legTimeout is longer than one attempt at a leg can take.
const legTimeout = 5 * time.Minute
