package centre

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/failpoint"
	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/v1alpha1"
)

// errNothingNew ends a change of a status that would change nothing.
var errNothingNew = failure.New(failure.Conflict, "nothing is new")

// onServing changes the status of a serving as it is now, and again when somebody else was faster. A serving that is not there, or is
// another one of its name, is NotFound. why tells the failpoints of the write apart.
func (a *Activities) onServing(ctx context.Context, id, uid, why string, change func(kd *kuscia.KusciaDeployment) error) error {
	return untilNoConflict("serving "+id, func() error {
		// Of what may be old only a write is believed, which is refused if it was. Whatever else it says is asked once more.
		if last, known := a.servings.take(id); known && (uid == "" || string(last.UID) == uid) && change(last) == nil {
			return a.writeServing(ctx, last, why)
		}
		kd, err := a.store.GetServing(ctx, id)
		if err != nil {
			return err
		}
		if uid != "" && string(kd.UID) != uid {
			return failure.New(failure.NotFound, "serving %s is another one by now", id)
		}
		if err := change(kd); err != nil {
			if err == errNothingNew { //nolint:errorlint // it is that very value
				return nil
			}
			return err
		}
		return a.writeServing(ctx, kd, why)
	})
}

// mostServings is how many servings are remembered.
const mostServings = 200

// writeServing writes the status of a serving that was changed.
func (a *Activities) writeServing(ctx context.Context, kd *kuscia.KusciaDeployment, why string) error {
	serving.Settle(kd)
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	kd.Status.LastReconcileTime = &now
	failpoint.Hit("serving.status." + why + ".before")
	err := a.store.UpdateServingStatus(ctx, kd)
	failpoint.Hit("serving.status." + why + ".after")
	if err == nil {
		a.servings.keep(kd.Name, kd)
	}
	return err
}

// BeginServing writes that an operation on a serving has begun, and says which one was under way before it.
func (a *Activities) BeginServing(ctx context.Context, in serving.NoteRequest) (serving.BeginResult, error) {
	var result serving.BeginResult
	err := a.onServing(ctx, in.ID, in.UID, "begin", func(kd *kuscia.KusciaDeployment) error {
		result = serving.BeginResult{}
		former := kd.Status.Operation
		if former != nil && former.WorkflowID == in.Operation.WorkflowID && former.RunID == in.Operation.RunID {
			// This is a repetition: who was before it is written down no more, and may be asked again without harm. A newer operation waits for
			// this one to give way, and this one for its predecessor.
			result.Predecessor = former.Former
			return errNothingNew
		}
		if kd.Generation > in.Operation.Generation {
			result.Newer = true
			return errNothingNew
		}
		if result.Served = servedOtherwise(kd, in); result.Served != nil {
			return errNothingNew
		}
		if former != nil && !former.Done && former.WorkflowID != "" {
			result.Predecessor = former
			result.Predecessor.Former, result.Predecessor.WaitingFor, result.Predecessor.History = nil, nil, nil
		}
		op := in.Operation
		now := metav1.NewTime(time.Now().Truncate(time.Second))
		op.StartedAt, op.Former = &now, result.Predecessor
		serving.Carry(former, &op)
		serving.MarkFailed(kd, nil, nil)
		if op.Kind == serving.KindRecreate {
			serving.Restoring(kd, now.Time)
		}
		serving.Begun(kd, in.Parties)
		kd.Status.Operation, kd.Status.ObservedGeneration = &op, kd.Generation
		return nil
	})
	switch {
	case failure.Is(err, failure.NotFound):
		return serving.BeginResult{Gone: true}, nil
	case err != nil:
		return result, attempt.RetriedError(err)
	case result.Newer || result.Served != nil:
		return result, nil
	}
	result.Unrecorded, err = a.recordServing(ctx, in)
	return result, err
}

// servedOtherwise is the last good version when it is another one than an operation was started with, else nil.
func servedOtherwise(kd *kuscia.KusciaDeployment, in serving.NoteRequest) *kuscia.Served {
	served, taken := kd.Status.Served, in.Previous
	if in.Operation.Kind == serving.KindRecreate {
		taken = in.Operation.Version
	}
	if in.Operation.Kind == serving.KindDelete || served == nil || served.Digest == taken {
		return nil
	}
	return served
}

