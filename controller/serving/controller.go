// Package serving watches KusciaDeployments, whoever wrote them (the HTTP API or kubectl), and starts the operations that they ask for. It
// keeps no state of its own: any number of controllers may run side by side, and one that starts finds in the objects and in Temporal what
// is to be done.
package serving

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"slipway.io/slipway/execution"
	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/party"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/workloadops"
	"slipway.io/slipway/workflows"
)

type homeStore interface {
	Engine(ctx context.Context) (workloadops.Engine, error)
	GetServing(ctx context.Context, id string) (*kuscia.KusciaDeployment, error)
	GuardServing(ctx context.Context, kd *kuscia.KusciaDeployment, guarded bool) error
	UpdateServingStatus(ctx context.Context, kd *kuscia.KusciaDeployment) error
	GetAppImage(ctx context.Context, name string) (*kuscia.AppImage, error)
	Queue(ctx context.Context, party string) (queue string, known bool, err error)
}

// Presence says of queues who polls them.
type Presence interface {
	Of(ctx context.Context, queues ...string) map[string]party.Presence
}

// Options of a controller.
type Options struct {
	// Presence says which parties have a worker.
	Presence Presence
	// Servings is the namespace of the home cluster whose KusciaDeployments are servings.
	Servings string
	// UnreachableBudget is how long a party's cluster may be out of its worker's reach.
	UnreachableBudget time.Duration
	Log               *slog.Logger
}

const (
	// retryShortest and retryLongest limit the pause before something that did not work is tried again.
	retryShortest, retryLongest = 200 * time.Millisecond, 15 * time.Second
	// lookAgain is how often an operation that is under way is looked at: somebody may have terminated its workflow.
	lookAgain = 5 * time.Minute
	// workers is how many servings are looked at at once.
	workers = 8
	// callTimeout is how long one look may take.
	callTimeout = 30 * time.Second
)

// Controller starts the operations that KusciaDeployments ask for.
type Controller struct {
	home     homeStore
	temporal client.Client
	options  Options
	informer cache.SharedIndexInformer
	queue    workqueue.TypedRateLimitingInterface[string]
	parties  *parties
	cancel   context.CancelFunc
	ending   sync.WaitGroup
}

// New makes a controller on the home cluster that objects reaches. It asks nobody before Start.
func New(home homeStore, objects dynamic.Interface, t client.Client, options Options) (*Controller, error) {
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(objects, lookAgain, options.Servings, nil)
	c := &Controller{home: home, temporal: t, options: options, informer: factory.ForResource(kuscia.KusciaDeploymentResource).Informer(),
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryShortest, retryLongest))}
	c.parties = newParties(c, options.Presence)
	if err := errors.Join(c.informer.SetTransform(c.keep), c.informer.AddIndexers(indexers())); err != nil {
		return nil, err
	}
	if err := c.informer.SetWatchErrorHandlerWithContext(c.troubled); err != nil {
		return nil, err
	}
	add := func(object any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
			_, name, _ := cache.SplitMetaNamespaceKey(key)
			c.queue.Add(name)
		}
	}
	_, err := c.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, object any) { add(object) }})
	return c, err
}

// Start begins to watch; it returns at once.
func (c *Controller) Start(context.Context) error {
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	c.ending.Go(func() { c.informer.RunWithContext(ctx) })
	c.ending.Go(func() { c.parties.run(ctx) })
	for range workers {
		c.ending.Go(func() { c.work(ctx) })
	}
	return nil
}

// Stop ends the watch. What was started goes on.
func (c *Controller) Stop(context.Context) error {
	c.cancel()
	c.queue.ShutDown()
	c.ending.Wait()
	return nil
}

func (c *Controller) troubled(ctx context.Context, _ *cache.Reflector, err error) {
	if ctx.Err() == nil {
		c.options.Log.Warn("servings cannot be watched; it is tried again", "error", err)
	}
}

func (c *Controller) work(ctx context.Context) {
	for {
		id, stopping := c.queue.Get()
		if stopping {
			return
		}
		call, cancel := context.WithTimeout(ctx, callTimeout)
		err := c.reconcile(call, id)
		cancel()
		if err != nil && ctx.Err() == nil {
			c.options.Log.Warn("a serving cannot be looked after yet", "serving", id, "error", err)
			c.queue.AddRateLimited(id)
		} else {
			c.queue.Forget(id)
		}
		c.queue.Done(id)
	}
}

