package centre

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/activities/heartbeat"
	"slipway.io/slipway/failpoint"
	"slipway.io/slipway/release/author"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/trafficrouting"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/store"
)

// holdRetry is the retry interval of a rollout that waits for another one to restore the routes.
const holdRetry = 2 * time.Second

// HoldTraffic records a rollout as a holder of a TrafficRouting and returns the routing's content. Holders whose
// workflow is dead are dropped. While the last holder restores the routes, the next one waits; at its deadline it fails
// with WorkloadFailed.
func (a *Activities) HoldTraffic(ctx context.Context, in rollout.HoldTrafficRequest) (rollout.HoldTrafficResult,
	error) {
	details, stop := heartbeat.Start(ctx, workload.Progress{})
	succeeded := false
	defer func() { stop(succeeded) }()
	var result rollout.HoldTrafficResult
	err := a.updateTraffic(ctx, in, func(t *v1alpha1.TrafficRouting) error {
		shared, err := sharedTraffic(t)
		if err != nil {
			return err
		}
		engine, err := a.store.Engine(ctx)
		if err != nil {
			return err
		}
		result = rollout.HoldTrafficResult{Shared: shared, Claim: v1alpha1.TrafficClaim(in.Namespace, in.Name, engine)}
		if other := trafficrouting.HeldByAnother(t.Status.Holders, engine); other != "" {
			return failure.New(failure.Refused, "%s is held by %s", store.TrafficObject(in.Namespace, in.Name), other)
		}
		others := without(t.Status.Holders, in.Holder)
		held := len(others) < len(t.Status.Holders)
		switch {
		case t.Deleting && !held:
			return failure.New(failure.Refused, "%s is being deleted: create it again after it is deleted, then "+
				"start the rollout again", store.TrafficObject(in.Namespace, in.Name))
		case t.Status.Phase == v1alpha1.TrafficFinalizing && len(others) > 0:
			return &failure.Error{Kind: failure.NotReady, RetryAfter: holdRetry,
				Message: fmt.Sprintf("%s gives its routes back for %s: this rollout begins after that",
					store.TrafficObject(in.Namespace, in.Name), workflowsOf(others))}
		case held && t.Status.Phase != v1alpha1.TrafficFinalizing:
			return nil
		}
		unchecked, err := a.unchecked(ctx, t)
		if err != nil {
			return err
		}
		if unchecked != "" && a.requireGate && !held {
			return failure.New(failure.Refused, "%s: %s", store.TrafficObject(in.Namespace, in.Name),
				author.Refusal(unchecked))
		}
		if err := a.store.GuardTraffic(ctx, t, true); err != nil {
			return err
		}
		t.Status.Holders = append(others, in.Holder)
		t.Status.Phase, t.Status.Message = trafficrouting.HeldStatus(t, workflowsOf(t.Status.Holders), unchecked)
		return a.writeTraffic(ctx, t)
	})
	if err != nil {
		return rollout.HoldTrafficResult{}, attempt.RetriedError(enforceDeadline(details, in, err))
	}
	succeeded = true
	return result, nil
}

// enforceDeadline counts the time of waiting for other holders, and ends the wait at its deadline. Time in which the
// home cluster or Temporal does not answer is not counted.
func enforceDeadline(details *heartbeat.Details[workload.Progress], in rollout.HoldTrafficRequest, err error) error {
	now, deadline := time.Now(), time.Duration(in.DeadlineSeconds)*time.Second
	var f *failure.Error
	switch {
	case !errors.As(err, &f) || f.Kind.System():
		details.Note(func(p *workload.Progress) { p.RecordFailure(now) })
		return err
	case f.Kind != failure.NotReady:
		return err
	}
	details.Note(func(p *workload.Progress) {
		p.RecordRead(now)
		p.RecordReachable()
		p.Message = f.Message
	})
	if waited := details.Progress().Elapsed(); deadline > 0 && waited >= deadline {
		return failure.New(failure.WorkloadFailed, "waited for %d s in vain: %s", int64(waited/time.Second), f.Message)
	}
	return err
}

