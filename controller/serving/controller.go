// Package serving watches KusciaDeployments, written by the HTTP API or by kubectl, and starts their operations. It is
// stateless: any number of controllers may run concurrently, and a new one finds what to do in the objects and in
// Temporal.
package serving

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"slipway.io/slipway/execution"
	"slipway.io/slipway/kube/watch"
	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/party"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/store/servinginput"
	"slipway.io/slipway/workflows"
)

type homeStore interface {
	servinginput.Home
	GetServing(ctx context.Context, id string) (*kuscia.KusciaDeployment, error)
	GuardServing(ctx context.Context, kd *kuscia.KusciaDeployment, guarded bool) error
	UpdateServingStatus(ctx context.Context, kd *kuscia.KusciaDeployment) error
}

// Presence reports who polls queues.
type Presence interface {
	Of(ctx context.Context, queues ...string) map[string]party.Presence
}

// Options of a controller.
type Options struct {
	// Presence reports which parties have a worker.
	Presence Presence
	// Servings is the namespace of the home cluster whose KusciaDeployments are servings.
	Servings string
	// UnreachableBudget is how long a party's cluster may be unreachable for its worker.
	UnreachableBudget time.Duration
	Log               *slog.Logger
}

const (
	// retryShortest and retryLongest limit the pause before a retry.
	retryShortest, retryLongest = 200 * time.Millisecond, 15 * time.Second
	// checkInterval is how often an operation in progress is checked: its workflow may have been terminated.
	checkInterval = 5 * time.Minute
	// workers is how many servings are processed at once.
	workers = 8
	// callTimeout bounds the processing of one serving.
	callTimeout = 30 * time.Second
)

// Controller starts the operations that KusciaDeployments need.
type Controller struct {
	watch.Background
	home     homeStore
	temporal client.Client
	options  Options
	cached   *watch.Watch[*kuscia.KusciaDeployment]
	queue    watch.Queue[string]
	parties  *parties
}

// New returns a controller for the home cluster of these clients. It makes no request before Start.
func New(home homeStore, objects dynamic.Interface, t client.Client, options Options) *Controller {
	c := &Controller{home: home, temporal: t, options: options,
		queue: watch.NewQueue[string](retryShortest, retryLongest)}
	c.parties = newParties(c, options.Presence)
	c.cached = watch.New(watch.Untyped(objects, kuscia.KusciaDeploymentResource), c.reduce, watch.Options{
		Namespaces: []string{options.Servings}, Resync: checkInterval,
		Failed: func(_ string, err error) {
			options.Log.Warn("servings cannot be watched; retrying", "error", err)
		}}).
		Index(byDomain, partyDomains).Index(marked, whether(namesUnreachable)).Index(underWay, whether(isUnderWay)).
		Handle(watch.OnChange(func(kd *kuscia.KusciaDeployment) { c.queue.Add(kd.Name) }))
	return c
}

// Start starts the watch and the workers, and returns at once. Operations that it starts continue after Stop.
func (c *Controller) Start(context.Context) error {
	c.Begin(c.cached.Run, c.parties.run, func(ctx context.Context) {
		c.queue.Run(ctx, watch.Work[string]{Do: c.reconcile, Workers: workers, Timeout: callTimeout,
			Failed: func(id string, err error) {
				c.options.Log.Warn("could not reconcile a serving; retrying", "serving", id, "error", err)
			}})
	})
	return nil
}

// reconcile executes the next action for a serving in its current state, and returns when to check it again without a
// change.
func (c *Controller) reconcile(ctx context.Context, id string) (again time.Duration, err error) {
	if c.nothingToDo(id) {
		return 0, nil
	}
	kd, err := c.home.GetServing(ctx, id)
	if err != nil {
		return 0, failure.Ignore(err, failure.NotFound)
	}
	d := serving.Decide(kd)
	if wait := time.Until(d.NotBefore); d.Do == serving.DoStart && wait > 0 {
		return wait, nil
	}
	if d.Do == serving.DoNothing {
		if d, err = c.checkLost(ctx, kd); err != nil || d.Do == serving.DoNothing {
			return 0, err
		}
	}
	if d.Do == serving.DoAddFinalizer {
		return 0, failure.Ignore(c.home.GuardServing(ctx, kd, true), failure.NotFound)
	}
	return 0, c.start(ctx, kd, d)
}

// nothingToDo reports whether the cached serving needs no action: most of its changes are writes of its operation. If
// the watch lags, its next event is processed too.
func (c *Controller) nothingToDo(id string) bool {
	kd := c.cached.Get(c.options.Servings, id)
	return kd != nil && serving.Decide(kd).Do == serving.DoNothing && !mayHaveEnded(kd)
}

