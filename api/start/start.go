// Package start starts releases of all kinds. A release is recorded before anything else of it exists, then takes its
// place (it claims a plan or a rollout's name, so that each has one live release), and then its workflow is started.
// Each step can be repeated: a crash in between loses nothing, and a repeat with the same key continues where the
// earlier request stopped.
package start

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/failpoint"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/instant"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/release/window"
	"slipway.io/slipway/workflows"
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

// RecordName is the name of the release's record. Without a key, each attempt uses a new one.
func (s *Start) RecordName() string {
	if s.ID == "" {
		s.ID = s.newID(time.Now().UTC())
	}
	return v1alpha1.RecordName(s.Kind, s.ID)
}

// write creates the release's record, before anything else of the release exists.
func (s *Start) write(ctx context.Context) error {
	now := time.Now().UTC().Truncate(time.Microsecond)
	name := s.RecordName()
	record, err := s.release.Record(s.ID, now)
	if err != nil {
		return err
	}
	record.Name = name
	record.Labels[v1alpha1.LabelKind], record.Labels[v1alpha1.LabelVia] = s.Kind, s.Via
	if s.Key != "" {
		record.Labels[v1alpha1.LabelIdempotencyKey] = KeyLabel(s.Key)
	}
	record.Spec.Kind, record.Spec.Subject, record.Spec.CreatedAt = s.Kind, s.Subject, instant.MicroOf(now)
	record.Spec.Actor, record.Spec.Reason, record.Spec.RequestDigest = s.Actor, s.Reason, s.digest()
	failpoint.Hit("start.record.before")
	err = s.backend.Home.CreateRecord(ctx, record)
	// a concurrent request with the same key was faster, or the random ID is in use
	if failure.Is(err, failure.Conflict) {
		if s.Key == "" {
			s.ID = ""
		}
		s.bypassCache = true
		return ErrRetry
	}
	if err != nil {
		return err
	}
	failpoint.Hit("start.record.after")
	s.Written = record
	return nil
}

// ensureRecord creates an adopted record again if the request that wrote it has withdrawn it in the meantime: a release
// cannot run without its record.
func (s *Start) ensureRecord(ctx context.Context) error {
	record := s.Written.DeepCopy()
	record.ResourceVersion, record.UID = "", ""
	err := s.backend.Home.CreateRecord(ctx, record)
	if failure.Is(err, failure.Conflict) {
		return nil
	}
	return err
}

// Withdraw deletes the record of a release that was not started. It leaves a record that an earlier request wrote to
// that request. A record that remains, because the home cluster is unreachable, reads as a release that was never
// started.
func (s *Start) Withdraw(ctx context.Context) {
	if s.Adopted {
		s.Reset()
		return
	}
	s.Discard(ctx)
}

// Discard deletes the record of a release that was not started, even if another request wrote it.
func (s *Start) Discard(ctx context.Context) {
	if s.Written == nil {
		return
	}
	failpoint.Hit("start.withdraw.before")
	err := failure.Ignore(s.backend.Home.DeleteRelease(ctx, s.Written.Name), failure.NotFound)
	failpoint.Hit("start.withdraw.after")
	if err != nil {
		s.backend.Log.Warn("the record of a release that was not started could not be deleted", "record",
			s.Written.Name, "error", err)
	}
	s.Reset()
}

// Reset makes the next attempt look for the record again, bypassing the cache.
func (s *Start) Reset() {
	s.Written, s.Adopted, s.bypassCache = nil, false, true
	if s.Key == "" {
		s.ID = ""
	}
}

// workflowTimeout is how long Temporal may take to accept a workflow.
const workflowTimeout = 10 * time.Second

// Workflow is the workflow of a release.
type Workflow struct {
	// Options contains the workflow ID, the policy for an existing workflow of that ID, and what lists and the Temporal
	// UI show.
	Options client.StartWorkflowOptions
	Type    string
	Input   any
}

// Execute starts the release's workflow. already means that a workflow of that ID already exists.
func (s *Start) Execute(ctx context.Context, w Workflow) (already bool, err error) {
	if s.Adopted {
		if err := s.ensureRecord(ctx); err != nil {
			return false, err
		}
	}
	begin, cancel := context.WithTimeout(ctx, workflowTimeout)
	defer cancel()
	w.Options.TaskQueue, w.Options.WorkflowExecutionErrorWhenAlreadyStarted = workflows.QueueEngine, true
	failpoint.Hit("start.workflow.before")
	run, err := s.backend.Temporal.ExecuteWorkflow(begin, w.Options, w.Type, w.Input)
	failpoint.Hit("start.workflow.after")
	switch {
	case err == nil:
		s.RunID = run.GetRunID()
		return false, nil
	case problem.Has[*serviceerror.WorkflowExecutionAlreadyStarted](err):
		return true, nil
	case rejected(err):
		s.Withdraw(ctx)
		return false, problem.Unreachable.Because(
			"Temporal refuses to start the %s (%v): nothing was changed; check whether the engine's worker has set "+
				"up its namespace", s.Kind, err)
	case problem.TemporalUnavailable(err):
		return false, s.release.Name(problem.Unreachable.Because(
			"Temporal does not answer (%v): whether %s was started is not known; "+
				"repeat with the same Idempotency-Key, or look at it in a minute", err, s.release), w.Options.ID)
	}
	return false, fmt.Errorf("start the workflow of %s: %w", s.release, err)
}

// rejected reports whether Temporal has definitely not started the workflow, and would not on a retry either.
func rejected(err error) bool {
	return problem.Has[*serviceerror.InvalidArgument](err) || problem.Has[*serviceerror.PermissionDenied](err) ||
		problem.Has[*serviceerror.NamespaceNotFound](err)
}

// maxDetailLines is the maximum number of lines of a release's details in the Temporal UI, which passes them in a URL.
const maxDetailLines = 20

// Details returns the description of the release in the Temporal UI, as Markdown: what it does, its parts as a list,
// and which signals control it.
func (s *Start) Details(intro string, parts []string, name, signals string) string {
	var b strings.Builder
	b.WriteString(intro)
	asked := s.Written.Spec
	if asked.Actor != "" || asked.Reason != "" {
		fmt.Fprintf(&b, "Requested by %s: %s\n\n", phrase.Inert(cmp.Or(asked.Actor, "-"), 100),
			phrase.Inert(cmp.Or(asked.Reason, "-"), 300))
	}
	for i, part := range parts[:min(len(parts), maxDetailLines)] {
		fmt.Fprintf(&b, "%d. %s\n", i+1, part)
	}
	if len(parts) > maxDetailLines {
		fmt.Fprintf(&b, "\nand more %s.\n", name)
	}
	fmt.Fprintf(&b, "\n%s, with an empty payload or `{\"actor\":\"you\",\"reason\":\"why\"}`.\nAccepted at %s.\n",
		signals, phrase.Time(asked.CreatedAt.Time))
	return b.String()
}

// Summary returns a workflow's summary, which the Temporal UI shows above its timeline. It cannot change, so it refers
// to the place that shows what the workflow waits for.
func Summary(text string) string {
	const most, where = 200, " (what it waits for: see User Metadata)"
	return phrase.Inert(text, most-len(where)) + where
}

// NeverOpens refuses times that never allow a beginning from now on: the release would wait forever. whose begins the
// reason.
func NeverOpens(field, whose string, times ...window.Times) []schema.FieldProblem {
	why, never := window.NeverOpens(time.Now(), times...)
	if !never {
		return nil
	}
	return []schema.FieldProblem{{Field: field, Reason: whose + why}}
}
