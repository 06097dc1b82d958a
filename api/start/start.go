// Package start is the one way to start a release, whatever its kind. A release is recorded before anything of it exists elsewhere, takes
// its place (a plan, a name) so that one place has one live release, and then its workflow is started. Each step can be repeated: a crash
// in between loses nothing, and a repeat with the same key goes on where the request before it was lost.
package start

import (
	"context"
	"errors"
	"fmt"
	"time"

	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/v1alpha1"
)

// Timeout bounds one start from its first look to its answer. It is well below Window.
const Timeout = 40 * time.Second

// Window is how long a release may be accepted before its workflow runs. Whoever starts one is given up well before (Timeout), so that a
// release without a workflow after this time was never started.
const Window = 60 * time.Second

// Release is what one kind of release adds to the way to start.
type Release interface {
	// String is how messages call it: "task shop-1".
	fmt.Stringer
	// Name names the release of that workflow in a problem.
	Name(p *problem.Error, workflowID string) *problem.Error
	// Look reads what is to be released, and refuses while another live release has the place.
	Look(ctx context.Context) error
	// Check asks everybody concerned, without a write, whether the release can be carried out. What was found fit once need not be asked
	// again.
	Check(ctx context.Context) error
	// Record is what the release is asked, under that ID and at that time: the labels that it is found by, and what the request does not say.
	Record(id string, at time.Time) (*v1alpha1.ReleaseRecord, error)
	// Begin takes the place, if it is not the workflow's ID itself, and starts the workflow.
	Begin(ctx context.Context) error
	// Began says whether the release of a record has a workflow, open or closed.
	Began(ctx context.Context, record *v1alpha1.ReleaseRecord) (bool, error)
	// Adopt takes on the release that an earlier request with the same key has recorded and not started.
	Adopt(ctx context.Context) error
	// Deleted says whether the ID is that of a release that was deleted, and whose workflow Temporal still remembers.
	Deleted(ctx context.Context, id string) (bool, error)
}

// ErrAgain says that the world was changed underneath: look at it anew.
var ErrAgain = errors.New("look again")

// Request is one request to start a release.
type Request struct {
	// Kind is the kind of the release's record, Subject what the release is of (a plan, a workload), Prefix what begins its ID.
	Kind, Subject, Prefix string
	// Actor asks for it, for this Reason, through the front door Via.
	Actor, Reason, Via string
	// Key is the Idempotency-Key, "" for none; Asked is what tells two requests under one key apart.
	Key   string
	Asked any
	// Busy is the answer when the world does not hold still.
	Busy string
}

// Start is a request on its way.
type Start struct {
	Request
	backend *backend.Backend
	release Release

	// ID is the release's; "" until it is known.
	ID string
	// Written is the release's record, once it is written; Adopted says that an earlier request with the same key wrote it.
	Written *v1alpha1.ReleaseRecord
	Adopted bool
	// doubted says that a twin of this request may have written a record that this server has not heard of.
	doubted bool
	// RunID is the run of the workflow that this request has started; "" while it has started none.
	RunID string
	// Pruned is what is left of the release that the key stands for, when its record is not kept any more.
	Pruned *v1alpha1.ReleaseRecord
}

// New begins with a request.
func New(b *backend.Backend, release Release, request Request) *Start {
	return &Start{Request: request, backend: b, release: release}
}

// Run starts the release, unless its key stands for one already.
func (s *Start) Run(ctx context.Context) error {
	for range failure.Attempts {
		if err := s.attempt(ctx); !errors.Is(err, ErrAgain) {
			return err
		}
	}
	return problem.Conflict.Because("%s", s.Busy)
}

// attempt goes through the whole protocol once: look, check, record, begin.
func (s *Start) attempt(ctx context.Context) error {
	if s.Key != "" && s.Written == nil {
		if done, err := s.lookUpKey(ctx); done || err != nil {
			return err
		}
	}
	if err := s.release.Look(ctx); err != nil {
		return s.unlessAgain(ctx, err)
	}
	if err := s.release.Check(ctx); err != nil {
		return s.unlessAgain(ctx, err)
	}
	if s.Written == nil {
		if err := s.write(ctx); err != nil {
			return err
		}
	}
	return s.release.Begin(ctx)
}

// unlessAgain withdraws the record when a refusal is final.
func (s *Start) unlessAgain(ctx context.Context, err error) error {
	if errors.Is(err, ErrAgain) {
		return err
	}
	switch twin, failed := s.twin(ctx); {
	case failed != nil:
		return failed
	case twin:
		return ErrAgain
	}
	s.Withdraw(ctx)
	return err
}
