package centre

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/activity"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/failpoint"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/v1alpha1"
)

// errUnchanged ends a change of a status that would change nothing.
var errUnchanged = failure.New(failure.Conflict, "no change")

// updateServing changes the status of a serving, and repeats the change when another client wrote it first. If the
// serving does not exist, or has another UID, the error is NotFound. why is part of the failpoints' names.
func (a *Activities) updateServing(ctx context.Context, id, uid, why string,
	change func(kd *kuscia.KusciaDeployment) error) error {
	return retryConflicts("serving "+id, func() error {
		// A cached object may be old. Only a write is trusted, which is refused then; any other outcome is checked on a
		// fresh read.
		if last, known := a.servings.take(id); known && (uid == "" || string(last.UID) == uid) && change(last) == nil {
			return a.writeServing(ctx, last, why)
		}
		kd, err := a.store.GetServing(ctx, id)
		if err != nil {
			return err
		}
		if uid != "" && string(kd.UID) != uid {
			return failure.New(failure.NotFound, "serving %s was replaced by another one of the same name", id)
		}
		if err := change(kd); err != nil {
			if err == errUnchanged { //nolint:errorlint // the same value is compared
				return nil
			}
			return err
		}
		return a.writeServing(ctx, kd, why)
	})
}

// maxServings is how many servings are cached.
const maxServings = 200

// writeServing writes the changed status of a serving.
func (a *Activities) writeServing(ctx context.Context, kd *kuscia.KusciaDeployment, why string) error {
	serving.UpdatePhases(kd)
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	kd.Status.LastReconcileTime = &now
	err := failpoint.Around("serving.status."+why, func() error { return a.store.UpdateServingStatus(ctx, kd) })
	if err == nil {
		a.servings.keep(kd.Name, kd)
	}
	return err
}

// BeginServing records that an operation on a serving has begun, and returns the operation that was running before.
func (a *Activities) BeginServing(ctx context.Context, in serving.NoteRequest) (serving.BeginResult, error) {
	var result serving.BeginResult
	err := a.updateServing(ctx, in.ID, in.UID, "begin", func(kd *kuscia.KusciaDeployment) error {
		result = serving.BeginResult{}
		former := kd.Status.Operation
		if former != nil && former.WorkflowID == in.Operation.WorkflowID && former.RunID == in.Operation.RunID {
			// A repetition: the predecessor's predecessor is no longer recorded, and the predecessor may safely be
			// asked again. A newer operation waits for this one to give way, and this one for its predecessor.
			result.Predecessor = former.Former
			return errUnchanged
		}
		if kd.Generation > in.Operation.Generation {
			result.Outdated = true
			return errUnchanged
		}
		if result.Served = otherServedVersion(kd, in); result.Served != nil {
			return errUnchanged
		}
		if former != nil && !former.Done && former.WorkflowID != "" {
			result.Predecessor = former
			result.Predecessor.Former, result.Predecessor.WaitingFor, result.Predecessor.History = nil, nil, nil
			result.Predecessor.RefusalsDropped = 0
		}
		op := in.Operation
		now := metav1.NewTime(time.Now().Truncate(time.Second))
		op.StartedAt, op.Former = &now, result.Predecessor
		serving.CarryReason(former, &op)
		serving.MarkFailed(kd, nil, nil)
		if op.Kind == serving.KindRecreate {
			serving.RecordRestoration(kd, now.Time)
		}
		serving.MarkBegun(kd, in.Parties)
		kd.Status.Operation, kd.Status.ObservedGeneration = &op, kd.Generation
		return nil
	})
	switch {
	case failure.Is(err, failure.NotFound):
		return serving.BeginResult{NotFound: true}, nil
	case err != nil:
		return result, attempt.RetriedError(err)
	case result.Outdated || result.Served != nil:
		return result, nil
	}
	result.Unrecorded, err = a.recordServing(ctx, in)
	return result, err
}

// otherServedVersion returns the last good version if it differs from the one that an operation was started with;
// otherwise nil.
func otherServedVersion(kd *kuscia.KusciaDeployment, in serving.NoteRequest) *kuscia.Served {
	served, expected := kd.Status.Served, in.Previous
	if in.Operation.Kind == serving.KindRecreate {
		expected = in.Operation.Version
	}
	if in.Operation.Kind == serving.KindDelete || served == nil || served.Digest == expected {
		return nil
	}
	return served
}

