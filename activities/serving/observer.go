package serving

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/activities/podstatus"
	"slipway.io/slipway/execution"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/workloadops"
)

const (
	// gather is how long changes of one Deployment are collected before it is looked at.
	gather = 500 * time.Millisecond
	// askAgain is how often the pods of a Deployment that lacks some are asked why: what they say changes with no change of the Deployment.
	askAgain = 5 * time.Second
	// atWorkAgain is how often is looked whether the operation is over that holds a Deployment which somebody else has changed.
	atWorkAgain = 30 * time.Second
	// tellShortest and tellLongest limit the pause before something that did not arrive is told again.
	tellShortest, tellLongest = time.Second, 30 * time.Second
	// together is how long changes of several Deployments are collected before they are told, and mostTold of how many one signal tells: a few hundred bytes each.
	together, mostTold = 200 * time.Millisecond, 200
	// tellTimeout is how long telling may take.
	tellTimeout = 10 * time.Second
)

// temporalClient starts workflows, with and without a signal, and says how one stands, as client.Client does.
type temporalClient interface {
	DescribeWorkflowExecution(ctx context.Context, workflowID, runID string) (*workflowservice.DescribeWorkflowExecutionResponse, error)
	ExecuteWorkflow(ctx context.Context, options client.StartWorkflowOptions, workflow any, args ...any) (client.WorkflowRun, error)
	SignalWithStartWorkflow(ctx context.Context, workflowID, signalName string, signalArg any,
		options client.StartWorkflowOptions, workflow any,
		workflowArgs ...any) (client.WorkflowRun, error)
}

// Observer tells the centre once of every change of what the servings of one cluster run, by a short ServingStatuses workflow: of all that has changed within a moment
// by one signal. When nothing changes it tells nothing, and at rest, when no Deployment lacks pods, it asks nobody either.
type Observer struct {
	activities *Activities
	temporal   temporalClient
	queue      workqueue.TypedRateLimitingInterface[name]
	cancel     context.CancelFunc
	ending     sync.WaitGroup

	mu sync.Mutex
	// last is what was seen last of each Deployment, and untold those of which that is still to be told, in the order in which they have changed.
	last   map[name]serving.Observation
	untold []name
	waits  map[name]bool // those in untold
	// news has a value while there is something untold.
	news chan struct{}
}

// NewObserver makes an observer of what activities' watch sees.
func NewObserver(activities *Activities, temporal temporalClient) *Observer {
	return &Observer{activities: activities, temporal: temporal, last: map[name]serving.Observation{}, waits: map[name]bool{}, news: make(chan struct{}, 1),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[name](tellShortest, tellLongest))}
}

// Start begins to observe; it returns at once. The watch is to be started after it.
func (o *Observer) Start(context.Context) error {
	ctx, cancel := context.WithCancel(context.Background())
	o.cancel = cancel
	o.activities.watch.onChange(func(of name) { o.queue.AddAfter(of, gather) })
	o.ending.Go(func() { kube.Work(ctx, o.queue, o.look) })
	o.ending.Go(func() { o.tellAll(ctx) })
	o.ending.Go(func() { o.checkAll(ctx) })
	return nil
}

// Stop ends the observation.
func (o *Observer) Stop(context.Context) error {
	o.cancel()
	o.queue.ShutDown()
	o.ending.Wait()
	return nil
}

// look looks at a Deployment, and has what is not known yet told.
func (o *Observer) look(ctx context.Context, of name) error {
	d, live := o.activities.watch.deployment(of)
	if !live {
		o.queue.AddAfter(of, tellShortest)
		return nil
	}
	now, tells := o.see(ctx, of, d)
	if d != nil && lacks(now.Seen) {
		o.queue.AddAfter(of, askAgain)
	}
	if tells {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.last[of] = now
		o.tell(of)
	}
	return nil
}

// tell has Deployments told of. The caller holds mu.
func (o *Observer) tell(of ...name) {
	for _, one := range of {
		if !o.waits[one] {
			o.waits[one], o.untold = true, append(o.untold, one)
		}
	}
	kube.Wake(o.news)
}