// NoteServing writes how an operation stands, or that it is over. An operation whose place another has taken has nothing to say any more.
func (a *Activities) NoteServing(ctx context.Context, in serving.NoteRequest) error {
	var served *kuscia.Served
	if in.Served {
		packed, digest, err := a.versions.Packed(ctx, in.Source)
		if err != nil {
			return attempt.RetriedError(err)
		}
		served = &kuscia.Served{Generation: in.Operation.Generation, Digest: digest, Version: packed}
	}
	err := a.onServing(ctx, in.ID, in.UID, "note", func(kd *kuscia.KusciaDeployment) error {
		now := kd.Status.Operation
		if now == nil || now.WorkflowID != in.Operation.WorkflowID || now.RunID != in.Operation.RunID {
			return errNothingNew
		}
		op := in.Operation
		op.StartedAt = now.StartedAt
		serving.Carry(now, &op)
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

// ReleaseServing lets a KusciaDeployment that is being deleted go. With an Ending the deletion is over, and its record is completed.
func (a *Activities) ReleaseServing(ctx context.Context, in serving.NoteRequest) error {
	err := untilNoConflict("serving "+in.ID, func() error {
		kd, err := a.store.GetServing(ctx, in.ID)
		if err != nil || string(kd.UID) != in.UID || !slices.Contains(kd.Finalizers, kuscia.Finalizer) {
			return err
		}
		failpoint.Hit("serving.release.before")
		err = a.store.GuardServing(ctx, kd, false)
		failpoint.Hit("serving.release.after")
		return err
	})
	if err != nil && !failure.Is(err, failure.NotFound) {
		return attempt.RetriedError(err)
	}
	return a.completeServing(ctx, in)
}

const expectedPage = 100

// ExpectedServings lists what the worker of a queue should find in its cluster, one page of servings at a time.
func (a *Activities) ExpectedServings(ctx context.Context, in serving.ExpectedRequest) (serving.ExpectedPage, error) {
	servings, next, err := a.store.ListServings(ctx, expectedPage, in.Cursor)
	if in.Cursor != "" && failure.Is(err, failure.Conflict) { // the API server has forgotten the cursor: it begins anew
		servings, next, err = a.store.ListServings(ctx, expectedPage, "")
	}
	if failure.Is(err, failure.NotFound) {
		return serving.ExpectedPage{}, nil // this engine has no servings
	}
	if err != nil {
		return serving.ExpectedPage{}, attempt.RetriedError(err)
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

// ObserveServing takes what parties' workers have seen over into the status, where it is new.
func (a *Activities) ObserveServing(ctx context.Context, in serving.ObserveRequest) error {
	return attempt.RetriedError(a.observe(ctx, in))
}

func (a *Activities) observe(ctx context.Context, in serving.ObserveRequest) error {
	err := a.onServing(ctx, in.ID, "", "observe", func(kd *kuscia.KusciaDeployment) error {
		if !serving.Observe(kd, in.Observations, in.At) {
			return errNothingNew
		}
		return nil
	})
	return failure.Ignore(err, failure.NotFound) // what is left of a serving that is gone is nobody's news
}

// statusesAtOnce is how many statuses are written at once.
const statusesAtOnce = 8

// ObserveServings does what ObserveServing does for many, and says which could not be written. It fails, to be tried again, while the home cluster is away.
func (a *Activities) ObserveServings(ctx context.Context, in serving.ObserveManyRequest) (serving.ObserveManyResult, error) {
	failed := make([]error, len(in.Servings))
	var writing errgroup.Group
	writing.SetLimit(statusesAtOnce)
	for i := range in.Servings {
		writing.Go(func() error {
			failed[i] = a.observe(ctx, in.Servings[i])
			return nil
		})
	}
	_ = writing.Wait() // each says for itself how it went
	var result serving.ObserveManyResult
	away := 0
	for i, err := range failed {
		if err == nil {
			continue
		}
		if failure.Is(err, failure.Unreachable) {
			away++
		}
		var typed *failure.Error
		result.Left = append(result.Left, serving.Unwritten{ID: in.Servings[i].ID, Message: err.Error(), Final: errors.As(err, &typed) && !typed.Kind.System()})
	}
	if away > 0 && away == len(in.Servings) {
		return serving.ObserveManyResult{}, attempt.RetriedError(failed[0])
	}
	return result, nil
}

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
