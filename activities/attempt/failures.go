package attempt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"go.temporal.io/sdk/temporal"

	"slipway.io/slipway/activities/heartbeat"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/workload"
)

const (
	// pauseBetweenTries is the pause after a request that failed.
	pauseBetweenTries = time.Second
	// pauseAfterConflict is the pause after a write that lost against another client.
	pauseAfterConflict = 100 * time.Millisecond
	// permissionGrace is how long a permission must be missing before the activity fails: an API server that has just
	// started has not loaded all RBAC rules.
	permissionGrace = 5 * time.Second
	// knownSystemRetry is the longest pause between retries of a known failure of the system, such as a missing
	// permission.
	knownSystemRetry = time.Minute
)

// handleError returns nil, after a pause, for a problem that may pass, and otherwise the error with which the attempt
// ends.
func (t *Attempt) handleError(ctx context.Context, job Job, err error) error {
	var f *failure.Error
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, heartbeat.ErrSuperseded):
		return err
	case errors.As(err, &f):
		if f.Kind.Retryable() { // the cluster answered: the wait is for something else
			t.markReached()
			t.Note(func(p *workload.Progress) { p.Message = f.Message })
		}
		return f
	}
	now := t.options.Now()
	switch kube.Classify(err) {
	case kube.Changed:
		return t.sleep(ctx, pauseAfterConflict, nil)
	case kube.Missing:
		return job.Missing(err)
	case kube.Refused, kube.Rejected:
		return failure.New(failure.Refused, "%s: its cluster does not accept this: %s", t.terms.Subject, kube.Text(err))
	case kube.Forbidden:
		if f := t.forbidden(now, err); f != nil {
			return f
		}
	case kube.Unreachable:
		if f := t.unreachable(now, err); f != nil {
			return f
		}
	// not the cluster's error: the activity's retry policy decides, and the server shows it unchanged
	case kube.Internal:
		return err
	}
	if !now.Before(t.SlotDeadline()) && t.forbiddenSince.IsZero() {
		return t.notReady()
	}
	return t.sleep(ctx, pauseBetweenTries, nil)
}

// forbidden is the failure of a permission that has been missing for permissionGrace; nil before that.
func (t *Attempt) forbidden(now time.Time, err error) error {
	if t.forbiddenSince.IsZero() {
		t.forbiddenSince = now
	}
	if now.Sub(t.forbiddenSince) < permissionGrace {
		return nil
	}
	return t.withSpentTime(failure.New(failure.Forbidden,
		"%s: this party's worker lacks a permission, which has to be granted: %s", t.terms.Subject, kube.Text(err)))
}

// unreachable is the failure of a cluster that has been unreachable for longer than the budget; nil before that.
func (t *Attempt) unreachable(now time.Time, err error) error {
	var outage time.Duration
	t.Note(func(p *workload.Progress) {
		outage = p.RecordFailure(now)
		p.Message = "its cluster is out of reach: " + kube.Text(err)
	})
	budget := t.terms.UnreachableBudgetSeconds
	if budget == 0 || outage <= time.Duration(budget)*time.Second {
		return nil
	}
	return t.withSpentTime(failure.New(failure.Unreachable,
		"%s: its cluster has been out of reach for more than %d s: %s", t.terms.Subject, budget, kube.Text(err)))
}

// withSpentTime adds the used part of the deadline to a failure of the system: the next activity continues from there.
func (t *Attempt) withSpentTime(f *failure.Error) error {
	p := t.details.Progress()
	f.SpentSeconds = int64(p.Elapsed() / time.Second)
	return f
}

// quietIfKnown turns a failure that was already reported to the workflow into one that the server retries quietly.
func (t *Attempt) quietIfKnown(f *failure.Error) error {
	if t.terms.KnownFailure == "" || f.Kind.Retryable() || phrase.Cut(f.Message, maxMessage) != t.terms.KnownFailure {
		return f
	}
	after := t.terms.KnownFailureRetry
	if f.Kind.System() { // a user who has just granted the permission waits for it
		after = min(after, knownSystemRetry)
	}
	return &failure.Error{Kind: failure.NotReady, Message: f.Message, RetryAfter: after}
}

// maxMessage is the longest message, in bytes, that is sent to Temporal; its server cuts the stored failure of an
// attempt at 4 KiB.
const maxMessage = 2000

// ApplicationError turns a failure.Error into Temporal's ApplicationError. Its type is the failure's kind and its
// details are failure.Details; workflows read both. Only a retryable kind is retried, after RetryAfter, and counts as
// benign. Any other error is returned unchanged, so that the caller's retry policy decides.
//
// The activity must return the result without wrapping it: the SDK does not look into a wrapped ApplicationError.
func ApplicationError(err error) error {
	var f *failure.Error
	if !errors.As(err, &f) {
		return err
	}
	options := temporal.ApplicationErrorOptions{
		NonRetryable:   !f.Kind.Retryable(),
		NextRetryDelay: f.RetryAfter,
		Details: []any{failure.Details{Holder: f.Holder, SpentSeconds: f.SpentSeconds, RestorePending: f.RestorePending,
			Effect: f.Effect,
			Data:   dataOf(f)}},
	}
	if f.Kind.Retryable() {
		options.Category = temporal.ApplicationErrorCategoryBenign
	}
	return temporal.NewApplicationErrorWithOptions(phrase.Cut(f.Message, maxMessage), string(f.Kind), options)
}

// RetriedError is the ApplicationError of an activity that has no budget of its own: failures of the system are retried
// for as long as the workflow allows, since only the workflow knows how long the release can wait.
func RetriedError(err error) error {
	if f, ok := errors.AsType[*failure.Error](err); ok && f.Kind.System() {
		return temporal.NewApplicationError(phrase.Cut(f.Message, maxMessage), string(f.Kind), failure.Details{})
	}
	return ApplicationError(err)
}

// dataOf is the failure's data as JSON. Data that cannot be encoded is a bug of ours that must not hide the failure
// itself.
func dataOf(f *failure.Error) json.RawMessage {
	if f.Data == nil {
		return nil
	}
	raw, err := json.Marshal(f.Data)
	if err != nil {
		return nil
	}
	return raw
}

// WithRecover calls do on a goroutine that an activity has started, where the SDK does not recover panics: a panic is
// logged and returned as an error.
func WithRecover(log *slog.Logger, do func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("panic: %v", value)
			log.Error("panic in an activity", "panic", value, "stack", string(debug.Stack()))
		}
	}()
	return do()
}