// LeaveTraffic removes a holder. The last one stays, in phase Finalizing, until it has restored the routes and reports
// that with Restored.
func (a *Activities) LeaveTraffic(ctx context.Context, in rollout.LeaveTrafficRequest) (rollout.LeaveTrafficResult,
	error) {
	engine, err := a.store.Engine(ctx)
	if err != nil {
		return rollout.LeaveTrafficResult{}, attempt.RetriedError(err)
	}
	result := rollout.LeaveTrafficResult{Claim: v1alpha1.TrafficClaim(in.Namespace, in.Name, engine)}
	err = a.updateTraffic(ctx, in.HoldTrafficRequest, func(t *v1alpha1.TrafficRouting) error {
		others := without(t.Status.Holders, in.Holder)
		if len(others) == len(t.Status.Holders) {
			return nil // it has left before
		}
		if len(others) > 0 || in.Restored {
			return a.removeHolder(ctx, t, others)
		}
		shared, err := sharedTraffic(t)
		if err != nil {
			return err
		}
		result.Restore, result.Shared = true, shared
		if t.Status.Phase == v1alpha1.TrafficFinalizing {
			return nil
		}
		t.Status.Phase, t.Status.Message = v1alpha1.TrafficFinalizing,
			workflowsOf([]string{in.Holder})+" gives the routes back"
		return a.writeTraffic(ctx, t)
	})
	if err != nil && !in.Restored && failure.Is(err, failure.NotFound) {
		// The TrafficRouting was force-deleted although it was held: the caller restores what it has recorded itself.
		result.Restore, result.Shared = true, rollout.SharedTraffic{Name: in.Name}
		return result, nil
	}
	return result, attempt.RetriedError(failure.Ignore(err, failure.NotFound))
}

// removeHolder writes the remaining holders of a TrafficRouting; without any it is idle and may be deleted.
func (a *Activities) removeHolder(ctx context.Context, t *v1alpha1.TrafficRouting, holders []string) error {
	unchecked, err := a.unchecked(ctx, t)
	if err != nil {
		return err
	}
	t.Status.Holders = holders
	t.Status.Phase, t.Status.Message = trafficrouting.HeldStatus(t, workflowsOf(holders), unchecked)
	if len(holders) == 0 {
		t.Status.Phase, t.Status.Message = trafficrouting.IdleStatus(unchecked)
	}
	if err := a.writeTraffic(ctx, t); err != nil {
		return err
	}
	if len(holders) > 0 {
		return nil
	}
	return failure.Ignore(a.store.GuardTraffic(ctx, t, false), failure.NotFound) // a deleted one only waited for this
}

// unchecked returns why nothing proves that the authors of a TrafficRouting may change what it refers to; "" if it is
// proved.
func (a *Activities) unchecked(ctx context.Context, t *v1alpha1.TrafficRouting) (string, error) {
	if a.authors == nil {
		return "", nil
	}
	why, err := a.authors(ctx, trafficrouting.AuthoredBy(t))
	return why, store.AsFailure(err, "the check of authors of "+store.TrafficObject(t.Namespace, t.Name))
}

func (a *Activities) writeTraffic(ctx context.Context, t *v1alpha1.TrafficRouting) error {
	return failpoint.Around("traffic.hold", func() error { return a.store.SetTrafficStatus(ctx, t) })
}

// updateTraffic changes a TrafficRouting, without its dead holders, and repeats the change when another client wrote it
// first.
func (a *Activities) updateTraffic(ctx context.Context, in rollout.HoldTrafficRequest,
	do func(t *v1alpha1.TrafficRouting) error) error {
	return retryConflicts(store.TrafficObject(in.Namespace, in.Name), func() error {
		t, err := a.store.GetTrafficRouting(ctx, in.Namespace, in.Name)
		if err != nil {
			return err
		}
		if t.Status.Holders, err = a.livingHolders(ctx, t.Status.Holders, in.Holder); err != nil {
			return err
		}
		return do(t)
	})
}

func without(holders []string, holder string) []string {
	return slices.DeleteFunc(slices.Clone(holders), func(claim string) bool { return claim == holder })
}

func sharedTraffic(t *v1alpha1.TrafficRouting) (rollout.SharedTraffic, error) {
	shared, wrong := trafficrouting.DecodeSpec(t.Name, t.Spec)
	if len(wrong) > 0 {
		return shared, failure.New(failure.Refused, "%s is invalid, correct it: %v",
			store.TrafficObject(t.Namespace, t.Name), wrong)
	}
	return shared, nil
}
