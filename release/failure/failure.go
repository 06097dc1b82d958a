// Package failure defines the typed failures of activities: business or system, retryable or final. The activities turn
// them into Temporal errors of the same type names; the workflows read only the type names.
package failure

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"slipway.io/slipway/release/revision"
)

// Kind is the type name of a failure. The names are stable, since recorded histories contain them.
type Kind string

const (
	// Refused: the object cannot be released as requested; business, final.
	Refused Kind = "Refused"
	// WorkloadFailed: the pods did not reach the requested state within the deadline; business, final.
	WorkloadFailed Kind = "WorkloadFailed"
	// Claimed: another release holds the workload; business, final for the worker. The workflow decides whether to take
	// over. Holder is that release's claim.
	Claimed Kind = "Claimed"
	// ClaimLost: another client removed this operation's claim; business, final.
	ClaimLost Kind = "ClaimLost"
	// Unreachable: the cluster was unreachable for longer than its budget; system, final for this activity: the release
	// is interrupted.
	Unreachable Kind = "Unreachable"
	// Forbidden: permissions were lost; system, the release is interrupted.
	Forbidden Kind = "Forbidden"
	// NotReady: the requested state is not reached yet; retryable, benign.
	NotReady Kind = "NotReady"
	// NotFound: a record or an object that should exist does not; business, final.
	NotFound Kind = "NotFound"
	// Conflict: another client has changed the object since it was read, or it already exists; read it and decide
	// again.
	Conflict Kind = "Conflict"
	// Drift: another client has changed something that a release has borrowed. The release does not overwrite it; a
	// user decides. Business, final.
	Drift Kind = "Drift"
	// Gone: the workload was deleted while it was being released; business, final.
	Gone Kind = "Gone"
)

// Known reports whether this is one of the kinds above; an error that no activity has classified has another type.
func (k Kind) Known() bool {
	switch k {
	case Refused, WorkloadFailed, Claimed, ClaimLost, Unreachable, Forbidden, NotReady, NotFound, Conflict, Drift, Gone:
		return true
	}
	return false
}

// System reports whether this is a system failure (the release is interrupted and can be resumed) rather than a
// business failure.
func (k Kind) System() bool { return k == Unreachable || k == Forbidden }

// Retryable reports whether a retry may succeed without an operator.
func (k Kind) Retryable() bool { return k == NotReady }

// Error is a typed failure. Message names the object, the problem and what to do next.
type Error struct {
	Kind    Kind
	Message string
	// Holder is the claim of the release that holds the object, for Claimed.
	Holder string
	// SpentSeconds is how much of its deadline the operation has used, for system failures, which are resumed later.
	SpentSeconds int64
	// RestorePending means that what was borrowed could not be restored: the workflow has to do so.
	RestorePending bool
	// Effect is what the operation changed before it failed; nil: nothing, as far as is known.
	Effect *Effect
	// Data is additional data of the failure, whose type depends on the activity (rollout.MoveResult for a Move); nil:
	// none.
	Data any
	// RetryAfter is the time until the next attempt, for NotReady; zero: the caller decides.
	RetryAfter time.Duration
}

func (e *Error) Error() string { return e.Message }

// New returns a failure of that kind.
func New(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// Details is the part of a failure that an activity passes to its workflow.
type Details struct {
	Holder         string `json:"holder,omitempty"`
	SpentSeconds   int64  `json:"spentSeconds,omitempty"`
	RestorePending bool   `json:"owed,omitempty"`
	// Effect is Error.Effect.
	Effect *Effect `json:"effect,omitempty"`
	// Data is Error.Data as JSON.
	Data json.RawMessage `json:"data,omitempty"`
	// Leg is what the leg of a rollout had completed before ([]machine.Part as JSON). LegUnknown is true if more may
	// have been done.
	Leg        json.RawMessage `json:"leg,omitempty"`
	LegUnknown bool            `json:"legUnknown,omitempty"`
}

// Effect is what an operation changed on a workload before it failed.
type Effect struct {
	Changed bool `json:"changed"`
	revision.Change
}

// Is reports whether err is, or wraps, a failure of that kind.
func Is(err error, kind Kind) bool {
	typed, is := errors.AsType[*Error](err)
	return is && typed.Kind == kind
}

// Ignore returns err, or nil if it is a failure of one of these kinds.
func Ignore(err error, kinds ...Kind) error {
	if slices.ContainsFunc(kinds, func(kind Kind) bool { return Is(err, kind) }) {
		return nil
	}
	return err
}

// MaxConflictAttempts is how often RetryOnConflict tries a change.
const MaxConflictAttempts = 5

// RetryOnConflict runs a change that begins with a read of its object, and repeats it if another client changed the
// object meanwhile. After the last attempt it returns a Conflict.
func RetryOnConflict(object string, change func() error) error {
	for range MaxConflictAttempts {
		if err := change(); !Is(err, Conflict) {
			return err
		}
	}
	return New(Conflict, "%s keeps being changed by other clients: try again", object)
}
