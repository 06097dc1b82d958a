package verbs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/failpoint"
	"slipway.io/slipway/release/audit"
)

// acceptTimeout is how long a workflow worker may take to accept an Update.
const acceptTimeout = 3 * time.Second

// outcomeTimeout is how long an accepted Update may take to complete: for example, resume first reads from the home
// cluster.
const outcomeTimeout = 15 * time.Second

// errTypeWorkflowCompleted is the type of Temporal's error for an accepted Update whose workflow closed before the
// Update completed.
const errTypeWorkflowCompleted = "AcceptedUpdateCompletedWorkflow"

// Errors of Send.
var (
	// ErrClosed means that the workflow is closed or does not exist.
	ErrClosed = errors.New("the workflow is closed")
	// ErrUnknown means that no workflow worker answered in time: whether the verb took effect is unknown.
	ErrUnknown = errors.New("no workflow worker of the engine answered in time")
)

// Command is a verb to send to a workflow. The Update ID consists of the key, the verb and the payload's fingerprint:
// sent twice, it is one command. The same key with another payload reaches the workflow, which refuses it.
type Command struct {
	Verb, Key string
	// Payload is the Update's argument.
	Payload any
}

// Answer is a workflow's answer to a verb.
type Answer struct {
	Outcome audit.Outcome `json:"outcome"`
	Message string        `json:"message"`
	// State is the release's state after the verb.
	State string `json:"state"`
}

// Send sends a verb to a workflow as an Update and waits for its outcome. A payload that the workflow rejects is
// returned as a Malformed problem.
func Send(ctx context.Context, b *backend.Backend, workflowID string, c Command) (Answer, error) {
	var answer Answer
	err := update(ctx, b, workflowID, c, &answer)
	var missing *serviceerror.NotFound
	var refused *temporal.ApplicationError
	var late *client.WorkflowUpdateServiceTimeoutOrCanceledError
	// its workflow task fails repeatedly, e.g. because a worker lacks the keys of an encrypted release
	var stuck *serviceerror.WorkflowNotReady
	switch {
	case err == nil:
		return answer, nil
	case errors.As(err, &missing), errors.As(err, &refused) && refused.Type() == errTypeWorkflowCompleted:
		return answer, ErrClosed
	case errors.As(err, &refused):
		return answer, problem.Malformed.Because("%s was not taken: %s", c.Verb, refused.Message())
	case errors.As(err, &late), errors.As(err, &stuck), problem.TemporalUnavailable(err):
		return answer, ErrUnknown
	}
	return answer, fmt.Errorf("%s of %s: %w", c.Verb, workflowID, err)
}

func update(ctx context.Context, b *backend.Backend, workflowID string, c Command, answer *Answer) error {
	taken, cancel := context.WithTimeout(ctx, acceptTimeout)
	defer cancel()
	failpoint.Hit("command." + c.Verb + ".before")
	handle, err := b.Temporal.UpdateWorkflow(taken, client.UpdateWorkflowOptions{
		UpdateID: c.Key + "/" + c.Verb + "/" + audit.Fingerprint(c.Payload), WorkflowID: workflowID, UpdateName: c.Verb,
		Args:         []any{c.Payload},
		WaitForStage: client.WorkflowUpdateStageAccepted,
	})
	if err != nil {
		return err
	}
	failpoint.Hit("command." + c.Verb + ".accepted")
	answered, cancelAnswered := context.WithTimeout(ctx, outcomeTimeout)
	defer cancelAnswered()
	err = handle.Get(answered, answer)
	failpoint.Hit("command." + c.Verb + ".after")
	return err
}
