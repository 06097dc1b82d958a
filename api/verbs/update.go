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

// takenWithin is how long a workflow worker may take to accept an Update.
const takenWithin = 3 * time.Second

// answeredWithin is how long an accepted Update may take to be carried out: resume first asks the home cluster.
const answeredWithin = 15 * time.Second

// updateCutOff is the type of the server's error for an Update that was accepted by a workflow that closed before it answered.
const updateCutOff = "AcceptedUpdateCompletedWorkflow"

// What Deliver answers when no workflow took the verb.
var (
	// ErrClosed says that the workflow is closed or unknown.
	ErrClosed = errors.New("the workflow is closed")
	// ErrUnknown says that no workflow worker answered in time: whether the verb was carried out is not known.
	ErrUnknown = errors.New("no workflow worker of the engine answered in time")
)

// Command is one verb on its way to a workflow. The key and what is asked are the Update's ID: sent twice, it is one command; the same
// key with something else in it reaches the workflow, which refuses it.
type Command struct {
	Verb, Key string
	// Payload is the request as the workflow takes it.
	Payload any
}

// Answer is what a workflow says of a verb.
type Answer struct {
	Outcome audit.Outcome `json:"outcome"`
	Message string        `json:"message"`
	// State is the state of the release after it.
	State string `json:"state"`
}

// Deliver sends a verb to a workflow as an Update, and waits for its outcome. A payload that the workflow cannot take is a problem of its
// own.
func Deliver(ctx context.Context, b *backend.Backend, workflowID string, c Command) (Answer, error) {
	var answer Answer
	err := update(ctx, b, workflowID, c, &answer)
	var missing *serviceerror.NotFound
	var refused *temporal.ApplicationError
	var late *client.WorkflowUpdateServiceTimeoutOrCanceledError
	var stuck *serviceerror.WorkflowNotReady // its workflow task fails again and again, as where a worker lacks the keys of an encrypted release
	switch {
	case err == nil:
		return answer, nil
	case errors.As(err, &missing), errors.As(err, &refused) && refused.Type() == updateCutOff:
		return answer, ErrClosed
	case errors.As(err, &refused):
		return answer, problem.Malformed.Because("%s was not taken: %s", c.Verb, refused.Message())
	case errors.As(err, &late), errors.As(err, &stuck), problem.TemporalAway(err):
		return answer, ErrUnknown
	}
	return answer, fmt.Errorf("%s of %s: %w", c.Verb, workflowID, err)
}

func update(ctx context.Context, b *backend.Backend, workflowID string, c Command, answer *Answer) error {
	taken, cancel := context.WithTimeout(ctx, takenWithin)
	defer cancel()
	failpoint.Hit("command." + c.Verb + ".before")
	handle, err := b.Temporal.UpdateWorkflow(taken, client.UpdateWorkflowOptions{
		UpdateID: c.Key + "/" + c.Verb + "/" + audit.Fingerprint(c.Payload), WorkflowID: workflowID, UpdateName: c.Verb, Args: []any{c.Payload},
		WaitForStage: client.WorkflowUpdateStageAccepted,
	})
	if err != nil {
		return err
	}
	failpoint.Hit("command." + c.Verb + ".accepted")
	answered, cancelAnswered := context.WithTimeout(ctx, answeredWithin)
	defer cancelAnswered()
	err = handle.Get(answered, answer)
	failpoint.Hit("command." + c.Verb + ".after")
	return err
}
