// Package verbs sends verbs to releases over HTTP: it reads the request, sends the verb to the release's workflow, and
// responds with the release as it is afterwards. A refusal by the release is status 409 with its reason and the current
// state. If no worker answers, the status is 503, and the client should repeat the request with the same key.
package verbs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"slipway.io/slipway/api/answer"
	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/input"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/failpoint"
	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/workflows"
)

// timeout is the time limit of a verb, from the first read to the response.
const timeout = 40 * time.Second

// Release is a release that accepts verbs; V is its representation in responses.
type Release[V any] interface {
	// Workflow returns the workflow that currently accepts verbs; "" if there is none.
	Workflow(ctx context.Context) (string, error)
	// Now reads the current release and its recorded verbs.
	Now(ctx context.Context) (V, []audit.Entry, error)
	// Closed answers a new verb while no workflow accepts verbs.
	Closed(ctx context.Context, now V) (V, error)
	// Fallback returns the release as far as it is known without reading it: in the state that its workflow has
	// answered, for the given reason.
	Fallback(ctx context.Context, state, reason string) V
	// Name adds the release's name to a problem; Show adds its current state.
	Name(*problem.Error) *problem.Error
	Show(*problem.Error, V) *problem.Error
}

// Read reads the body of a verb. fields are the verb's own fields, in addition to actor, reason and key. A verb without
// a key gets a random one.
func Read(c echo.Context, via *schema.Via, into *workflows.VerbRequest, fields ...input.Field) error {
	common := []input.Field{
		{Name: "actor", MaxLength: input.MaxActor, Into: &into.Actor},
		{Name: "reason", MaxLength: input.MaxReason, Into: &into.Reason},
		{Name: "key", MaxLength: workflows.MaxKey, Into: &into.Key},
	}
	if err := input.Fields(c, append(common, fields...)...); err != nil {
		return err
	}
	var err error
	if into.Via, err = input.Via(via); err != nil {
		return err
	}
	if into.Key == "" {
		into.Key = uuid.NewString()
	}
	return nil
}

// Execute sends a verb to a release and responds with the release as it is afterwards.
func Execute[V any](c echo.Context, b *backend.Backend, release Release[V], command Command) error {
	// A verb is completed even if the client disconnects.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Request().Context()), timeout)
	defer cancel()
	view, err := execute(ctx, b, release, command)
	return answer.JSON(c, view, err)
}

func execute[V any](ctx context.Context, b *backend.Backend, release Release[V], c Command) (V, error) {
	var nothing V
	workflowID, err := release.Workflow(ctx)
	if err != nil {
		return nothing, err
	}
	if workflowID == "" {
		return answerClosed(ctx, release, c)
	}
	answer, err := Send(ctx, b, workflowID, c)
	switch {
	case errors.Is(err, ErrClosed):
		return answerClosed(ctx, release, c)
	case errors.Is(err, ErrUnknown):
		return nothing, release.Name(problem.Unreachable.Because(
			"%v: the outcome of %s is unknown; repeat with the same key, %q", ErrUnknown, c.Verb, c.Key))
	case err != nil:
		return nothing, err
	}
	// A repeated verb gets its first answer: the release may have moved on since.
	now, history, err := release.Now(ctx)
	if err != nil {
		return answerUnread(ctx, release, c, answer, err)
	}
	if answer.Outcome == audit.Refused {
		return nothing, Refusal(release, answer.Message, now)
	}
	if _, err := repeated(release, c, now, history); err != nil {
		return nothing, err
	}
	return now, nil
}

// answerUnread passes on the workflow's answer if the release cannot be read afterwards: the verb took effect or was
// refused nevertheless.
func answerUnread[V any](ctx context.Context, release Release[V], c Command, answer Answer, cause error) (V, error) {
	if answer.Outcome == audit.Refused {
		var nothing V
		return nothing, release.Name(problem.Conflict.Because("%s", answer.Message))
	}
	reason := fmt.Sprintf("%s was accepted: %s; the rest is unknown, because reading the release afterwards failed: %v",
		c.Verb, answer.Message, cause)
	return release.Fallback(ctx, answer.State, reason), nil
}

// answerClosed answers a verb while no workflow accepts verbs. A verb that the release has already recorded gets the
// same answer again.
func answerClosed[V any](ctx context.Context, release Release[V], c Command) (V, error) {
	now, history, err := release.Now(ctx)
	if err != nil {
		return now, err
	}
	if known, err := repeated(release, c, now, history); known || err != nil {
		return now, err
	}
	return release.Closed(ctx, now)
}

// repeated returns the outcome of the verb that first used the same key; known is false if the key is new.
func repeated[V any](release Release[V], c Command, now V, history []audit.Entry) (known bool, err error) {
	i := slices.IndexFunc(history, func(e audit.Entry) bool { return e.Key == audit.StoredKey(c.Key) })
	switch {
	case i < 0:
		return false, nil
	case string(history[i].Verb) != c.Verb:
		return true, Refusal(release, fmt.Sprintf("the key %q was used for %s: nothing was done; take a new key", c.Key,
			history[i].Verb), now)
	case history[i].Outcome == audit.Refused: // the history doesn't distinguish a repeat from another request
		return true, Refusal(release, fmt.Sprintf("%s; this is the answer to the first %s with the key %q: send "+
			"another one with a new key", history[i].Message, c.Verb, c.Key), now)
	}
	return true, nil
}

// Refusal is the response to a refused verb, with the current release.
func Refusal[V any](release Release[V], message string, view V) error {
	return release.Show(problem.Conflict.Because("%s", message), view)
}

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
	refused, isRefused := errors.AsType[*temporal.ApplicationError](err)
	switch {
	case err == nil:
		return answer, nil
	case problem.Has[*serviceerror.NotFound](err), isRefused && refused.Type() == errTypeWorkflowCompleted:
		return answer, ErrClosed
	case isRefused:
		return answer, problem.Malformed.Because("%s was not taken: %s", c.Verb, refused.Message())
	// WorkflowNotReady: its workflow task fails repeatedly, e.g. because a worker lacks the keys of an encrypted release
	case problem.Has[*client.WorkflowUpdateServiceTimeoutOrCanceledError](err),
		problem.Has[*serviceerror.WorkflowNotReady](err), problem.TemporalUnavailable(err):
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
