// Package failure types the ways in which an activity can fail: business or system, retryable or final.
// The activities turn these into Temporal errors of the same type names; the workflows read the type names only.
package failure

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"slipway.io/slipway/release/revision"
)

// Kind is the type name of a failure, stable: recorded histories carry it.
type Kind string

const (
	// Refused: the object or the request cannot be released this way; business, final.
	Refused Kind = "Refused"
	// WorkloadFailed: the pods did not get where they should within the deadline; business, final.
	WorkloadFailed Kind = "WorkloadFailed"
	// Claimed: another release holds the workload; business, final for the worker. The workflow decides on taking over. Holder carries its
	// claim.
	Claimed Kind = "Claimed"
	// ClaimLost: somebody took the claim of this very operation away; business, final.
	ClaimLost Kind = "ClaimLost"
	// Unreachable: the cluster was out of reach past its budget; system, final for this attempt chain: the release is interrupted.
	Unreachable Kind = "Unreachable"
	// Forbidden: permissions were lost; system, the release is interrupted.
	Forbidden Kind = "Forbidden"
	// NotReady: not there yet; retryable, benign.
	NotReady Kind = "NotReady"
	// NotFound: a record or an object that should exist does not; business, final.
	NotFound Kind = "NotFound"
	// Conflict: somebody else changed the object in the meantime, or it is already there; read it again and decide anew.
	Conflict Kind = "Conflict"
	// Drift: somebody else has edited what a release owns for its duration; it is not fought over: a person decides. Business, final.
	Drift Kind = "Drift"
	// Gone: the workload was deleted while it was being released; business, final.
	Gone Kind = "Gone"
)

// System says whether the failure is trouble of the system (the release is interrupted and can be resumed) rather than of the business.
func (k Kind) System() bool { return k == Unreachable || k == Forbidden }

// Retryable says whether the same attempt may succeed later without anybody's help.
func (k Kind) Retryable() bool { return k == NotReady }

// Error is a typed failure. Message names the object and says what to do next.
type Error struct {
	Kind    Kind
	Message string
	// Holder is the claim in the way, for Claimed.
	Holder string
	// SpentSeconds is what the operation has used of its deadline so far, for system failures that are resumed later.
	SpentSeconds int64
	// Owed says that what was borrowed could not be given back: the workflow owes it.
	Owed bool
	// Effect is what the operation has done all the same; nil: nothing, as far as is known.
	Effect *Effect
	// Data are numbers that travel with the failure, of a type that the activity's message says (rollout.MoveResult of a Move); nil: none.
	Data any
	// RetryAfter is how long to wait before the next attempt, for NotReady; zero leaves it to the caller.
	RetryAfter time.Duration
}

func (e *Error) Error() string { return e.Message }

// New makes a failure of that kind.
func New(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// Details are what travels with a failure from an activity to its workflow.
type Details struct {
	Holder       string `json:"holder,omitempty"`
	SpentSeconds int64  `json:"spentSeconds,omitempty"`
	Owed         bool   `json:"owed,omitempty"`
	// Effect is what the operation has done all the same.
	Effect *Effect `json:"effect,omitempty"`
	// Data is Error.Data as JSON.
	Data json.RawMessage `json:"data,omitempty"`
	// Leg is what the leg of a rollout had done before ([]machine.Part as JSON).
	Leg json.RawMessage `json:"leg,omitempty"`
}

// Effect is what an operation has done to a workload before it failed.
type Effect struct {
	Changed      bool   `json:"changed"`
	FromRevision string `json:"fromRevision,omitempty"`
	ToRevision   string `json:"toRevision,omitempty"`
	FromReplicas *int32 `json:"fromReplicas,omitempty"`
	ToReplicas   *int32 `json:"toReplicas,omitempty"`
	FromPackage  string `json:"fromPackage,omitempty"`
	ToPackage    string `json:"toPackage,omitempty"`
	// Before and After are the revisions before and after; nil where the operation changes no pod template.
	Before *revision.Revision `json:"before,omitempty"`
	After  *revision.Revision `json:"after,omitempty"`
}

// Is says whether err is, or wraps, a failure of that kind.
func Is(err error, kind Kind) bool {
	var typed *Error
	return errors.As(err, &typed) && typed.Kind == kind
}

// Ignore is err, unless that is a failure of one of these kinds.
func Ignore(err error, kinds ...Kind) error {
	for _, kind := range kinds {
		if Is(err, kind) {
			return nil
		}
	}
	return err
}

// Attempts is how often a change is made to an object that others change at the same time.
const Attempts = 5

// UntilNoConflict makes a change that begins with a look at its object, and again when somebody else was faster: a Conflict in the end.
func UntilNoConflict(object string, change func() error) error {
	for range Attempts {
		if err := change(); !Is(err, Conflict) {
			return err
		}
	}
	return New(Conflict, "%s keeps being changed by somebody else: repeat", object)
}
