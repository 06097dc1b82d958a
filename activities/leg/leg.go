// Package leg runs the legs of rollouts. A leg is one activity of a party's worker: it asks the rollout's machine for
// one action after the other and carries each out on the workload and the traffic, until the next step needs a user,
// the centre or another party.
package leg

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/activities/heartbeat"
	"slipway.io/slipway/activities/workload"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/machine"
)

// Pods are the activities that move a workload's pods.
type Pods interface {
	BeginMoving(ctx context.Context, req rollout.BeginRequest,
		first func(rollout.BeginResult) *rollout.MoveRequest) (rollout.BeginResult, error)
	Move(ctx context.Context, req rollout.MoveRequest) (rollout.MoveResult, error)
	Finish(ctx context.Context, req rollout.FinishRequest) (rollout.MoveResult, error)
	// ReportLeftOut reports which routes a step has left out.
	ReportLeftOut(ctx context.Context, s rollout.Subject, routes []string)
}

// Routes is the activity that moves the traffic.
type Routes interface {
	Route(ctx context.Context, req rollout.RouteRequest) (rollout.RouteResult, error)
}

// Options of the activity. The zero value is usable.
type Options struct {
	// ListenFor is how long an attempt keeps its worker slot without progress; default 10 s.
	ListenFor time.Duration
	// Recorder sends the heartbeat that must not be lost; nil: the Temporal client of the activity's own worker.
	Recorder heartbeat.Recorder
	// Now is the clock; default: time.Now.
	Now func() time.Time
}

// Activities run the legs of one cluster's rollouts. They are safe for concurrent use.
type Activities struct {
	pods    Pods
	routes  Routes
	options Options
}

// New makes the activity.
func New(pods Pods, routes Routes, options Options) *Activities {
	options.ListenFor = cmp.Or(options.ListenFor, 10*time.Second)
	if options.Now == nil {
		options.Now = time.Now
	}
	return &Activities{pods: pods, routes: routes, options: options}
}

// Register registers the activity by the name that the workflow uses.
func (a *Activities) Register(registry worker.ActivityRegistry) {
	registry.RegisterActivityWithOptions(a.Leg, activity.RegisterOptions{Name: machine.ActivityLeg})
}

// Leg runs a leg. It fails with the error of the action that ends it; the results of earlier actions are returned with
// the failure (failure.Details.Leg), or with the cancellation. If an action waits for so long that the attempt frees
// its worker slot, the leg ends with the results before it, and the next leg begins with that action.
func (a *Activities) Leg(ctx context.Context, in machine.LegRequest) (machine.LegResult, error) {
	w := newLegAttempt(ctx, a.options)
	stop, well := w.startHeartbeats(ctx), false // a panic is not well
	defer func() { stop(well) }()
	result, err := a.run(ctx, w, in)
	well = err == nil
	return result, err
}

func (a *Activities) run(ctx context.Context, w *legAttempt, in machine.LegRequest) (machine.LegResult, error) {
	ctx, end := workload.ShareReads(attempt.WithParent(ctx, w))
	defer end()
	leg := w.resume(in)
	for {
		from := a.options.Now()
		action, on := leg.Next(from)
		if !on {
			if action.Until == nil {
				return machine.LegResult{Parts: leg.Parts(), Unknown: leg.Repeats()}, nil
			}
			w.noteWait(leg.Status())
			if err := wait(ctx, action.Until.Sub(from)); err != nil {
				return w.interrupted(ctx, leg, action, err)
			}
			continue
		}
		w.noteAction(ctx, leg, action)
		if err := w.heartbeatBeforeFinish(ctx, action, in.Request.Spec.Strategy.Style); err != nil {
			return w.interrupted(ctx, leg, action, err)
		}
		result, err := a.carryOut(ctx, leg, action)
		if err != nil {
			return w.interrupted(ctx, leg, action, err)
		}
		leg.Done(action, result, from, a.options.Now())
		w.noteDone(leg.Parts())
	}
}

func (a *Activities) carryOut(ctx context.Context, leg *machine.Leg, action machine.Action) (r machine.Result,
	err error) {
	switch action.Kind {
	case machine.ActBegin:
		r.Begin, err = a.pods.BeginMoving(ctx, *action.Begin, func(answer rollout.BeginResult) *rollout.MoveRequest {
			return leg.FirstMove(answer, a.options.Now())
		})
	case machine.ActMove:
		r.Pods, err = a.pods.Move(ctx, *action.Move)
	case machine.ActFinish:
		r.Pods, err = a.pods.Finish(ctx, *action.Finish)
	default:
		if r.Route, err = a.routes.Route(ctx, *action.Route); len(r.Route.LeftOut) > 0 {
			a.pods.ReportLeftOut(ctx, action.Route.Subject, r.Route.LeftOut)
		}
	}
	return r, err
}

// interrupted ends an attempt whose last action has failed, was stopped, or waits for so long that the attempt frees
// its worker slot. In the last case the leg ends instead of waiting for its next attempt, and another leg begins with
// that action: if the activity were cancelled between two attempts, Temporal's server would answer without the
// heartbeat, and the workflow would not learn what was done.
func (w *legAttempt) interrupted(ctx context.Context, leg *machine.Leg, a machine.Action, err error) (
	machine.LegResult, error) {
	result := machine.LegResult{Parts: leg.Parts(), Unfinished: a.OnParty(), SpentSeconds: w.spentSeconds(a),
		Unknown: leg.Repeats()}
	if w.mayHandOver(err) {
		return result, nil
	}
	return machine.LegResult{}, withResult(ctx, result, err)
}

// withResult adds the results of the completed actions to the error that ends the leg, and to a cancellation the time
// that the stopped action has used of its deadline. A retried attempt also finds them in the heartbeat details, but
// there is no retry if the activity was cancelled meanwhile. When the worker stops, the heartbeat alone carries them:
// that is no cancellation.
func withResult(ctx context.Context, result machine.LegResult, err error) error {
	if errors.Is(err, context.Canceled) {
		select {
		case <-attempt.Stopping(ctx):
			return err
		default:
			return temporal.NewCanceledError(result)
		}
	}
	var app *temporal.ApplicationError
	var details failure.Details
	if !errors.As(err, &app) || app.HasDetails() && app.Details(&details) != nil {
		return err
	}
	if raw, unfit := json.Marshal(result.Parts); len(result.Parts) > 0 && unfit == nil {
		details.Leg = raw
	}
	details.LegUnknown = result.Unknown
	if !app.NonRetryable() { // for a stop: the server then doesn't repeat the attempt
		details.SpentSeconds = result.SpentSeconds
	}
	return temporal.NewApplicationErrorWithOptions(app.Message(), app.Type(),
		temporal.ApplicationErrorOptions{NonRetryable: app.NonRetryable(),
			NextRetryDelay: app.NextRetryDelay(), Category: app.Category(), Details: []any{details}})
}

// wait sleeps until routes have taken effect, or a brief pause has ended.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-attempt.Stopping(ctx):
		return attempt.ApplicationError(&failure.Error{Kind: failure.NotReady, Message: "the worker is stopping",
			RetryAfter: time.Second})
	case <-ctx.Done():
		return ctx.Err()
	}
}