// tellAll tells what there is to tell, together what comes within a moment, and again what does not arrive.
func (o *Observer) tellAll(ctx context.Context) {
	pause := together
	for {
		select {
		case <-o.news:
		case <-ctx.Done():
			return
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		err := o.tellSome(ctx)
		switch {
		case err == nil:
			pause = together
		case ctx.Err() == nil:
			pause = min(max(2*pause, tellShortest), tellLongest)
			o.activities.options.Logger.Warn("what servings run could not be told yet", "error", err)
		}
	}
}

// tellSome tells of as many Deployments as one signal takes.
func (o *Observer) tellSome(ctx context.Context) error {
	o.mu.Lock()
	some := slices.Clone(o.untold[:min(mostTold, len(o.untold))])
	o.untold = o.untold[len(some):]
	if len(o.untold) > 0 {
		kube.Wake(o.news)
	}
	burst := make([]serving.Observation, len(some))
	for i, of := range some {
		burst[i] = o.last[of]
		delete(o.waits, of)
	}
	o.mu.Unlock()
	if len(burst) == 0 {
		return nil
	}
	call, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	queue := o.activities.options.queue()
	id := serving.StatusesWorkflowID(queue)
	_, err := o.temporal.SignalWithStartWorkflow(call, id, serving.SignalObservedMany, burst, client.StartWorkflowOptions{
		ID: id, TaskQueue: catalog.EngineQueue, WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		StaticSummary: "what the parties on queue " + queue + " see of servings"}, serving.TypeStatuses, []serving.Observation{})
	if err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.tell(some...)
	}
	return err
}

// see is what is to be told of a Deployment; tells is false when nothing is new, or what there is to see is not of what it is asked now.
func (o *Observer) see(ctx context.Context, of name, d *appsv1.Deployment) (now serving.Observation, tells bool) {
	o.mu.Lock()
	last, known := o.last[of]
	o.mu.Unlock()
	if d == nil {
		if !known || slices.Contains(last.Seen.Missing, "Deployment/"+of.deployment) {
			return now, false
		}
		now = last
		now.Seen = last.Seen.Gone(of.deployment)
	} else {
		if d.DeletionTimestamp != nil || !serving.Settled(d) || d.Annotations[serving.AnnotationEngine] != o.activities.options.Engine {
			return now, false
		}
		missing, drift := o.activities.watch.belongings(d, serving.ObjectsOf(d))
		if drift = append(o.activities.watch.digests.drift(d), drift...); len(drift) > 0 && o.atWork(ctx, d) {
			drift = nil // the operation puts back what it finds, or leaves it to who looks when it is over
			o.queue.AddAfter(of, atWorkAgain)
		}
		now = serving.Observation{ID: d.Labels[kuscia.LabelDeploymentName], UID: d.Labels[kuscia.LabelDeploymentUID], Domain: of.namespace,
			Deployment: of.deployment,
			Seen:       serving.See(d, missing, drift)}
		if lacks(now.Seen) {
			o.ask(ctx, d, &now.Seen, last.Seen)
		}
	}
	last.Seen.ResourceVersion = now.Seen.ResourceVersion
	return now, !known || !reflect.DeepEqual(last, now)
}

// atWork says whether the operation that holds a Deployment is under way: one that is over may have left its claim, and puts nothing back.
// While Temporal does not answer it counts as under way.
func (o *Observer) atWork(ctx context.Context, d *appsv1.Deployment) bool {
	holder := workloadops.ParseHolder(d.Annotations[workloadops.AnnotationClaimedBy])
	if !strings.HasPrefix(holder.WorkflowID, serving.WorkflowPrefix(d.Labels[kuscia.LabelDeploymentName])) {
		return false // of no operation on this serving, whoever has written it
	}
	call, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	described, err := execution.Describe(call, o.temporal, holder.WorkflowID, "")
	return err != nil || execution.IsOpen(described) && execution.HasRun(described, holder.RunID)
}

// lacks says that a Deployment does not run what it is asked with all its pods: these are worth asking.
func lacks(s serving.Seen) bool { return s.UnavailableReplicas > 0 || s.UpdatedReplicas < s.Replicas }