// NoteServing writes the progress of an operation, or its end. It ignores an operation that another one has replaced.
func (a *Activities) NoteServing(ctx context.Context, in serving.NoteRequest) error {
	var served *kuscia.Served
	if in.Served {
		packed, digest, err := a.versions.Packed(ctx, in.Source)
		if err != nil {
			return attempt.RetriedError(err)
		}
		served = &kuscia.Served{Generation: in.Operation.Generation, Digest: digest, Version: packed}
	}
	err := a.updateServing(ctx, in.ID, in.UID, "note", func(kd *kuscia.KusciaDeployment) error {
		now := kd.Status.Operation
		if now == nil || now.WorkflowID != in.Operation.WorkflowID || now.RunID != in.Operation.RunID {
			return errUnchanged
		}
		op := in.Operation
		op.StartedAt = now.StartedAt
		serving.CarryReason(now, &op)
		kd.Status.Operation = &op
		if served != nil {
			kd.Status.Served = served
		}
		for _, seen := range in.Observed {
			serving.Observe(kd, seen.Observations, seen.At)
		}
		serving.MarkFailed(kd, in.Parties, in.Failures)
		serving.MarkComplete(kd, in.Parties, in.Complete)
		return nil
	})
	if err != nil && !failure.Is(err, failure.NotFound) {
		return attempt.RetriedError(err)
	}
	return a.completeServing(ctx, in)
}

// ReleaseServing removes the finalizer of a KusciaDeployment that is being deleted. With an Ending the deletion has
// ended, and its record is completed.
func (a *Activities) ReleaseServing(ctx context.Context, in serving.NoteRequest) error {
	err := retryConflicts("serving "+in.ID, func() error {
		kd, err := a.store.GetServing(ctx, in.ID)
		if err != nil || string(kd.UID) != in.UID || !slices.Contains(kd.Finalizers, kuscia.Finalizer) {
			return err
		}
		return failpoint.Around("serving.release", func() error { return a.store.GuardServing(ctx, kd, false) })
	})
	if err != nil && !failure.Is(err, failure.NotFound) {
		return attempt.RetriedError(err)
	}
	return a.completeServing(ctx, in)
}

const expectedPage = 100

// ExpectedServings lists what the worker of a queue should find in its cluster, in pages of servings.
func (a *Activities) ExpectedServings(ctx context.Context, in serving.ExpectedRequest) (serving.ExpectedPage, error) {
	servings, next, err := a.store.ListServings(ctx, expectedPage, in.Cursor)
	if in.Cursor != "" && failure.Is(err, failure.Conflict) { // the cursor has expired: start again
		servings, next, err = a.store.ListServings(ctx, expectedPage, "")
	}
	if err != nil { // NotFound: this engine has no servings
		return serving.ExpectedPage{}, attempt.RetriedError(failure.Ignore(err, failure.NotFound))
	}
	page := serving.ExpectedPage{Next: next}
	for i := range servings {
		page.Expected = append(page.Expected, serving.ExpectedOf(&servings[i], in.Queue)...)
	}
	page.Expected = slices.DeleteFunc(page.Expected, func(e serving.Expected) bool {
		return len(in.Namespaces) > 0 && !slices.Contains(in.Namespaces, e.Domain)
	})
	return page, nil
}

// observe writes observations of parties' workers into the status of a serving, if they are new. reporter is the ID of
// the workflow that has them; those of a party with another queue are Refused.
func (a *Activities) observe(ctx context.Context, in serving.ObserveRequest, reporter string) error {
	queues, err := a.queuesOf(ctx, in.Observations)
	if err != nil {
		return err
	}
	var foreign []string
	err = a.updateServing(ctx, in.ID, "", "observe", func(kd *kuscia.KusciaDeployment) error {
		var own []serving.Observation
		own, foreign = serving.OwnObservations(kd, in.Observations, queues, reporter)
		if !serving.Observe(kd, own, in.At) {
			return errUnchanged
		}
		return nil
	})
	if err == nil && len(foreign) > 0 {
		return failure.New(failure.Refused, "the report of %s by %s was ignored: another queue is theirs",
			strings.Join(foreign, ", "), reporter)
	}
	return failure.Ignore(err, failure.NotFound) // observations of a deleted serving are dropped
}

