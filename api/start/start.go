// Package start starts releases of all kinds. A release is recorded before anything else of it exists, then takes its
// place (it claims a plan or a rollout's name, so that each has one live release), and then its workflow is started.
// Each step can be repeated: a crash in between loses nothing, and a repeat with the same key continues where the
// earlier request stopped.
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

// Timeout is the time limit of one start, from the first read to the response. It is well below LaunchWindow.
const Timeout = 40 * time.Second

// LaunchWindow is the maximum time between accepting a release and starting its workflow. A start ends well before
// (Timeout), so that a release without a workflow after this time was never started.
const LaunchWindow = 60 * time.Second

// Release is the part of a start that depends on the kind of release.
type Release interface {
	// String names the release in messages: "task shop-1".
	fmt.Stringer
	// Name adds the release of that workflow to a problem.
	Name(p *problem.Error, workflowID string) *problem.Error
	// Load reads what is to be released, and refuses while another live release has the place.
	Load(ctx context.Context) error
	// Check asks the home cluster and the parties, without a write, whether the release can be executed. A successful
	// check need not be repeated.
	Check(ctx context.Context) error
	// Record creates the release's record: the labels that it is found by, and everything that Request does not
	// contain.
	Record(id string, at time.Time) (*v1alpha1.ReleaseRecord, error)
	// Launch takes the place, unless the place is the workflow ID itself, and starts the workflow.
	Launch(ctx context.Context) error
	// HasWorkflow reports whether the release of a record has a workflow, open or closed.
	HasWorkflow(ctx context.Context, record *v1alpha1.ReleaseRecord) (bool, error)
	// Adopt resumes the release that an earlier request with the same key has recorded and not started.
	Adopt(ctx context.Context) error
	// Deleted reports whether the ID belongs to a deleted release whose workflow Temporal still has.
	Deleted(ctx context.Context, id string) (bool, error)
}

// ErrRetry means that the state changed during the attempt: read it again.
var ErrRetry = errors.New("the state has changed: retry")

// Request is one request to start a release.
type Request struct {
	// Kind is the kind of the release's record, Subject what is released (a plan, a workload), Prefix the beginning of
	// its ID.
	Kind, Subject, Prefix string
	// Actor requests the release, for this Reason, through the client Via (http, cli or console).
	Actor, Reason, Via string
	// Key is the Idempotency-Key, "" for none; DigestInput distinguishes requests with the same key.
	Key         string
	DigestInput any
	// BusyMessage is the error after too many attempts that found a changed state.
	BusyMessage string
}

// Start is the processing of one request.
type Start struct {
	Request
	backend *backend.Backend
	release Release

	// ID is the release's ID; "" until it is known.
	ID string
	// Written is the release's record once it exists; Adopted means that an earlier request with the same key wrote it.
	Written *v1alpha1.ReleaseRecord
	Adopted bool
	// bypassCache is true when a concurrent request with the same key may have written a record that this server's
	// cache lacks.
	bypassCache bool
	// RunID is the run of the workflow that this request has started; "" if it has started none.
	RunID string
	// Pruned is the remaining key record of a release whose own record is no longer kept.
	Pruned *v1alpha1.ReleaseRecord
}

// New returns the Start of a request.
func New(b *backend.Backend, release Release, request Request) *Start {
	return &Start{Request: request, backend: b, release: release}
}

// Run starts the release, unless its key already has one.
func (s *Start) Run(ctx context.Context) error {
	for range failure.MaxConflictAttempts {
		if err := s.attempt(ctx); !errors.Is(err, ErrRetry) {
			return err
		}
	}
	return problem.Conflict.Because("%s", s.BusyMessage)
}

// attempt goes through the whole protocol once: load, check, record, launch.
func (s *Start) attempt(ctx context.Context) error {
	if s.Key != "" && s.Written == nil {
		if done, err := s.lookUpKey(ctx); done || err != nil {
			return err
		}
	}
	if err := s.release.Load(ctx); err != nil {
		return s.withdrawUnlessRetry(ctx, err)
	}
	if err := s.release.Check(ctx); err != nil {
		return s.withdrawUnlessRetry(ctx, err)
	}
	if s.Written == nil {
		if err := s.write(ctx); err != nil {
			return err
		}
	}
	return s.release.Launch(ctx)
}

// withdrawUnlessRetry withdraws the record when a refusal is final.
func (s *Start) withdrawUnlessRetry(ctx context.Context, err error) error {
	if errors.Is(err, ErrRetry) {
		return err
	}
	switch exists, failed := s.hasTwin(ctx); {
	case failed != nil:
		return failed
	case exists:
		return ErrRetry
	}
	s.Withdraw(ctx)
	return err
}
