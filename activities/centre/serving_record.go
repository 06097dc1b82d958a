package centre

import (
	"context"
	"errors"
	"time"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/activities/failpoint"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/v1alpha1"
)

// recordServing writes what an operation was asked, for good. Repeating it changes nothing. An operation is not held up by a record
// that is refused: unrecorded says why there is none.
func (a *Activities) recordServing(ctx context.Context, in serving.NoteRequest) (unrecorded string, err error) {
	started, err := a.versions.Input(ctx, in.Source)
	if err == nil {
		failpoint.Hit("serving.record.create.before")
		err = a.store.RecordServing(ctx, serving.NewAsked(started, in.Operation, in.Started))
		failpoint.Hit("serving.record.create.after")
	}
	if refusedRecord(err) {
		return err.Error(), nil
	}
	return "", attempt.RetriedError(err)
}

// completeServing writes how an operation has ended into its record. A record that could not be written at the start is written now.
func (a *Activities) completeServing(ctx context.Context, in serving.NoteRequest) error {
	if in.Ending == nil {
		return nil
	}
	name := v1alpha1.RecordName(v1alpha1.KindServing, in.Operation.RunID)
	failpoint.Hit("serving.record.complete.before")
	err := a.store.CompleteServing(ctx, name, *in.Ending, a.recordLimit)
	if failure.Is(err, failure.NotFound) {
		var started serving.Input
		if started, err = a.versions.Input(ctx, in.Source); err == nil {
			err = a.store.RecordServing(ctx, serving.NewAsked(started, in.Operation, in.Started))
		}
		if err == nil {
			err = a.store.CompleteServing(ctx, name, *in.Ending, a.recordLimit)
		}
	}
	failpoint.Hit("serving.record.complete.after")
	switch {
	case failure.Is(err, failure.Conflict):
		return attempt.ApplicationError(&failure.Error{Kind: failure.NotReady, RetryAfter: time.Second, Message: err.Error()})
	case refusedRecord(err):
		return attempt.ApplicationError(err)
	}
	return attempt.RetriedError(err)
}

// refusedRecord says that trying again writes no record either, until somebody helps. A home cluster that is away is waited for, as for the
// status.
func refusedRecord(err error) bool {
	var typed *failure.Error
	return errors.As(err, &typed) && typed.Kind != failure.Unreachable && typed.Kind != failure.NotReady
}
