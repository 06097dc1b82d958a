package serving

import (
	"context"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/serving"
)

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
		call, cancel := a.call(ctx)
		_, err := a.client.AppsV1().Deployments(expected.Domain).Get(call, expected.Deployment, metav1.GetOptions{})
		cancel()
		switch {
		case apierrors.IsNotFound(err):
			result.Gone = append(result.Gone, expected.Gone())
		case err != nil:
			return result, attempt.RetriedError(err)
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
