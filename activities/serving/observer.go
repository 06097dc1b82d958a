package serving

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/activities/podstatus"
	"slipway.io/slipway/execution"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/kube/watch"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/workload"
)

const (
	// debounce is how long changes of one Deployment are collected before it is observed.
	debounce = 500 * time.Millisecond
	// podRecheckInterval is how often the pods of an incomplete Deployment are read again: their status changes without
	// a change of the Deployment.
	podRecheckInterval = 5 * time.Second
	// operationRecheckInterval is how often the observer checks whether the operation that has claimed a Deployment has
	// ended, while another client's change to it is ignored.
	operationRecheckInterval = 30 * time.Second
	// minReportPause and maxReportPause limit the pause before a failed report is retried.
	minReportPause, maxReportPause = time.Second, 30 * time.Second
	// batchDelay is how long changes of several Deployments are collected before they are reported, and maxBatch how
	// many one signal reports: a few hundred bytes each.
	batchDelay, maxBatch = 200 * time.Millisecond, 200
	// reportTimeout is the timeout of one request to Temporal.
	reportTimeout = 10 * time.Second
)

// Observer reports every change of the servings' Deployments of one cluster once to the centre, by a short
// ServingStatuses workflow: all changes within batchDelay in one signal. Without changes it reports nothing; if no
// Deployment is incomplete, it sends no requests either.
type Observer struct {
	watch.Background
	activities *Activities
	temporal   client.Client
	queue      watch.Queue[name]

	mu sync.Mutex
	// last is the last observation of each Deployment, and pending the Deployments whose observation is still to be
	// reported, in the order of their changes.
	last      map[name]serving.Observation
	pending   []name
	isPending map[name]bool // those in pending
	// reports has an element while pending is not empty.
	reports watch.Queue[struct{}]
}

// NewObserver returns an observer of the watch of activities.
func NewObserver(activities *Activities, temporal client.Client) *Observer {
	return &Observer{activities: activities, temporal: temporal, last: map[name]serving.Observation{},
		isPending: map[name]bool{}, reports: watch.NewQueue[struct{}](minReportPause, maxReportPause),
		queue: watch.NewQueue[name](minReportPause, maxReportPause)}
}

// Start starts the observer and returns at once. Start the watch after it.
func (o *Observer) Start(context.Context) error {
	o.activities.watch.changed = func(of name) { o.queue.AddAfter(of, debounce) }
	log := o.activities.options.Logger
	o.Begin(o.startChecks, func(ctx context.Context) { o.queue.Run(ctx, watch.Work[name]{Do: o.inspect}) },
		func(ctx context.Context) {
			o.reports.Run(ctx, watch.Work[struct{}]{Do: o.reportBatch, Failed: func(_ struct{}, err error) {
				log.Warn("cannot report the state of servings; retrying", "error", err)
			}})
		})
	return nil
}

// inspect observes a Deployment, and enqueues a report if anything is new. It returns when to observe it again without
// a change.
func (o *Observer) inspect(ctx context.Context, of name) (again time.Duration, err error) {
	d, live := o.activities.watch.deployment(of)
	if !live {
		return minReportPause, nil
	}
	now, isNew := o.observe(ctx, of, d)
	if d != nil && isIncomplete(now.Snapshot) {
		again = podRecheckInterval
	}
	if isNew {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.last[of] = now
		if o.enqueueReport(of) {
			o.reports.AddAfter(struct{}{}, batchDelay)
		}
	}
	return again, nil
}

// enqueueReport enqueues reports of Deployments. first is true if there were none. The caller holds mu.
func (o *Observer) enqueueReport(of ...name) (first bool) {
	first = len(o.pending) == 0
	for _, one := range of {
		if !o.isPending[one] {
			o.isPending[one], o.pending = true, append(o.pending, one)
		}
	}
	return first
}

