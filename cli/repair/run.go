package repair

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/sdk/temporal"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/activities/traffic"
	workloads "slipway.io/slipway/activities/workload"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/follow"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// activities are the activities of a party's worker, called directly instead of by Temporal.
type activities interface {
	Begin(context.Context, rollout.BeginRequest) (rollout.BeginResult, error)
	Finish(context.Context, rollout.FinishRequest) (rollout.MoveResult, error)
	Route(context.Context, rollout.RouteRequest) (rollout.RouteResult, error)
	Borrowed(context.Context, rollout.RouteRequest) ([]kube.Ref, error)
}

const (
	// defaultPause is the default pause between two reads.
	defaultPause = time.Second
	// unreachablePause is the pause while the cluster is unreachable.
	unreachablePause = 5 * time.Second
)

// repair takes over what a release has left, and makes the moves of finalising (rollout.RepairMoves). What a move
// writes on the workload is decided in release/rollout/pods/finish.go.
func repair(parent context.Context, a *app.App, tools *tools, w catalog.Workload, o options) error {
	ctx, cancel := context.WithTimeoutCause(parent, o.timeout, follow.ErrTimeout)
	defer cancel()
	to := rollout.Side(o.to)
	found, err := readLeftovers(ctx, tools.objects, w)
	var nothing nothingToRepairError
	if errors.As(err, &nothing) {
		return &app.ExitError{Code: app.ExitStopped, Err: err}
	}
	if err != nil {
		return interruptedError(ctx, a, o, err)
	}
	moves := rollout.RepairMoves(found.saved, to)
	describe(a, found, moves, to)
	r := &repairer{app: a, activities: tools.activities, objects: tools.objects, leftovers: found, to: to,
		timeout: o.timeout}
	if to == rollout.SideNew {
		if r.template, r.change, err = found.newVersion(ctx, tools.objects); err != nil {
			return interruptedError(ctx, a, o, err)
		}
	}
	if err := found.checkIdentity(o); err != nil {
		return err
	}
	switch {
	case o.dryRun:
		return nil
	case !o.yes && !a.Confirm("Continue?"):
		a.Printf(a.Err, "Nothing was changed. To skip the confirmation, use --yes.\n")
		return &app.ExitError{Code: app.ExitFailure}
	}
	if err := r.run(ctx, moves); err != nil {
		return interruptedError(ctx, a, o, err)
	}
	a.Printf(a.Out, "%s runs only the %s version; nothing of the rollout is left on it\n", w, to)
	if found.claim != "" {
		a.Printf(a.Err, "When the engine is running again, end its rollout: slipway rollout stop %s --to frozen\n",
			app.ObjectName{Namespace: w.Namespace, Name: found.saved.Name}.CommandArgs())
	}
	return nil
}

func interruptedError(ctx context.Context, a *app.App, o options, err error) error {
	switch {
	case errors.Is(context.Cause(ctx), follow.ErrTimeout):
		return &app.ExitError{Code: app.ExitTimeout,
			Err: fmt.Errorf("the repair did not finish within %s: run it again to continue", o.timeout)}
	case ctx.Err() != nil:
		a.Printf(a.Err, "The repair is not finished: run it again to continue.\n")
		return &app.ExitError{Code: app.ExitSignal}
	}
	return err
}

type repairer struct {
	app        *app.App
	activities activities
	objects    dynamic.Interface
	leftovers  leftovers
	to         rollout.Side
	timeout    time.Duration
	// template and change describe the new version, for --to new.
	template string
	change   strategy.Change
	subject  rollout.Subject
	hash     string
	// routesSettled is when the last change of the routes takes effect.
	routesSettled time.Time
}

// run acts under the workload's claim, or under a new one, and executes the moves.
func (r *repairer) run(ctx context.Context, moves []rollout.FinalMove) error {
	r.subject = rollout.Subject{Workload: r.leftovers.workload, Name: r.leftovers.saved.Name, Claim: r.leftovers.claim,
		DeadlineSeconds: int64(r.timeout / time.Second)}
	switch saved := r.leftovers.saved.Claim; {
	case r.leftovers.claim == "":
		// The split was frozen: the objects that route to the workload still have the claim of that rollout.
		r.subject.Claim = cmp.Or(saved, ownClaim(r.leftovers.workload))
	case saved != r.leftovers.claim:
		// Another release took over the split, but possibly not all objects that route to it.
		r.subject.TakeOver = saved
	}
	if err := r.takeOverAll(ctx); err != nil {
		return err
	}
	err := r.retryUntilDone(ctx, func(s rollout.Subject) error {
		begun, err := r.activities.Begin(ctx, rollout.BeginRequest{Subject: s,
			Strategy: strategy.Strategy{Style: r.leftovers.saved.Style}, Adopt: true})
		r.hash = begun.StableHash
		return err
	})
	if err != nil {
		return err
	}
	for n, move := range moves {
		r.app.Printf(r.app.Out, "%d of %d: %s\n", n+1, len(moves), moveText(move, r.to))
		if err := r.move(ctx, move); err != nil {
			return err
		}
	}
	return nil
}

// ownClaim returns a claim that no workflow has. An engine may take it over.
func ownClaim(w catalog.Workload) string {
	return workload.Holder{WorkflowID: "repair/" + w.Namespace + "/" + w.WorkloadRef.Name,
		RunID: uuid.NewString()}.String()
}