// mayHaveEnded reports whether an operation has been in progress for so long that its workflow may have been
// terminated.
func mayHaveEnded(kd *kuscia.KusciaDeployment) bool {
	if !isUnderWay(kd) {
		return false
	}
	started := kd.Status.Operation.StartedAt
	return started == nil || time.Since(started.Time) >= checkInterval/2
}

// checkLost returns the action for an operation whose workflow has closed without writing its end: it was terminated.
func (c *Controller) checkLost(ctx context.Context, kd *kuscia.KusciaDeployment) (serving.NextAction, error) {
	if !mayHaveEnded(kd) {
		return serving.NextAction{}, nil
	}
	op := kd.Status.Operation
	described, err := execution.OfRun(ctx, c.temporal, op.WorkflowID, op.RunID)
	if err != nil || execution.IsOpen(described) {
		return serving.NextAction{}, err
	}
	return serving.NextAction{Do: serving.DoStart, Kind: op.Kind, Reason: "its operation was terminated"}, nil
}

// input returns the input of an operation; refusals is why it cannot start.
func (c *Controller) input(ctx context.Context, kd *kuscia.KusciaDeployment, kind string) (in serving.Input,
	refusals string, err error) {
	in, refusals, err = servinginput.Of(ctx, c.home, kd, kind)
	in.UnreachableBudgetSeconds = int64(c.options.UnreachableBudget / time.Second)
	return in, refusals, err
}

// start starts the decided operation, unless the spec cannot be run.
func (c *Controller) start(ctx context.Context, kd *kuscia.KusciaDeployment, d serving.NextAction) error {
	in, refusals, err := c.input(ctx, kd, d.Kind)
	if err != nil {
		return err
	}
	if d.Kind == serving.KindRecreate {
		in.Cause = d.Reason
	}
	if d.OnlyVersion != "" && d.OnlyVersion != in.TargetDigest {
		return nil
	}
	if refusals != "" {
		return c.refuse(ctx, kd, refusals)
	}
	run, err := c.execute(ctx, kd, in, fmt.Sprintf("%s%d", serving.WorkflowPrefix(kd.Name), kd.Generation))
	if open, ok := errors.AsType[*serviceerror.WorkflowExecutionAlreadyStarted](err); ok {
		run, err = c.startDespiteOpen(ctx, kd, in, open)
	}
	if err != nil || run == nil {
		return err
	}
	c.parties.noteStart(run.GetRunID())
	c.options.Log.Info("an operation on a serving was started", "serving", kd.Name, "kind", d.Kind, "reason", d.Reason,
		"workflow", run.GetID(), "run", run.GetRunID())
	return nil
}

// memoUID is the memo key of the serving's UID: there may have been earlier servings of its name.
const memoUID = "uid"

func (c *Controller) execute(ctx context.Context, kd *kuscia.KusciaDeployment, in serving.Input,
	id string) (client.WorkflowRun, error) {
	return c.temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: id, TaskQueue: workflows.QueueEngine, WorkflowExecutionErrorWhenAlreadyStarted: true,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		Memo:                     map[string]any{memoUID: in.UID},
		StaticSummary:            fmt.Sprintf("%s serving %s, generation %d", in.Kind, kd.Name, kd.Generation),
		TypedSearchAttributes:    attributes(kd, in),
	}, workflows.TypeServing, in)
}

// startDespiteOpen starts an operation although a workflow with its ID is open: that may be the deletion of an earlier
// serving of the same name, which waits for an unreachable party. It returns nil if the open workflow is this
// operation, started before.
func (c *Controller) startDespiteOpen(ctx context.Context, kd *kuscia.KusciaDeployment, in serving.Input,
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
			return nil, fmt.Errorf("%s has written its end and is about to close: the operation starts after that", id)
		}
		return nil, nil
	}
	run, err := c.execute(ctx, kd, in, serving.UniqueWorkflowID(id, in.UID))
	if errors.As(err, &open) {
		return nil, nil
	}
	return run, err
}

func attributes(kd *kuscia.KusciaDeployment, in serving.Input) temporal.SearchAttributes {
	domains := phrase.Each(in.Parties, func(p serving.PartyTarget) string { return p.Domain })
	return temporal.NewSearchAttributes(workflows.AttributeKind.ValueSet(workflows.KindServing),
		workflows.AttributeName.ValueSet(in.ID), workflows.AttributeNamespace.ValueSet(kd.Namespace),
		workflows.AttributeParties.ValueSet(workflows.FitList(domains)), workflows.AttributeState.ValueSet(
			string(in.FirstStage())))
}