// queuesOf returns the queues of the observed domains, "" for one that is unknown or can't be used.
func (a *Activities) queuesOf(ctx context.Context, observations []serving.Observation) (map[string]string, error) {
	queues := map[string]string{}
	for _, o := range observations {
		if _, read := queues[o.Domain]; read || catalog.ValidParty(o.Domain) != nil {
			continue
		}
		queue, _, err := a.store.Queue(ctx, o.Domain)
		if failure.Ignore(err, failure.Refused) != nil {
			return nil, err
		}
		queues[o.Domain] = queue
	}
	return queues, nil
}

// maxStatusWrites is how many statuses are written concurrently.
const maxStatusWrites = 8

// ObserveServings writes observations of many servings; it returns those that could not be written. It fails, to be
// retried, while the home cluster is unreachable. The ID of the workflow that calls it says whose they are: Temporal
// names it, not the caller.
func (a *Activities) ObserveServings(ctx context.Context, in serving.ObserveManyRequest) (serving.ObserveManyResult,
	error) {
	reporter := activity.GetInfo(ctx).WorkflowExecution.ID
	failed := make([]error, len(in.Servings))
	var writing errgroup.Group
	writing.SetLimit(maxStatusWrites)
	for i := range in.Servings {
		writing.Go(func() error {
			failed[i] = a.observe(ctx, in.Servings[i], reporter)
			return nil
		})
	}
	_ = writing.Wait() // each call has its own error in failed
	var result serving.ObserveManyResult
	unreachable := 0
	for i, err := range failed {
		if err == nil {
			continue
		}
		if failure.Is(err, failure.Unreachable) {
			unreachable++
		}
		var typed *failure.Error
		result.Unwritten = append(result.Unwritten, serving.Unwritten{ID: in.Servings[i].ID, Message: err.Error(),
			Final: errors.As(err, &typed) && !typed.Kind.System()})
	}
	if unreachable > 0 && unreachable == len(in.Servings) {
		return serving.ObserveManyResult{}, attempt.RetriedError(failed[0])
	}
	return result, nil
}

// recordServing permanently records what an operation was asked to do. It is idempotent. A record that is refused does
// not stop the operation: unrecorded is the reason.
func (a *Activities) recordServing(ctx context.Context, in serving.NoteRequest) (unrecorded string, err error) {
	err = a.createServingRecord(ctx, in)
	if isFinalRecordError(err) {
		return err.Error(), nil
	}
	return "", attempt.RetriedError(err)
}

func (a *Activities) createServingRecord(ctx context.Context, in serving.NoteRequest) error {
	started, err := a.versions.Input(ctx, in.Source)
	if err != nil {
		return err
	}
	return failpoint.Around("serving.record.create", func() error {
		return a.store.RecordServing(ctx, serving.NewReleaseRequest(started, in.Operation, in.Started))
	})
}

// completeServing writes the end of an operation into its record. A record that could not be written at the start is
// written now.
func (a *Activities) completeServing(ctx context.Context, in serving.NoteRequest) error {
	if in.Ending == nil {
		return nil
	}
	name := v1alpha1.RecordName(v1alpha1.KindServing, in.Operation.RunID)
	complete := func() error { return a.store.CompleteServing(ctx, name, *in.Ending, a.recordLimit) }
	err := failpoint.Around("serving.record.complete", func() error {
		err := complete()
		if failure.Is(err, failure.NotFound) {
			if err = a.createServingRecord(ctx, in); err == nil {
				err = complete()
			}
		}
		return err
	})
	switch {
	case failure.Is(err, failure.Conflict):
		return attempt.ApplicationError(&failure.Error{Kind: failure.NotReady, RetryAfter: time.Second,
			Message: err.Error()})
	case isFinalRecordError(err):
		return attempt.ApplicationError(err)
	}
	return attempt.RetriedError(err)
}

// isFinalRecordError reports whether a retry would fail as well, until an operator helps. An unreachable home cluster
// is retried, as for the status.
func isFinalRecordError(err error) bool {
	var typed *failure.Error
	return errors.As(err, &typed) && typed.Kind != failure.Unreachable && typed.Kind != failure.NotReady
}
