// Package verbs is the one way to send a verb to a release over HTTP: it reads the request, sends it to the release's workflow, and
// answers the release as it is then. What the release refuses is 409 with its reason and the fresh state; what nobody answers is 503, to
// be repeated with the same key.
package verbs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/input"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/workflows"
)

// timeout bounds a verb from its first look to its answer.
const timeout = 40 * time.Second

// Release is a release that verbs are sent to; V is how it is answered.
type Release[V any] interface {
	// Workflow is the workflow that takes verbs now; "" when there is none.
	Workflow(ctx context.Context) (string, error)
	// Now reads the release as it is now, with the verbs that it has on record.
	Now(ctx context.Context) (V, []audit.Entry, error)
	// Closed answers a verb that no workflow takes and that the release does not know yet.
	Closed(ctx context.Context, now V) (V, error)
	// Known is the release as far as it is known when it cannot be read: in the state that its workflow has answered, for that reason.
	Known(ctx context.Context, state, reason string) V
	// Name names the release in a problem; Show adds it as it is now.
	Name(*problem.Error) *problem.Error
	Show(*problem.Error, V) *problem.Error
}

// Read reads the body of a verb. Fields are what the verb has besides actor, reason and key. A verb without a key gets one.
func Read(c echo.Context, via *schema.Via, into *workflows.VerbRequest, fields ...input.Field) error {
	common := []input.Field{
		{Name: "actor", Most: input.MaxActor, Into: &into.Actor},
		{Name: "reason", Most: input.MaxReason, Into: &into.Reason},
		{Name: "key", Most: workflows.MaxKey, Into: &into.Key},
	}
	if err := input.Fields(c, append(common, fields...)...); err != nil {
		return err
	}
	var err error
	if into.Via, err = input.FrontDoor(via); err != nil {
		return err
	}
	if into.Key == "" {
		into.Key = uuid.NewString()
	}
	return nil
}

// Carry has a release carry out a verb, and answers the release as it is then.
func Carry[V any](c echo.Context, b *backend.Backend, release Release[V], command Command) error {
	// A verb that is on its way is carried out whether or not the caller still listens.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Request().Context()), timeout)
	defer cancel()
	view, err := carry(ctx, b, release, command)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, view)
}

func carry[V any](ctx context.Context, b *backend.Backend, release Release[V], c Command) (V, error) {
	var nothing V
	workflowID, err := release.Workflow(ctx)
	if err != nil {
		return nothing, err
	}
	if workflowID == "" {
		return closed(ctx, release, c)
	}
	answer, err := Deliver(ctx, b, workflowID, c)
	switch {
	case errors.Is(err, ErrClosed):
		return closed(ctx, release, c)
	case errors.Is(err, ErrUnknown):
		return nothing, release.Name(problem.Unreachable.Because("%v: the outcome of %s is unknown; repeat with the same key, %q", ErrUnknown,
			c.Verb, c.Key))
	case err != nil:
		return nothing, err
	}
	// The answer to a repeat is that of the first time: the release may have gone on since.
	now, history, err := release.Now(ctx)
	if err != nil {
		return unread(ctx, release, c, answer, err)
	}
	if answer.Outcome == audit.Refused {
		return nothing, Refusal(release, answer.Message, now)
	}
	if _, err := earlier(release, c, now, history); err != nil {
		return nothing, err
	}
	return now, nil
}

// unread passes on what the workflow has answered when the release cannot be read after that: the verb was carried out, or refused, all
// the same.
func unread[V any](ctx context.Context, release Release[V], c Command, answer Answer, cause error) (V, error) {
	if answer.Outcome == audit.Refused {
		var nothing V
		return nothing, release.Name(problem.Conflict.Because("%s", answer.Message))
	}
	reason := fmt.Sprintf("%s was accepted: %s; the rest is not known, since the release could not be read after that: %v", c.Verb,
		answer.Message, cause)
	return release.Known(ctx, answer.State, reason), nil
}

// closed answers a verb that no workflow takes. A repeat of a verb that the release has on record gets the same answer as then.
func closed[V any](ctx context.Context, release Release[V], c Command) (V, error) {
	now, history, err := release.Now(ctx)
	if err != nil {
		return now, err
	}
	if known, err := earlier(release, c, now, history); known || err != nil {
		return now, err
	}
	return release.Closed(ctx, now)
}

// earlier is what became of the verb that the same key was first sent with; known is false when the key is new.
func earlier[V any](release Release[V], c Command, now V, history []audit.Entry) (known bool, err error) {
	i := slices.IndexFunc(history, func(e audit.Entry) bool { return e.Key == audit.KeptKey(c.Key) })
	switch {
	case i < 0:
		return false, nil
	case string(history[i].Verb) != c.Verb:
		return true, Refusal(release, fmt.Sprintf("the key %q was used for %s: nothing was done; take a new key", c.Key, history[i].Verb), now)
	case history[i].Outcome == audit.Refused:
		return true, Refusal(release, history[i].Message, now)
	}
	return true, nil
}

// Refusal is the answer to a verb that the release refuses, with the release as it is now.
func Refusal[V any](release Release[V], message string, view V) error {
	return release.Show(problem.Conflict.Because("%s", message), view)
}
