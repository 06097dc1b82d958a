package attempt

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"

	"slipway.io/slipway/activities/heartbeat"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/workloadops"
)

const (
	// pauseBetweenTries is the pause after a request that failed.
	pauseBetweenTries = time.Second
	// pauseAfterConflict is the pause after a write that came too late.
	pauseAfterConflict = 100 * time.Millisecond
	// permissionGrace is how long a lack of permission must last to be believed: an API server that has just started does not know all
	// rules yet.
	permissionGrace = 5 * time.Second
	// knownTroubleRetry is the longest pause before trouble of the system that the workflow knows is looked at again.
	knownTroubleRetry = time.Minute
)

// weigh goes on after trouble that may pass (nil), or says how the attempt ends.
func (t *Attempt) weigh(ctx context.Context, job Job, err error) error {
	var f *failure.Error
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, heartbeat.ErrSuperseded):
		return err
	case errors.As(err, &f):
		if f.Kind.Retryable() { // the cluster has answered: what there is to wait for is not the cluster
			t.reached()
			t.Note(func(p *workloadops.Progress) { p.Message = f.Message })
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
	case kube.Internal: // it says nothing about the cluster: the retry policy of the activity decides, and the server shows it as it is
		return err
	}
	if !now.Before(t.Until()) && t.forbiddenSince.IsZero() {
		return t.notReady()
	}
	return t.sleep(ctx, pauseBetweenTries, nil)
}

// forbidden is the failure of a permission that has been lacking for permissionGrace; nil before.
func (t *Attempt) forbidden(now time.Time, err error) error {
	if t.forbiddenSince.IsZero() {
		t.forbiddenSince = now
	}
	if now.Sub(t.forbiddenSince) < permissionGrace {
		return nil
	}
	return t.interrupts(failure.New(failure.Forbidden,
		"%s: this party's worker lacks a permission, which has to be granted: %s", t.terms.Subject, kube.Text(err)))
}

// unreachable is the failure of a cluster that has been out of reach for longer than the budget; nil before.
func (t *Attempt) unreachable(now time.Time, err error) error {
	var outage time.Duration
	t.Note(func(p *workloadops.Progress) {
		outage = p.Failed(now)
		p.Message = "its cluster is out of reach: " + kube.Text(err)
	})
	budget := t.terms.UnreachableBudgetSeconds
	if budget == 0 || outage <= time.Duration(budget)*time.Second {
		return nil
	}
	return t.interrupts(failure.New(failure.Unreachable,
		"%s: its cluster has been out of reach for more than %d s: %s", t.terms.Subject, budget, kube.Text(err)))
}

// interrupts notes on a failure of the system what is used of the deadline: it goes on from there later.
func (t *Attempt) interrupts(f *failure.Error) error {
	p := t.details.Now()
	f.SpentSeconds = int64(p.Elapsed() / time.Second)
	return f
}

// unlessKnown leaves a failure that the workflow knows already to the server.
func (t *Attempt) unlessKnown(f *failure.Error) error {
	if t.terms.KnownFailure == "" || f.Kind.Retryable() || cut(f.Message) != t.terms.KnownFailure {
		return f
	}
	after := t.terms.KnownFailureRetry
	if f.Kind.System() { // whoever grants the permission waits for it
		after = min(after, knownTroubleRetry)
	}
	return &failure.Error{Kind: failure.NotReady, Message: f.Message, RetryAfter: after}
}

// maxMessage is the longest message, in bytes, that is given to Temporal, whose server cuts what it keeps of a failed attempt at 4 KiB.
const maxMessage = 2000

// ApplicationError turns a failure.Error into Temporal's ApplicationError, of which workflows read the type, which is the failure's kind,
// and the details, which are failure.Details. Only a retryable kind is tried again, after RetryAfter, and counts as benign. Any other error
// is returned as it is, so that the caller's retry policy decides.
//
// What it returns must be returned from the activity as it is: the SDK does not look into a wrapped ApplicationError.
func ApplicationError(err error) error {
	var f *failure.Error
	if !errors.As(err, &f) {
		return err
	}
	options := temporal.ApplicationErrorOptions{
		NonRetryable:   !f.Kind.Retryable(),
		NextRetryDelay: f.RetryAfter,
		Details: []any{failure.Details{Holder: f.Holder, SpentSeconds: f.SpentSeconds, Owed: f.Owed, Effect: f.Effect,
			Data: dataOf(f)}},
	}
	if f.Kind.Retryable() {
		options.Category = temporal.ApplicationErrorCategoryBenign
	}
	return temporal.NewApplicationErrorWithOptions(cut(f.Message), string(f.Kind), options)
}

// RetriedError is the ApplicationError of an activity that has no budget of its own: trouble of the system is tried again for as long as
// the workflow allows, since only the workflow knows how long the release can wait.
func RetriedError(err error) error {
	var f *failure.Error
	if errors.As(err, &f) && f.Kind.System() {
		return temporal.NewApplicationError(cut(f.Message), string(f.Kind), failure.Details{})
	}
	return ApplicationError(err)
}

// dataOf is the failure's data as JSON. What cannot be written as JSON is a mistake of ours that must not hide the failure itself.
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

// cut shortens a text to maxMessage without breaking a character.
func cut(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	const mark = " …"
	end := maxMessage - len(mark)
	for end > 0 && text[end]&0xC0 == 0x80 {
		end--
	}
	return text[:end] + mark
}
