package workload

import (
	"context"
	"encoding/json"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workloadops"
)

// Begin claims a workload for a rollout and saves what there is to save, in one write. It fails with Claimed when another release holds it,
// with Refused when it cannot be rolled out as it is, and as Move does.
func (a *Activities) Begin(ctx context.Context, req rollout.BeginRequest) (rollout.BeginResult, error) {
	t, err := a.rolloutJob(ctx, req.Subject, req.Strategy.Style)
	if err != nil {
		return rollout.BeginResult{}, attempt.ApplicationError(err)
	}
	t.beginning = true
	t.decide = func(seen pods.Observed) pods.NextAction { return pods.Begin(t.tech, req, seen) }
	d, err := t.run(ctx)
	if err != nil || d.Begun == nil {
		return rollout.BeginResult{}, err
	}
	return *d.Begun, nil
}

// Move brings a step's number of pods to the new version. It fails with WorkloadFailed (its data are rollout.MoveResult), Drift, Gone,
// ClaimLost, Refused, Unreachable or Forbidden; NotReady is to be tried again. With WorkloadFailed, Drift or Refused the workload has been
// brought to rest before.
func (a *Activities) Move(ctx context.Context, req rollout.MoveRequest) (rollout.MoveResult, error) {
	t, err := a.rolloutJob(ctx, req.Subject, req.Style)
	if err != nil {
		return rollout.MoveResult{}, attempt.ApplicationError(err)
	}
	t.change, t.template, t.wantsNew, t.halting = req.Change, req.Template, true, req.Halt
	t.decide = func(seen pods.Observed) pods.NextAction { return pods.Move(t.tech, req, seen) }
	if !req.Halt {
		halted := req
		halted.Halt = true
		t.halt = func(seen pods.Observed) pods.NextAction { return pods.Move(t.tech, halted, seen) }
	}
	d, err := t.run(ctx)
	if err != nil {
		return rollout.MoveResult{}, err
	}
	return d.Numbers, nil
}

// Finish makes one move of finalising; its failures are those of Move.
func (a *Activities) Finish(ctx context.Context, req rollout.FinishRequest) (rollout.MoveResult, error) {
	t, err := a.rolloutJob(ctx, req.Subject, "")
	if err != nil {
		return rollout.MoveResult{}, attempt.ApplicationError(err)
	}
	t.change, t.template, t.wantsNew, t.orphans = req.Change, req.Template, req.To == rollout.SideNew,
		req.Action == rollout.FinishAutoscalers
	t.decide = func(seen pods.Observed) pods.NextAction { return pods.Finish(t.tech, req, seen) }
	d, err := t.run(ctx)
	if err != nil {
		return rollout.MoveResult{}, err
	}
	return d.Numbers, nil
}

// rolloutJob begins an attempt. Style "" is that of what is saved on the workload.
func (a *Activities) rolloutJob(ctx context.Context, s rollout.Subject, style strategy.Style) (*rolloutJob, error) {
	k, known := kindOf(s.Workload.WorkloadRef)
	switch {
	case !known:
		return nil, failure.New(failure.Refused, "%s of %s cannot be rolled out", s.Workload, s.Workload.WorkloadRef.APIVersion)
	case !a.serves(s.Workload.Namespace):
		return nil, failure.New(failure.Refused, "%s: this party's worker does not serve the namespace %s", s.Workload,
			s.Workload.Namespace)
	}
	first := style
	if first == "" {
		first = strategy.StylePartition
	}
	tech, ok := pods.TechniqueOf(s.Workload.WorkloadRef, first)
	if !ok {
		return nil, failure.New(failure.Refused, "%s cannot be rolled out in the style %s", s.Workload, first)
	}
	t := attempt.Start(ctx, a.attempts(),
		attempt.Terms{Subject: s.Workload.String(), DeadlineSeconds: s.DeadlineSeconds, SpentSeconds: s.SpentSeconds,
			UnreachableBudgetSeconds: s.UnreachableBudgetSeconds})
	return &rolloutJob{Attempt: t, a: a, subject: s, style: style, kind: k, tech: tech, nextLook: t.Now().Add(firstLook)}, nil
}

// answered is what an attempt of before was about to answer when it gave the claim back; nil when it was not.
func answered(p workloadops.Progress) *pods.NextAction {
	if len(p.Data) == 0 {
		return nil
	}
	d := pods.NextAction{}
	if json.Unmarshal(p.Data, &d.Numbers) != nil {
		return nil
	}
	d.Action, d.Reason = workloadops.ActDone, d.Numbers.Message
	return &d
}
