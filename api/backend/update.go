package backend

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/client"

	"slipway.io/slipway/api/problem"
)

// takenWithin is how long a workflow worker may take to accept an Update.
const takenWithin = 3 * time.Second

// answeredWithin is how long an accepted Update may take to be carried out: resume first asks the home cluster.
const answeredWithin = 15 * time.Second

// WorkflowUpdate is one Update of a workflow. The key is its ID: sent twice, it is one command.
type WorkflowUpdate struct {
	WorkflowID, Name, Key string
	Request               any
}

// Update sends an Update and waits for its outcome.
func (h *Backend) Update(ctx context.Context, update WorkflowUpdate, response any) error {
	taken, cancel := context.WithTimeout(ctx, takenWithin)
	defer cancel()
	handle, err := h.Temporal.UpdateWorkflow(taken, client.UpdateWorkflowOptions{
		UpdateID: update.Key, WorkflowID: update.WorkflowID, UpdateName: update.Name, Args: []any{update.Request},
		WaitForStage: client.WorkflowUpdateStageAccepted,
	})
	if err != nil {
		return err
	}
	answered, cancelAnswered := context.WithTimeout(ctx, answeredWithin)
	defer cancelAnswered()
	return handle.Get(answered, response)
}

// UpdateUnheard says whether nobody answered an Update in time, so that its outcome is unknown.
func UpdateUnheard(err error) bool {
	var late *client.WorkflowUpdateServiceTimeoutOrCanceledError
	return errors.As(err, &late) || problem.TemporalAway(err)
}

// UpdateCutOff is the type of the server's error for an Update that was taken on by a workflow that closed before it answered.
const UpdateCutOff = "AcceptedUpdateCompletedWorkflow"
