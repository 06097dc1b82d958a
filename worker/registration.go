package worker

import (
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/workflows"
)

// maxWorkflowTasks bounds the workflow tasks that one process works on at once; they are short and bound by the CPU.
const maxWorkflowTasks = 100

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
