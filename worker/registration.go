package worker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/workflows"
)

// maxWorkflowTasks bounds the workflow tasks that one process works on at once; they are short and bound by the CPU.
const maxWorkflowTasks = 100

// attributesPatience is how long Temporal may take to know a search attribute that was added to it: its caches are read anew every minute at most.
const attributesPatience = 90 * time.Second

// registerWorkflows names every workflow type outright: histories carry the names.
func registerWorkflows(w worker.WorkflowRegistry) {
	w.RegisterWorkflowWithOptions(workflows.DeployPlan, workflow.RegisterOptions{Name: workflows.TypeDeployPlan})
	w.RegisterWorkflowWithOptions(workflows.ServiceRelease, workflow.RegisterOptions{Name: workflows.TypeServiceRelease})
	w.RegisterWorkflowWithOptions(workflows.Preflight, workflow.RegisterOptions{Name: workflows.TypePreflight})
	w.RegisterWorkflowWithOptions(workflows.Rollout, workflow.RegisterOptions{Name: workflows.TypeRollout})
	w.RegisterWorkflowWithOptions(workflows.Serving, workflow.RegisterOptions{Name: workflows.TypeServing})
	w.RegisterWorkflowWithOptions(workflows.ServingStatus, workflow.RegisterOptions{Name: workflows.TypeServingStatus})
	w.RegisterWorkflowWithOptions(workflows.ServingStatuses, workflow.RegisterOptions{Name: workflows.TypeServingStatuses})
	w.RegisterWorkflowWithOptions(workflows.PackageSweep, workflow.RegisterOptions{Name: workflows.TypePackageSweep})
	w.RegisterWorkflowWithOptions(workflows.ServingCheck, workflow.RegisterOptions{Name: workflows.TypeServingCheck})
}

// ensureSearchAttributes adds what is missing: a workflow that writes an unknown search attribute would fail its task for ever.
func ensureSearchAttributes(ctx context.Context, c client.Client, namespace string) error {
	known, err := c.OperatorService().ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: namespace})
	if err != nil {
		return fmt.Errorf("search attributes of Temporal namespace %s: %w", namespace, err)
	}
	missing := map[string]enumspb.IndexedValueType{}
	for _, key := range workflows.SearchAttributes {
		have, ok := known.GetCustomAttributes()[key.GetName()]
		if ok && have != key.GetValueType() {
			return fmt.Errorf("search attribute %s of Temporal namespace %s is a %s, not a %s: remove it", key.GetName(), namespace, have,
				key.GetValueType())
		}
		if !ok {
			missing[key.GetName()] = key.GetValueType()
		}
	}
	if len(missing) == 0 {
		return nil
	}
	_, err = c.OperatorService().AddSearchAttributes(ctx,
		&operatorservice.AddSearchAttributesRequest{Namespace: namespace, SearchAttributes: missing})
	if err != nil {
		return fmt.Errorf("cannot add search attributes %v to Temporal namespace %s: %w", slices.Sorted(maps.Keys(missing)), namespace, err)
	}
	return awaitSearchAttributes(ctx, c, namespace, slices.Sorted(maps.Keys(missing)))
}

// awaitSearchAttributes waits until Temporal's frontend has heard of attributes that were added: until then it refuses releases that carry them.
func awaitSearchAttributes(ctx context.Context, c client.Client, namespace string, names []string) error {
	ctx, cancel := context.WithTimeout(ctx, attributesPatience)
	defer cancel()
	query := strings.Join(names, " IS NULL OR ") + " IS NULL"
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		_, err := c.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{Namespace: namespace, Query: query})
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("search attributes %v were added to Temporal namespace %s, but it did not know them %s later: %w", names, namespace,
				attributesPatience, err)
		case <-again.C:
		}
	}
}