// reconcile does what is to be done about a serving as it is now.
func (c *Controller) reconcile(ctx context.Context, id string) error {
	if c.settled(id) {
		return nil
	}
	kd, err := c.home.GetServing(ctx, id)
	if err != nil {
		return failure.Ignore(err, failure.NotFound)
	}
	d := serving.Decide(kd)
	if wait := time.Until(d.NotBefore); d.Do == serving.DoStart && wait > 0 {
		c.queue.AddAfter(id, wait)
		return nil
	}
	if d.Do == serving.DoNothing {
		if d, err = c.lost(ctx, kd); err != nil || d.Do == serving.DoNothing {
			return err
		}
	}
	if d.Do == serving.DoGuard {
		return failure.Ignore(c.home.GuardServing(ctx, kd, true), failure.NotFound)
	}
	return c.start(ctx, kd, d)
}

// settled says that a serving as the watch has told of it leaves nothing to be done: most of its changes are what its operation writes. If the watch lags, what
// it tells next is looked at as well.
func (c *Controller) settled(id string) bool {
	object, known, err := c.informer.GetStore().GetByKey(c.options.Servings + "/" + id)
	if err != nil || !known {
		return false
	}
	kd, err := servingOf(object)
	return err == nil && serving.Decide(kd).Do == serving.DoNothing && !mayBeLost(kd)
}

// mayBeLost says that an operation is under way for so long that somebody may have ended it.
func mayBeLost(kd *kuscia.KusciaDeployment) bool {
	if !isUnderWay(kd) {
		return false
	}
	started := kd.Status.Operation.StartedAt
	return started == nil || time.Since(started.Time) >= lookAgain/2
}

// lost is what to do about an operation whose workflow is over although its end was never written: somebody has terminated it.
func (c *Controller) lost(ctx context.Context, kd *kuscia.KusciaDeployment) (serving.NextAction, error) {
	if !mayBeLost(kd) {
		return serving.NextAction{}, nil
	}
	op := kd.Status.Operation
	described, err := execution.OfRun(ctx, c.temporal, op.WorkflowID, op.RunID)
	if err != nil || execution.IsOpen(described) {
		return serving.NextAction{}, err
	}
	return serving.NextAction{Do: serving.DoStart, Kind: op.Kind, Reason: "its operation was ended by somebody before it was over"}, nil
}

// start starts the operation that was decided, unless the spec cannot be run.
func (c *Controller) start(ctx context.Context, kd *kuscia.KusciaDeployment, d serving.NextAction) error {
	in, refusals, err := c.input(ctx, kd, d.Kind)
	if err != nil {
		return err
	}
	if d.Kind == serving.KindRecreate {
		in.Cause = d.Reason
	}
	if d.Only != "" && d.Only != in.TargetDigest {
		return nil
	}
	if refusals != "" {
		return c.refuse(ctx, kd, refusals)
	}
	run, err := c.execute(ctx, kd, in, fmt.Sprintf("%s%d", serving.WorkflowPrefix(kd.Name), kd.Generation))
	var open *serviceerror.WorkflowExecutionAlreadyStarted
	if errors.As(err, &open) {
		run, err = c.beside(ctx, kd, in, open)
	}
	if err != nil || run == nil {
		return err
	}
	c.parties.starts(run.GetRunID())
	c.options.Log.Info("an operation on a serving was started", "serving", kd.Name, "kind", d.Kind, "reason", d.Reason, "workflow",
		run.GetID(), "run", run.GetRunID())
	return nil
}

// memoUID is where a workflow says of which serving it is: there may have been others of its name.
const memoUID = "uid"

func (c *Controller) execute(ctx context.Context, kd *kuscia.KusciaDeployment, in serving.Input, id string) (client.WorkflowRun, error) {
	return c.temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: id, TaskQueue: workflows.QueueEngine, WorkflowExecutionErrorWhenAlreadyStarted: true,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		Memo:                     map[string]any{memoUID: in.UID},
		StaticSummary:            fmt.Sprintf("%s serving %s, generation %d", in.Kind, kd.Name, kd.Generation),
		TypedSearchAttributes:    attributes(kd, in),
	}, workflows.TypeServing, in)
}

