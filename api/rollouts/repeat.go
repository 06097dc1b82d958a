package rollouts

import (
	"context"

	"go.temporal.io/api/workflowservice/v1"

	"slipway.io/slipway/api/answer"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/machine"
	"slipway.io/slipway/release/v1alpha1"
)

// Began says whether the record's release has a workflow, open or closed.
func (s *rolloutStart) Began(ctx context.Context, record *v1alpha1.ReleaseRecord) (bool, error) {
	described, err := s.Describe(ctx, record.Spec.WorkflowID)
	if err != nil || described == nil {
		return false, err
	}
	return s.runs(ctx, described, record.Name), nil
}

// Adopt takes on a rollout that was recorded but has no workflow: it is checked again.
func (s *rolloutStart) Adopt(context.Context) error { return nil }

// Deleted is for kinds whose workflow's ID is that of the release.
func (s *rolloutStart) Deleted(context.Context, string) (bool, error) { return false, nil }

// runs says whether the workflow of this name's releases is that of the record. One that was superseded has the memo of its first release.
func (s *rolloutStart) runs(ctx context.Context, described *workflowservice.DescribeWorkflowExecutionResponse, record string) bool {
	if memoRecord(described) == record {
		return true
	}
	var status rollout.Status
	return s.Query(ctx, s.key.workflowID(), &status) == nil && status.Record == record
}

// now is the release as it is answered: as its record or its workflow says, or, before a worker has taken it on, as it was asked. Another
// release of that name may run, or be newer: a key answers with its own.
func (s *rolloutStart) now(ctx context.Context) (rollout.Status, error) {
	if s.Pruned != nil {
		return s.leftOf(s.Pruned), nil
	}
	live, err := s.readRollout(ctx, s.key)
	switch {
	case s.Written.Outcome != nil:
		seen, err := s.readComplete(s.Written)
		return seen.status, err
	case err != nil || live.unanswered != "":
		return s.outlineRollout(s.Written)
	case live.status.Record == s.Written.Name:
		return live.status, nil
	}
	records, err := s.Home.FindRecords(ctx, s.key.labels())
	if err != nil {
		return rollout.Status{}, err
	}
	past := &rolloutHistory{Handlers: s.Handlers, key: s.key, live: &live}
	if len(records) > 0 {
		past.newest = records[0].Name
	}
	release, err := past.release(ctx, s.Written.Name)
	return release.Rollout, err
}

// leftOf is a release whose record was pruned to its key: what was asked, which the request says again, and how it ended.
func (s *rolloutStart) leftOf(record *v1alpha1.ReleaseRecord) rollout.Status {
	created := record.Spec.CreatedAt.UTC()
	setup := machine.Setup{Spec: s.request.Spec, Release: record.Name, Workflow: *s.WorkflowRef(record.Spec.WorkflowID, ""),
		CreatedAt: created,
		Actor:     record.Spec.Actor, Reason: record.Spec.Reason, Via: record.Labels[v1alpha1.LabelVia], BringHome: s.bringHome}
	status := machine.NewMachine(setup, created).Status()
	if outcome := record.Outcome; outcome != nil {
		status.Phase, status.Reason, status.WaitingFor = rollout.Phase(outcome.State), outcome.Reason, nil
		status.Workflow = s.WorkflowRef(record.Spec.WorkflowID, outcome.RunID)
		if outcome.FinishedAt != nil {
			status.FinishedAt = answer.UTC(outcome.FinishedAt.Time)
		}
	}
	return status
}
