package plan

import (
	"fmt"
	"strings"
)

const workflowPrefix = "task/"

// WorkflowID is the Temporal workflow of a task. A task's ID has no slash, so that no lookup depends on visibility.
func WorkflowID(task string) string { return workflowPrefix + task }

// ItemWorkflowID is the Temporal workflow of item n (counted from 1) of a task.
func ItemWorkflowID(task string, n int, service ServiceID) string {
	return fmt.Sprintf("%s%s/%d-%s", workflowPrefix, task, n, service)
}

// TaskOfWorkflow is the task that a workflow, its own or one of its items', belongs to; ok is false for any other workflow.
func TaskOfWorkflow(workflowID string) (task string, ok bool) {
	rest, ok := strings.CutPrefix(workflowID, workflowPrefix)
	task, _, _ = strings.Cut(rest, "/")
	return task, ok && task != ""
}
