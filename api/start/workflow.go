package start

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/failpoint"
	"slipway.io/slipway/workflows"
)

// workflowTimeout is how long Temporal may take to accept a workflow.
const workflowTimeout = 10 * time.Second

// Workflow is the workflow of a release.
type Workflow struct {
	// Options has the ID, what to do with one of that ID that is there, and what lists and the Temporal UI show.
	Options client.StartWorkflowOptions
	Type    string
	Input   any
}

// Execute starts the release's workflow. already says that one of that ID was started before.
func (s *Start) Execute(ctx context.Context, w Workflow) (already bool, err error) {
	if s.Adopted {
		if err := s.keep(ctx); err != nil {
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
	case neverStarted(err):
		s.Withdraw(ctx)
		return false, problem.Unreachable.Because("Temporal refuses to start the %s (%v): nothing was changed; see whether the engine's worker has set it up", s.Kind, err)
	case problem.TemporalAway(err):
		return false, s.release.Name(problem.Unreachable.Because("Temporal does not answer (%v): whether %s was started is not known; "+
			"repeat with the same Idempotency-Key, or look at it in a minute", err, s.release), w.Options.ID)
	}
	return false, fmt.Errorf("start the workflow of %s: %w", s.release, err)
}

// neverStarted says whether Temporal has surely not started the workflow, nor would if it were asked again.
func neverStarted(err error) bool {
	var invalid *serviceerror.InvalidArgument
	var denied *serviceerror.PermissionDenied
	var namespace *serviceerror.NamespaceNotFound
	return errors.As(err, &invalid) || errors.As(err, &denied) || errors.As(err, &namespace)
}

// Counted is a number of things: "1 step", "2 steps".
func Counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// MaxDetailLines bounds the page of a task in the Temporal UI, which travels in an address.
const MaxDetailLines = 20

// OrDash is the text, or a dash where there is none.
func OrDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// Cut keeps a text at most so many bytes long.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len("…")], "") + "…"
}

// Summary is a workflow's summary, which the Temporal UI shows above its timeline. It cannot change, so it says where to find what the
// workflow waits for.
func Summary(text string) string {
	const most, where = 200, " (what it waits for: see User Metadata)"
	return Cut(text, most-len(where)) + where
}