// beside starts an operation although a workflow of its ID is open: that may be the deletion of a former serving of the name, which waits
// for a party that is away. nil is the operation itself, which was started before.
func (c *Controller) beside(ctx context.Context, kd *kuscia.KusciaDeployment, in serving.Input,
	open *serviceerror.WorkflowExecutionAlreadyStarted) (client.WorkflowRun, error) {
	id := fmt.Sprintf("%s%d", serving.WorkflowPrefix(kd.Name), kd.Generation)
	described, err := execution.Describe(ctx, c.temporal, id, open.RunId)
	if err != nil {
		return nil, err
	}
	var uid string
	payload := described.GetWorkflowExecutionInfo().GetMemo().GetFields()[memoUID]
	if err := converter.GetDefaultDataConverter().FromPayload(payload, &uid); err == nil && uid == in.UID {
		if op := kd.Status.Operation; op != nil && op.Done && op.RunID != "" && execution.HasRun(described, op.RunID) {
			return nil, fmt.Errorf("%s has written its end and is about to close: then what is decided begins", id)
		}
		return nil, nil
	}
	run, err := c.execute(ctx, kd, in, fmt.Sprintf("%s-%.8s", id, in.UID))
	if errors.As(err, &open) {
		return nil, nil
	}
	return run, err
}

func attributes(kd *kuscia.KusciaDeployment, in serving.Input) temporal.SearchAttributes {
	domains := make([]string, 0, len(in.Parties))
	for _, p := range in.Parties {
		domains = append(domains, p.Domain)
	}
	return temporal.NewSearchAttributes(workflows.AttributeKind.ValueSet(workflows.KindServing), workflows.AttributeName.ValueSet(in.ID),
		workflows.AttributeNamespace.ValueSet(kd.Namespace), workflows.AttributeParties.ValueSet(workflows.FitList(domains)),
		workflows.AttributeState.ValueSet(string(in.FirstStage())))
}

// refuse writes that a spec cannot be run. What runs goes on.
func (c *Controller) refuse(ctx context.Context, kd *kuscia.KusciaDeployment, why string) error {
	if op := kd.Status.Operation; op != nil && !op.Done {
		return c.refuseBeside(ctx, kd, why)
	} else if op != nil && op.Reason == serving.ReasonValidateFailed && op.Generation == kd.Generation && op.Message == why {
		return nil // it has been said
	}
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	op := &kuscia.Operation{Kind: serving.KindRefuse, Generation: kd.Generation, Done: true, Reason: serving.ReasonValidateFailed,
		Message: why, StartedAt: &now}
	if served := kd.Status.Served; served != nil {
		op.Version = served.Digest
	}
	kd.Status.Operation, kd.Status.ObservedGeneration, kd.Status.LastReconcileTime = op, kd.Generation, &now
	kd.Status.Refused = nil
	serving.Settle(kd)
	return c.writeStatus(ctx, kd)
}

// refuseBeside writes that a spec cannot be run while an operation on another one is under way. Its end is a change of the serving, at
// which it is looked at again, and that may take days: whoever wrote the spec should not wait for it in good faith. It is written once,
// since each write has the serving looked at.
func (c *Controller) refuseBeside(ctx context.Context, kd *kuscia.KusciaDeployment, why string) error {
	if said := kd.Status.Refused; said != nil && said.Generation == kd.Generation && said.Message == why {
		return nil
	}
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	kd.Status.Refused, kd.Status.LastReconcileTime = &kuscia.Refused{Generation: kd.Generation, Message: why}, &now
	c.options.Log.Warn("a spec of a serving cannot be run, and what was under way goes on", "serving", kd.Name, "generation", kd.Generation,
		"problem", why)
	return c.writeStatus(ctx, kd)
}

// writeStatus writes the status of a serving, unless it is gone.
func (c *Controller) writeStatus(ctx context.Context, kd *kuscia.KusciaDeployment) error {
	return failure.Ignore(c.home.UpdateServingStatus(ctx, kd), failure.NotFound)
}