// reportBatch reports as many Deployments as one signal may carry; the others are reported after the returned time.
func (o *Observer) reportBatch(ctx context.Context, _ struct{}) (again time.Duration, err error) {
	o.mu.Lock()
	some := slices.Clone(o.pending[:min(maxBatch, len(o.pending))])
	o.pending = o.pending[len(some):]
	if len(o.pending) > 0 {
		again = batchDelay
	}
	burst := make([]serving.Observation, len(some))
	for i, of := range some {
		burst[i] = o.last[of]
		delete(o.isPending, of)
	}
	o.mu.Unlock()
	if len(burst) == 0 {
		return 0, nil
	}
	call, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	queue := o.activities.options.queue()
	id := serving.StatusesWorkflowID(queue)
	_, err = o.temporal.SignalWithStartWorkflow(call, id, serving.SignalObservedMany, burst,
		client.StartWorkflowOptions{ID: id, TaskQueue: catalog.EngineQueue,
			WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
			StaticSummary:            "state of servings on queue " + queue}, serving.TypeStatuses,
		[]serving.Observation{})
	if err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.enqueueReport(some...)
	}
	return again, err
}

// observe returns the observation of a Deployment. isNew is false if nothing is new, or if the status does not reflect
// the current spec.
func (o *Observer) observe(ctx context.Context, of name, d *appsv1.Deployment) (now serving.Observation, isNew bool) {
	o.mu.Lock()
	last, known := o.last[of]
	o.mu.Unlock()
	if d == nil {
		if !known || slices.Contains(last.Snapshot.Missing, "Deployment/"+of.deployment) {
			return now, false
		}
		now = last
		now.Snapshot = last.Snapshot.Deleted(of.deployment)
	} else {
		if d.DeletionTimestamp != nil || !serving.StatusIsCurrent(d) ||
			d.Annotations[serving.AnnotationEngine] != o.activities.options.Engine {
			return now, false
		}
		missing, drift := o.activities.watch.checkDependents(d, serving.ObjectsOf(d))
		if drift = append(o.activities.watch.digests.drift(d), drift...); len(drift) > 0 &&
			o.operationInProgress(ctx, d) {
			drift = nil // the operation restores it; if it does not, the check after its end reports it
			o.queue.AddAfter(of, operationRecheckInterval)
		}
		now = serving.Observation{ID: d.Labels[kuscia.LabelDeploymentName], UID: d.Labels[kuscia.LabelDeploymentUID],
			Domain: of.namespace, Deployment: of.deployment, Snapshot: serving.NewDeploymentSnapshot(d, missing, drift)}
		if isIncomplete(now.Snapshot) {
			o.addPodReason(ctx, d, &now.Snapshot, last.Snapshot)
		}
	}
	last.Snapshot.ResourceVersion = now.Snapshot.ResourceVersion
	return now, !known || !reflect.DeepEqual(last, now)
}

// operationInProgress reports whether the operation that has claimed a Deployment is running: one that has ended may
// have left its claim, and restores nothing. While Temporal does not answer, it counts as running.
func (o *Observer) operationInProgress(ctx context.Context, d *appsv1.Deployment) bool {
	holder := workload.ParseHolder(d.Annotations[workload.AnnotationClaimedBy])
	if !strings.HasPrefix(holder.WorkflowID, serving.WorkflowPrefix(d.Labels[kuscia.LabelDeploymentName])) {
		return false // not the claim of an operation on this serving
	}
	call, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	described, err := execution.Describe(call, o.temporal, holder.WorkflowID, "")
	return err != nil || execution.IsOpen(described) && execution.HasRun(described, holder.RunID)
}

// isIncomplete reports whether not all pods of a Deployment are updated and available, so that the status of its pods
// is worth reading.
func isIncomplete(s serving.DeploymentSnapshot) bool {
	return s.UnavailableReplicas > 0 || s.UpdatedReplicas < s.Replicas
}