// move executes one move. It first waits until the previous change of routes has taken effect.
func (r *repairer) move(ctx context.Context, move rollout.FinalMove) error {
	if pause := r.routesSettled.Sub(r.app.Now()); pause > 0 {
		r.app.Wait(ctx, pause)
	}
	if action, ok := move.Route(); ok {
		err := r.retryUntilDone(ctx, func(s rollout.Subject) error {
			_, err := r.activities.Route(ctx, r.routeRequest(s, action))
			return err
		})
		r.routesSettled = r.app.Now().Add(r.grace())
		return err
	}
	return r.retryUntilDone(ctx, func(s rollout.Subject) error {
		result, err := r.activities.Finish(ctx, rollout.FinishRequest{Subject: s, Action: rollout.FinishAction(move),
			To: r.to, Template: r.template, Change: r.change, OverwriteDrift: true})
		if err == nil && result.Message != "" {
			r.app.Printf(r.app.Out, "  %s\n", render.OneLine(result.Message))
		}
		return err
	})
}

func (r *repairer) routeRequest(s rollout.Subject, action rollout.RouteAction) rollout.RouteRequest {
	saved := r.leftovers.saved
	request := rollout.RouteRequest{Subject: s, Action: action, Routings: saved.Routings, StableHash: r.hash,
		CanaryHash: saved.Canary, NoCanary: saved.DisableGenerateCanaryService, Overwrite: true}
	if saved.CanaryMetadata != nil {
		request.CanaryLabels = saved.CanaryMetadata.Labels
	}
	return request
}

// grace returns how long a change of the routes needs to take effect.
func (r *repairer) grace() time.Duration {
	longest := int64(0)
	for _, routing := range r.leftovers.saved.Routings {
		longest = max(longest, routing.GraceSeconds)
	}
	return time.Duration(longest) * time.Second
}

// retryUntilDone retries a call until it succeeds or fails permanently, and prints what it waits for.
func (r *repairer) retryUntilDone(ctx context.Context, call func(rollout.Subject) error) error {
	began, shown := r.app.Now(), ""
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
		if message != shown {
			r.app.Printf(r.app.Out, "  %s\n", render.OneLine(message))
			shown = message
		}
		r.app.Wait(ctx, pause)
	}
}

// retry reports whether to retry a failed call, the message to print, and the pause before the retry.
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
			pause = defaultPause
		}
		return true, message, pause
	case failure.Unreachable:
		return true, message, unreachablePause
	}
	return false, message, 0
}

// kubeQPS and burst limit the requests of a repair per second.
const (
	kubeQPS   = 50
	kubeBurst = 100
)

// tools are a client of the cluster and the activities of a party's worker.
type tools struct {
	objects    dynamic.Interface
	activities activities
	close      func()
}

type routes = traffic.Activities

// workerActivities combines the activities for workloads and for traffic.
type workerActivities struct {
	*workloads.Activities
	*routes
}

// newTools returns the tools for one cluster. The activities' logs are discarded: they are meant for an engine's log,
// not for a user's terminal.
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
	pods := workloads.New(typed, objects, workloads.Options{Repairing: true, Logger: log})
	return &tools{objects: objects, activities: workerActivities{pods, routes}, close: pods.Stop}, nil
}

// takeOverAll sets rollout.AnnotationRepair on everything that the rollout has borrowed. The API server's guard then
// allows the repair's changes, and a running engine writes nothing more. The write that restores an object removes the
// annotation.
func (r *repairer) takeOverAll(ctx context.Context) error {
	routes, err := r.activities.Borrowed(ctx, r.routeRequest(r.subject, rollout.RouteToStable))
	if err != nil {
		return err
	}
	namespace := r.leftovers.workload.Namespace
	for _, name := range r.leftovers.saved.Autoscalers {
		routes = append(routes, kube.Ref{Resource: autoscalingv2.SchemeGroupVersion.WithResource(
			"horizontalpodautoscalers"), Namespace: namespace, Name: name})
	}
	workload := kube.Ref{Resource: r.leftovers.workload.WorkloadRef.Lookup().Resource, Namespace: namespace,
		Name: r.leftovers.workload.WorkloadRef.Name}
	if extra := r.leftovers.saved.CanaryWorkload; extra != "" {
		routes = append(routes, kube.Ref{Resource: workload.Resource, Namespace: namespace, Name: extra})
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{
		rollout.AnnotationRepair: cmp.Or(app.SystemUser(), "slipway repair")}}})
	if err != nil {
		return err
	}
	for _, ref := range append(routes, workload) {
		if err := r.takeOver(ctx, ref, ref == workload, body); err != nil {
			return fmt.Errorf("cannot take over %s %s/%s for the repair: %w", ref.Resource.Resource, ref.Namespace,
				ref.Name, err)
		}
	}
	return nil
}

// takeOver marks one object, if it exists and is borrowed or is the workload. Objects that are not borrowed would keep
// the annotation, because they are never restored.
func (r *repairer) takeOver(ctx context.Context, ref kube.Ref, isWorkload bool, body []byte) error {
	objects := r.objects.Resource(ref.Resource).Namespace(ref.Namespace)
	object, err := objects.Get(ctx, ref.Name, metav1.GetOptions{})
	if err == nil && (isWorkload || object.GetAnnotations()[rollout.AnnotationHeldBy] != "") {
		_, err = objects.Patch(ctx, ref.Name, types.MergePatchType, body, metav1.PatchOptions{})
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
