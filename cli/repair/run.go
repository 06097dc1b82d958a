package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/sdk/temporal"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/activities/traffic"
	"slipway.io/slipway/activities/workload"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/follow"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	claims "slipway.io/slipway/release/workloadops"
)

// hands act on a cluster: the very functions that a party's worker registers, called without Temporal.
type hands interface {
	Begin(context.Context, rollout.BeginRequest) (rollout.BeginResult, error)
	Finish(context.Context, rollout.FinishRequest) (rollout.MoveResult, error)
	Route(context.Context, rollout.RouteRequest) (rollout.RouteResult, error)
	Borrowed(context.Context, rollout.RouteRequest) ([]kube.Ref, error)
}

const (
	// pauseBetween is how long to wait between two looks when the cluster does not say.
	pauseBetween = time.Second
	// away is how long to wait for a cluster that is out of reach.
	away = 5 * time.Second
)

func repair(parent context.Context, a *app.App, tools *tools, w catalog.Workload, o options) error {
	ctx, cancel := context.WithTimeoutCause(parent, o.timeout, follow.ErrTimeout)
	defer cancel()
	to := rollout.Side(o.to)
	found, err := readLeft(ctx, tools.objects, w)
	var nothing nothingLeftError
	if errors.As(err, &nothing) {
		return &app.ExitError{Code: app.ExitStopped, Err: err}
	}
	if err != nil {
		return broken(ctx, a, o, err)
	}
	moves := rollout.RepairMoves(found.saved, to)
	describe(a, found, moves, to)
	r := &repairer{app: a, hands: tools.hands, objects: tools.objects, left: found, to: to, timeout: o.timeout}
	if to == rollout.SideNew {
		if r.template, r.change, err = found.newVersion(ctx, tools.objects); err != nil {
			return broken(ctx, a, o, err)
		}
	}
	if err := found.named(o); err != nil {
		return err
	}
	switch {
	case o.dryRun:
		return nil
	case !o.yes && !a.Confirm("Do it?"):
		a.Printf(a.Err, "nothing was changed; --yes does it without asking\n")
		return &app.ExitError{Code: app.ExitFailure}
	}
	if err := r.run(ctx, moves); err != nil {
		return broken(ctx, a, o, err)
	}
	a.Printf(a.Out, "%s is whole, of the %s version; nothing of the rollout is left on it\n", w, to)
	if found.claim != "" {
		a.Printf(a.Err, "When the engine is back, end its rollout there: slipway rollout stop %s --to frozen\n",
			app.Name{Namespace: w.Namespace, Name: found.saved.Name}.Arguments())
	}
	return nil
}

func broken(ctx context.Context, a *app.App, o options, err error) error {
	switch {
	case errors.Is(context.Cause(ctx), follow.ErrTimeout):
		return &app.ExitError{Code: app.ExitTimeout, Err: fmt.Errorf("it is not done after %s: run it again to go on", o.timeout)}
	case ctx.Err() != nil:
		a.Printf(a.Err, "It is not done: run it again to go on.\n")
		return &app.ExitError{Code: app.ExitSignal}
	}
	return err
}

type repairer struct {
	app     *app.App
	hands   hands
	objects dynamic.Interface
	left    left
	to      rollout.Side
	timeout time.Duration
	// template and change are what the new version is, for to new.
	template string
	change   strategy.Change
	subject  rollout.Subject
	hash     string
	// settled is when the last change of the routes has taken effect.
	settled time.Time
}

// run takes the claim, or acts under the one that stands there, and makes the moves.
func (r *repairer) run(ctx context.Context, moves []rollout.FinalMove) error {
	r.subject = rollout.Subject{Workload: r.left.workload, Name: r.left.saved.Name, Claim: r.left.claim,
		DeadlineSeconds: int64(r.timeout / time.Second)}
	switch saved := r.left.saved.Claim; {
	case r.left.claim == "":
		// A frozen split: what routes to the workload is still held by the claim under which it was made.
		r.subject.Claim = cmp.Or(saved, ownClaim(r.left.workload))
	case saved != r.left.claim:
		// Somebody has adopted the split, and may not have taken over all that routes to it.
		r.subject.TakeOver = saved
	}
	if err := r.take(ctx); err != nil {
		return err
	}
	err := r.patiently(ctx, func(s rollout.Subject) error {
		begun, err := r.hands.Begin(ctx, rollout.BeginRequest{Subject: s, Strategy: strategy.Strategy{Style: r.left.saved.Style}, Adopt: true})
		r.hash = begun.StableHash
		return err
	})
	if err != nil {
		return err
	}
	for n, move := range moves {
		r.app.Printf(r.app.Out, "%d of %d: %s\n", n+1, len(moves), moveInWords(move, r.to))
		if err := r.move(ctx, move); err != nil {
			return err
		}
	}
	return nil
}