// ask notes what the pods of a Deployment say. Without their word the numbers are told all the same, with what they said last of the same
// version: a question that fails is no news.
func (o *Observer) ask(ctx context.Context, d *appsv1.Deployment, now *serving.Seen, last serving.Seen) {
	reason, message, err := o.activities.podTrouble(ctx, d)
	if err != nil && last.DeploymentUID == now.DeploymentUID && last.Version == now.Version {
		reason, message = last.PodReason, last.PodMessage
	}
	now.PodReason, now.PodMessage = reason, message
}

// mostPods is how many pods are asked why they do not serve.
const mostPods = 50

// podTrouble is the word of the newest pod that does not serve, or why there is none; "" when all do.
func (a *Activities) podTrouble(ctx context.Context, d *appsv1.Deployment) (reason, message string, err error) {
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return "", "", err
	}
	call, cancel := a.call(ctx)
	defer cancel()
	pods, err := a.client.CoreV1().Pods(d.Namespace).List(call, metav1.ListOptions{LabelSelector: selector.String(), Limit: mostPods})
	if err != nil {
		return "", "", err
	}
	var newest *corev1.Pod
	for i := range pods.Items {
		pod := &pods.Items[i]
		if podstatus.Ready(pod) || pod.DeletionTimestamp != nil {
			continue
		}
		if newest == nil || newest.CreationTimestamp.Before(&pod.CreationTimestamp) {
			newest = pod
		}
	}
	if newest != nil {
		reason, message = podstatus.Reason(newest)
		return reason, strings.TrimSpace("pod " + newest.Name + ": " + message), nil
	}
	if c := serving.CreationFailure(d); c != nil {
		return c.Reason, kube.Line(c.Message), nil
	}
	return "", "", nil
}

// checkElsewhere is how soon another worker of the queue is asked in place of one that does not serve the namespace.
const checkElsewhere = time.Second

// Check says which of the expected Deployments are not there. What the watch has is there; only what it lacks is asked for. A worker that
// does not serve one of their namespaces leaves the check to another one of its queue, which has asked for it.
func (a *Activities) Check(ctx context.Context, req serving.CheckRequest) (serving.CheckResult, error) {
	var result serving.CheckResult
	for _, expected := range req.Expected {
		if err := a.check(serving.PartyRequest{Domain: expected.Domain}); err != nil {
			return serving.CheckResult{}, attempt.ApplicationError(&failure.Error{Kind: failure.NotReady, RetryAfter: checkElsewhere,
				Message: err.Error()})
		}
		if d, live := a.watch.deployment(name{expected.Domain, expected.Deployment}); live && d != nil {
			continue
		}
		d, err := a.deployment(ctx, name{expected.Domain, expected.Deployment})
		if err != nil {
			return result, attempt.RetriedError(err)
		}
		if d == nil {
			result.Gone = append(result.Gone, expected.Gone())
		}
	}
	return result, nil
}

// checkAll asks once, for each queue that this worker serves, what should be there: somebody may have deleted it while no worker was
// running.
func (o *Observer) checkAll(ctx context.Context) {
	for _, queue := range o.activities.options.Queues {
		for pause := tellShortest; ; pause = min(2*pause, tellLongest) {
			err := o.startCheck(ctx, queue)
			if err == nil || ctx.Err() != nil {
				break
			}
			o.activities.options.Logger.Warn("what should be there could not be asked for yet", "queue", queue, "error", err)
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
		}
	}
}

func (o *Observer) startCheck(ctx context.Context, queue string) error {
	call, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	namespaces := o.activities.options.Namespaces
	_, err := o.temporal.ExecuteWorkflow(call, client.StartWorkflowOptions{
		ID: serving.CheckWorkflowID(queue, namespaces), TaskQueue: catalog.EngineQueue,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		StaticSummary:            "check what the worker of queue " + queue + " should find",
	}, serving.TypeCheck, serving.ExpectedRequest{Queue: queue, Namespaces: namespaces})
	return err
}
