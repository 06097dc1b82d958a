// Package origin decides whether the engine has started a workflow. Every client that may write to Temporal can start
// any workflow with any input; a workflow writes nothing before it knows that its input is the engine's.
package origin

import (
	"encoding/json"
	"fmt"

	"slipway.io/slipway/release/digest"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/v1alpha1"
)

// ActivityCheck asks the centre whether the engine has started a workflow. Request → Answer.
const ActivityCheck = "home.CheckOrigin"

// Request is what a workflow knows about its own start. Messages are only ever extended: recorded histories carry them.
type Request struct {
	// WorkflowID and Type are those of the workflow that asks.
	WorkflowID string `json:"workflowId"`
	Type       string `json:"type"`
	// FormerRun is the run that this one continues with a state; "": the workflow starts. The server sets it.
	FormerRun string `json:"formerRun,omitempty"`
	// Kind and Record are the kind and the name of the release's record; "" for a workflow without one.
	Kind   string `json:"kind,omitempty"`
	Record string `json:"record,omitempty"`
	// InputDigest is the digest of the input with which the workflow was started.
	InputDigest string `json:"inputDigest,omitempty"`
	// Task is the task that the workflow belongs to; "": none.
	Task string `json:"task,omitempty"`
	// Parent is the run that has started the workflow as its child; nil: none. The server sets it. ParentType is the
	// type that a parent must have.
	Parent     *Run   `json:"parent,omitempty"`
	ParentType string `json:"parentType,omitempty"`
}

// Run is a run of a workflow.
type Run struct {
	WorkflowID string `json:"workflowId"`
	RunID      string `json:"runId"`
}

// Answer is the centre's answer. Refusal is why the workflow must not write anything; "": the engine has started it.
type Answer struct {
	Refusal string `json:"refusal,omitempty"`
}

// notStarted begins each refusal.
const notStarted = "the engine has not started this workflow"

// Digest returns the digest of the input of a workflow; an input that was decoded has the digest of the original.
func Digest(input any) string {
	canonical, err := json.Marshal(input)
	if err != nil {
		return "" // a workflow's input always encodes; no record has this digest
	}
	return digest.Of(string(canonical))
}

// CheckRecord decides by the release's record; nil: there is none. byParent is true if the record leaves the decision
// to the parent: the record of a plan's rollout is written before the input is complete.
func (q Request) CheckRecord(record *v1alpha1.ReleaseRecord) (refusal string, byParent bool) {
	switch {
	case record == nil:
		return fmt.Sprintf(notStarted+": there is no record %q", q.Record), false
	case record.Spec.Kind != q.Kind || record.Labels[v1alpha1.LabelKind] != q.Kind:
		return fmt.Sprintf(notStarted+": record %s is not that of a %s", q.Record, q.Kind),
			false
	case record.Spec.WorkflowID != q.WorkflowID:
		return fmt.Sprintf(notStarted+": record %s is of workflow %s", q.Record,
			record.Spec.WorkflowID), false
	case record.Outcome != nil:
		return fmt.Sprintf(notStarted+": the release of record %s is over (%s)", q.Record,
			record.Outcome.State), false
	case record.Spec.InputDigest == "" && q.Kind == v1alpha1.KindRollout && record.Labels[v1alpha1.LabelTask] != "":
		return q.checkTask(record.Labels[v1alpha1.LabelTask]), true
	case record.Spec.InputDigest == "" || record.Spec.InputDigest != q.InputDigest:
		return fmt.Sprintf(notStarted+": record %s is of another input", q.Record), false
	}
	return "", false
}

// checkTask compares the task of the record with that of the workflow and of its parent.
func (q Request) checkTask(task string) string {
	if q.Task != task {
		return fmt.Sprintf(notStarted+": record %s belongs to task %s", q.Record, task)
	}
	return ""
}

// CheckParent decides by the parent, before its run is known: it has to be there, and to belong to the task. A sweep of
// packages belongs to none.
func (q Request) CheckParent() string {
	if q.Parent == nil {
		return fmt.Sprintf(notStarted+": no %s has started it", q.ParentType)
	}
	if task, ok := plan.TaskOfWorkflow(q.Parent.WorkflowID); !ok || q.Task != "" && task != q.Task {
		return fmt.Sprintf(notStarted+": %s is no workflow of its task",
			q.Parent.WorkflowID)
	}
	return ""
}

// Seen is what Temporal has of a run: its type, its task queue, and whether it has continued as new.
type Seen struct {
	Type      string
	Queue     string
	Continued bool
}

// CheckFormer decides by the run before, if the workflow continues one. The engine's code continues only a run whose
// start was checked, so the run before needs no other proof than to be the engine's, and to have continued as new.
func (q Request) CheckFormer(seen *Seen, queue string) string {
	before := Run{q.WorkflowID, q.FormerRun}
	if refusal := CheckRun(before, seen, q.Type, queue); refusal != "" || seen.Continued {
		return refusal
	}
	return fmt.Sprintf(notStarted+": run %s of %s has not continued as new", before.RunID, before.WorkflowID)
}

// CheckRun decides whether a run is one of the engine's, of the type that is expected: only the engine's workers
// execute workflows of its queue. seen is nil if Temporal does not have the run. Another client can give its own
// workflow any ID and type, but not this queue.
func CheckRun(run Run, seen *Seen, wanted, queue string) string {
	switch {
	case seen == nil:
		return fmt.Sprintf("Temporal no longer has run %s of %s, so it is unknown whether the engine has started this "+
			"workflow", run.RunID, run.WorkflowID)
	case seen.Type != wanted || seen.Queue != queue:
		return fmt.Sprintf(notStarted+": run %s of %s is of type %s on queue %s", run.RunID, run.WorkflowID, seen.Type,
			seen.Queue)
	}
	return ""
}