// ownClaim is a claim that no workflow has. An engine that finds it may take it over.
func ownClaim(w catalog.Workload) string {
	return claims.Holder{WorkflowID: "repair/" + w.Namespace + "/" + w.WorkloadRef.Name, RunID: uuid.NewString()}.String()
}

// move makes one move. Whatever comes after a change of the routes waits until that has taken effect, also when an earlier run has made it.
func (r *repairer) move(ctx context.Context, move rollout.FinalMove) error {
	if pause := r.settled.Sub(r.app.Now()); pause > 0 {
		r.app.Wait(ctx, pause)
	}
	if action, ok := move.Route(); ok {
		err := r.patiently(ctx, func(s rollout.Subject) error {
			_, err := r.hands.Route(ctx, r.routeRequest(s, action))
			return err
		})
		r.settled = r.app.Now().Add(r.grace())
		return err
	}
	return r.patiently(ctx, func(s rollout.Subject) error {
		result, err := r.hands.Finish(ctx, rollout.FinishRequest{Subject: s, Action: rollout.FinishAction(move), To: r.to,
			Template: r.template, Change: r.change, PutBack: true})
		if err == nil && result.Message != "" {
			r.app.Printf(r.app.Out, "  %s\n", render.OneLine(result.Message))
		}
		return err
	})
}

func (r *repairer) routeRequest(s rollout.Subject, action rollout.RouteAction) rollout.RouteRequest {
	saved := r.left.saved
	request := rollout.RouteRequest{Subject: s, Action: action, Routings: saved.Routings, StableHash: r.hash, CanaryHash: saved.Canary,
		NoCanary: saved.DisableGenerateCanaryService, Overwrite: true}
	if saved.CanaryMetadata != nil {
		request.CanaryLabels = saved.CanaryMetadata.Labels
	}
	return request
}

// grace is how long a change of the routes is left to take effect.
func (r *repairer) grace() time.Duration {
	longest := int64(0)
	for _, routing := range r.left.saved.Routings {
		longest = max(longest, routing.GraceSeconds)
	}
	return time.Duration(longest) * time.Second
}

// patiently makes one call until it succeeds or fails for good, and says what it waits for.
func (r *repairer) patiently(ctx context.Context, call func(rollout.Subject) error) error {
	began, said := r.app.Now(), ""
	for {
		s := r.subject
		s.SpentSeconds = int64(r.app.Now().Sub(began) / time.Second)
		err := call(s)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		again, message, pause := retry(err)
		if !again {
			return errors.New(message)
		}
		if message != said {
			r.app.Printf(r.app.Out, "  %s\n", render.OneLine(message))
			said = message
		}
		r.app.Wait(ctx, pause)
	}
}

// retry says whether a failed call is worth another attempt, what to say, and when.
func retry(err error) (again bool, message string, pause time.Duration) {
	var failed *temporal.ApplicationError
	if !errors.As(err, &failed) {
		return false, err.Error(), 0
	}
	message = failed.Message()
	switch failure.Kind(failed.Type()) {
	case failure.NotReady, failure.Conflict:
		pause = failed.NextRetryDelay()
		if pause <= 0 {
			pause = pauseBetween
		}
		return true, message, pause
	case failure.Unreachable:
		return true, message, away
	}
	return false, message, 0
}

// qPS and burst bound the requests per second of a repair.
const (
	qPS   = 50
	burst = 100
)

// tools are what a repair works with: a reader of the cluster, and the activities of a party's worker.
type tools struct {
	objects dynamic.Interface
	hands   hands
	close   func()
}

type bothHands struct {
	*workload.Activities
	traffic *traffic.Activities
}

// Route makes one change of the traffic.
func (h bothHands) Borrowed(ctx context.Context, request rollout.RouteRequest) ([]kube.Ref, error) {
	return h.traffic.Borrowed(ctx, request)
}

func (h bothHands) Route(ctx context.Context, request rollout.RouteRequest) (rollout.RouteResult, error) {
	return h.traffic.Route(ctx, request)
}

// newTools makes the tools for one cluster. What the activities log is for an engine's log, not for a person who repairs.
func newTools(config *rest.Config) (*tools, error) {
	typed, objects, err := kube.NewClients(config)
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.DiscardHandler)
	routes, err := traffic.New(typed, objects, traffic.Options{Repairing: true, Logger: log})
	if err != nil {
		return nil, err
	}
	pods := workload.New(typed, objects, workload.Options{Repairing: true, Logger: log})
	return &tools{objects: objects, hands: bothHands{Activities: pods, traffic: routes}, close: pods.Stop}, nil
}