// addPodReason adds the status of a Deployment's pods. If it cannot be read, the replica counts are reported
// nevertheless, with the last known pod status of the same version.
func (o *Observer) addPodReason(ctx context.Context, d *appsv1.Deployment, now *serving.DeploymentSnapshot,
	last serving.DeploymentSnapshot) {
	reason, message, err := o.activities.podTrouble(ctx, d)
	if err != nil && last.DeploymentUID == now.DeploymentUID && last.Version == now.Version {
		reason, message = last.PodReason, last.PodMessage
	}
	now.PodReason, now.PodMessage = reason, message
}

// maxPods is the maximum number of pods that are read to find out why they do not serve.
const maxPods = 50

// podTrouble returns the reason and message of the newest pod that does not serve, or why pods cannot be created; "" if
// all serve.
func (a *Activities) podTrouble(ctx context.Context, d *appsv1.Deployment) (reason, message string, err error) {
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return "", "", err
	}
	ctx, cancel := context.WithTimeout(ctx, kube.CallTimeout) // a list clears the client's own limit
	defer cancel()
	pods, err := a.client.CoreV1().Pods(d.Namespace).List(ctx,
		metav1.ListOptions{LabelSelector: selector.String(), Limit: maxPods})
	if err != nil {
		return "", "", err
	}
	waiting := slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool {
		return podstatus.Ready(&pod) || pod.DeletionTimestamp != nil
	})
	if len(waiting) > 0 {
		newest := slices.MaxFunc(waiting, func(a, b corev1.Pod) int {
			return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
		})
		reason, message = podstatus.Explain(ctx, a.client, &newest, a.options.Now())
		return reason, strings.TrimSpace("pod " + newest.Name + ": " + message), nil
	}
	if f := serving.CreationFailure(d); f.Reported() {
		return workload.ReasonFailedCreate, kube.Line(f.Message), nil
	}
	return "", "", nil
}

// checkElsewhere is the retry delay after which another worker of the queue may take a check whose namespace this one
// does not serve.
const checkElsewhere = time.Second

// Check reports which of the expected Deployments do not exist. Only Deployments that the watch does not have are read
// from the API server. A worker that does not serve one of their namespaces leaves the check to another worker of its
// queue, which has requested it.
func (a *Activities) Check(ctx context.Context, req serving.CheckRequest) (serving.CheckResult, error) {
	var result serving.CheckResult
	for _, expected := range req.Expected {
		if err := a.check(serving.PartyRequest{Domain: expected.Domain}); err != nil {
			return serving.CheckResult{}, attempt.ApplicationError(&failure.Error{Kind: failure.NotReady,
				RetryAfter: checkElsewhere, Message: err.Error()})
		}
		if d, live := a.watch.deployment(name{expected.Domain, expected.Deployment}); live && d != nil {
			continue
		}
		d, err := a.deployment(ctx, name{expected.Domain, expected.Deployment})
		if err != nil {
			return result, attempt.RetriedError(err)
		}
		if d == nil {
			result.Missing = append(result.Missing, expected.Deleted())
		}
	}
	return result, nil
}

// startChecks starts one check of the expected Deployments for each queue that this worker serves: they may have been
// deleted while no worker was running.
func (o *Observer) startChecks(ctx context.Context) {
	checks := watch.NewQueue[string](minReportPause, maxReportPause)
	for _, queue := range o.activities.options.Queues {
		checks.Add(queue)
	}
	checks.Run(ctx, watch.Work[string]{Failed: func(queue string, err error) {
		o.activities.options.Logger.Warn("cannot start the check of expected Deployments; retrying", "queue", queue,
			"error", err)
	}, Do: o.startCheck})
}

func (o *Observer) startCheck(ctx context.Context, queue string) (again time.Duration, err error) {
	call, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	namespaces := o.activities.options.Namespaces
	_, err = o.temporal.ExecuteWorkflow(call, client.StartWorkflowOptions{
		ID: serving.CheckWorkflowID(queue, namespaces), TaskQueue: catalog.EngineQueue,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		StaticSummary:            "check the expected Deployments of queue " + queue,
	}, serving.TypeCheck, serving.ExpectedRequest{Queue: queue, Namespaces: namespaces})
	return 0, err
}
