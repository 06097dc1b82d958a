package start

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/failpoint"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/workflows"
)

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
	var started *serviceerror.WorkflowExecutionAlreadyStarted
	switch {
	case err == nil:
		s.RunID = run.GetRunID()
		return false, nil
	case errors.As(err, &started):
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
	var invalid *serviceerror.InvalidArgument
	var denied *serviceerror.PermissionDenied
	var namespace *serviceerror.NamespaceNotFound
	return errors.As(err, &invalid) || errors.As(err, &denied) || errors.As(err, &namespace)
}

// MaxDetailLines is the maximum number of lines of a release's details in the Temporal UI, which passes them in a URL.
const MaxDetailLines = 20

// Summary returns a workflow's summary, which the Temporal UI shows above its timeline. It cannot change, so it refers
// to the place that shows what the workflow waits for.
func Summary(text string) string {
	const most, where = 200, " (what it waits for: see User Metadata)"
	return phrase.Cut(text, most-len(where)) + where
}
