// Package verbs is the one way to send a verb to a release over HTTP: it reads the request, sends it to the release's workflow, and answers
// the release as it is then. What the release refuses is 409 with its reason and the fresh state; what nobody answers is 503, to be repeated
// with the same key.
package verbs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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
	// Now reads the release as it is now.
	Now(ctx context.Context) (Snapshot[V], error)
	// Closed answers a verb that no workflow takes and that the release does not know yet.
	Closed(ctx context.Context, now Snapshot[V]) (V, error)
	// Name names the release in a problem; Show adds it as it is now.
	Name(*problem.Error) *problem.Error
	Show(*problem.Error, V) *problem.Error
}

// Snapshot is a release as it was found, with the verbs that it has on record.
type Snapshot[V any] struct {
	View    V
	History []Entry
}

// Entry is a verb that a release has on record.
type Entry struct {
	Key, Verb, Message string
	Refused            bool
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
		return nothing, release.Name(problem.Unreachable.Because("%v: the outcome of %s is unknown; repeat with the same key, %q", ErrUnknown, c.Verb, c.Key))
	case err != nil:
		return nothing, err
	}
	// The answer to a repeat is that of the first time: the release may have gone on since.
	now, err := release.Now(ctx)
	switch {
	case err != nil:
		return nothing, err
	case answer.Outcome == audit.Refused:
		return nothing, Refusal(release, answer.Message, now.View)
	}
	if _, err := earlier(release, c, now); err != nil {
		return nothing, err
	}
	return now.View, nil
}

// closed answers a verb that no workflow takes. A repeat of a verb that the release has on record gets the same answer as then.
func closed[V any](ctx context.Context, release Release[V], c Command) (V, error) {
	now, err := release.Now(ctx)
	if err != nil {
		return now.View, err
	}
	if known, err := earlier(release, c, now); known || err != nil {
		return now.View, err
	}
	return release.Closed(ctx, now)
}

// earlier is what became of the verb that the same key was first sent with; known is false when the key is new.
func earlier[V any](release Release[V], c Command, now Snapshot[V]) (known bool, err error) {
	for _, entry := range now.History {
		switch {
		case entry.Key != c.Key:
		case entry.Verb != c.Verb:
			return true, Refusal(release, fmt.Sprintf("the key %q was used for %s: nothing was done; take a new key", c.Key, entry.Verb), now.View)
		case entry.Refused:
			return true, Refusal(release, entry.Message, now.View)
		default:
			return true, nil
		}
	}
	return false, nil
}

// Refusal is the answer to a verb that the release refuses, with the release as it is now.
func Refusal[V any](release Release[V], message string, view V) error {
	return release.Show(problem.Conflict.Because("%s", message), view)
}
