package worker

import (
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/workflows"
)

// maxWorkflowTasks bounds the workflow tasks that one process executes at once; they are short and CPU-bound.
const maxWorkflowTasks = 100

// registerWorkflows registers every workflow type under an explicit name: histories contain the names.
func registerWorkflows(w worker.WorkflowRegistry) {
	w.RegisterWorkflowWithOptions(workflows.DeployPlan, workflow.RegisterOptions{Name: workflows.TypeDeployPlan})
	w.RegisterWorkflowWithOptions(workflows.ServiceRelease,
		workflow.RegisterOptions{Name: workflows.TypeServiceRelease})
	w.RegisterWorkflowWithOptions(workflows.Preflight, workflow.RegisterOptions{Name: workflows.TypePreflight})
	w.RegisterWorkflowWithOptions(workflows.Rollout, workflow.RegisterOptions{Name: workflows.TypeRollout})
	w.RegisterWorkflowWithOptions(workflows.Serving, workflow.RegisterOptions{Name: workflows.TypeServing})
	w.RegisterWorkflowWithOptions(workflows.ServingStatuses,
		workflow.RegisterOptions{Name: workflows.TypeServingStatuses})
	w.RegisterWorkflowWithOptions(workflows.PackageSweep, workflow.RegisterOptions{Name: workflows.TypePackageSweep})
	w.RegisterWorkflowWithOptions(workflows.ServingCheck, workflow.RegisterOptions{Name: workflows.TypeServingCheck})
}