// refuse writes that a spec cannot be run, once, since each write triggers processing. The running version stays. An
// operation on another spec continues: the serving is processed again when that ends, but that may take days, and the
// user should see the refusal now.
func (c *Controller) refuse(ctx context.Context, kd *kuscia.KusciaDeployment, why string) error {
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	kd.Status.LastReconcileTime = &now
	refused := kuscia.Refused{Generation: kd.Generation, Message: why}
	switch op := kd.Status.Operation; {
	case op != nil && !op.Done:
		if last := kd.Status.Refused; last != nil && *last == refused {
			return nil
		}
		kd.Status.Refused = &refused
		c.options.Log.Warn("a spec of a serving cannot be run; the operation in progress continues", "serving", kd.Name,
			"generation", kd.Generation, "problem", why)
	case op != nil && op.Reason == serving.ReasonValidateFailed && op.Generation == kd.Generation && op.Message == why:
		return nil
	default:
		op = &kuscia.Operation{Kind: serving.KindRefuse, Generation: kd.Generation, Done: true,
			Reason: serving.ReasonValidateFailed, Message: why, StartedAt: &now}
		if served := kd.Status.Served; served != nil {
			op.Version = served.Digest
		}
		kd.Status.Operation, kd.Status.ObservedGeneration, kd.Status.Refused = op, kd.Generation, nil
		serving.UpdatePhases(kd)
	}
	return failure.Ignore(c.home.UpdateServingStatus(ctx, kd), failure.NotFound)
}

// The indexes of the watch.
const (
	// byDomain indexes the servings by the domains of their parties.
	byDomain = "domain"
	// marked indexes the servings whose status names an unreachable party, underWay those with an operation in
	// progress; their only value is yes.
	marked, underWay = "marked", "under way"
	yes              = "yes"
)

func partyDomains(kd *kuscia.KusciaDeployment) []string {
	domains := phrase.Each(serving.Members(kd), func(member serving.PartyTarget) string { return member.Domain })
	slices.Sort(domains)
	return slices.Compact(domains)
}

// whether returns an index of the servings for which a condition is true.
func whether(is func(kd *kuscia.KusciaDeployment) bool) func(kd *kuscia.KusciaDeployment) []string {
	return func(kd *kuscia.KusciaDeployment) []string {
		if is(kd) {
			return []string{yes}
		}
		return nil
	}
}

func namesUnreachable(kd *kuscia.KusciaDeployment) bool { return !serving.IsMarkedUnreachable(kd, nil) }

func isUnderWay(kd *kuscia.KusciaDeployment) bool {
	op := kd.Status.Operation
	return op != nil && !op.Done && op.WorkflowID != ""
}

// indexed returns the servings with this value of an index, in order of name. They must not be modified.
func (c *Controller) indexed(by, value string) []*kuscia.KusciaDeployment {
	return slices.SortedFunc(slices.Values(c.cached.By(by, value)), byName)
}

func byName(a, b *kuscia.KusciaDeployment) int { return strings.Compare(a.Name, b.Name) }

// affected returns the servings whose status or operation may need an update after a check: those with an unreachable
// party, those that name one, and those with an operation in progress.
func (c *Controller) affected(of map[string]string, found map[string]party.Presence) []*kuscia.KusciaDeployment {
	all := append(c.indexed(marked, yes), c.indexed(underWay, yes)...)
	for domain, queue := range of {
		if found[queue].Reachable == party.Unreachable {
			all = append(all, c.indexed(byDomain, domain)...)
		}
	}
	slices.SortFunc(all, byName)
	return slices.Compact(all)
}

// recordedQueue returns the queue of a domain as recorded in a serving; "" if there is none.
func (c *Controller) recordedQueue(domain string) (queue string) {
	for _, kd := range c.indexed(byDomain, domain) {
		for _, member := range serving.Members(kd) {
			if member.Domain == domain {
				queue = cmp.Or(queue, member.Queue)
			}
		}
	}
	return queue
}

// reduce keeps of a KusciaDeployment what presence and decisions need: input configs and versions are large. Of an
// undecodable object only the name is kept: without its finalizer, it is read again when it is reconciled.
func (c *Controller) reduce(u *unstructured.Unstructured) (*kuscia.KusciaDeployment, error) {
	unstructured.RemoveNestedField(u.Object, "spec", "inputConfig")
	unstructured.RemoveNestedField(u.Object, "status", "served", "version")
	unstructured.RemoveNestedField(u.Object, "metadata", "managedFields")
	unstructured.RemoveNestedField(u.Object, "metadata", "annotations",
		"kubectl.kubernetes.io/last-applied-configuration")
	kd := &kuscia.KusciaDeployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, kd); err != nil {
		c.options.Log.Warn("cannot decode a KusciaDeployment: its unreachable parties are not reported until it is "+
			"corrected", "name", u.GetName(), "error", err)
		kd = &kuscia.KusciaDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: u.GetNamespace(), Name: u.GetName(),
			ResourceVersion: u.GetResourceVersion()}}
	}
	return kd, nil
}
