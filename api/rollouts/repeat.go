package rollouts

import (
	"context"
	"strings"
	"time"

	"go.temporal.io/api/workflowservice/v1"

	"slipway.io/slipway/api/answer"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/start"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/v1alpha1"
)

// lookUpKey finds the release that the key already stands for. done says that there is nothing left to do. A release that was recorded but
// never started is taken on: whoever began it died in between.
func (s *rolloutStart) lookUpKey(ctx context.Context) (done bool, err error) {
	records, err := start.KeyRecords(ctx, s.Backend, v1alpha1.KindRollout, s.request.Key)
	if err != nil {
		return false, err
	}
	after := ""
	if len(records) > 0 {
		newest := records[0]
		if time.Since(newest.Spec.CreatedAt.Time) < v1alpha1.KeyLifetime {
			return s.repeat(ctx, newest)
		}
		after = newest.Name
	}
	s.recordID = s.key.keyedRecordID(s.request.Key, after)
	return false, nil
}

// repeat answers a request whose key has a release.
func (s *rolloutStart) repeat(ctx context.Context, record v1alpha1.ReleaseRecord) (done bool, err error) {
	if record.Spec.Subject != s.key.subject() || record.Spec.RequestDigest != s.requestDigest() {
		return false, problem.Conflict.Because("the key was used for another request: a release of rollout %s at %s; take a new key",
			record.Spec.Subject, record.Spec.CreatedAt.UTC().Format(time.RFC3339)).HeldBy(record.Spec.WorkflowID)
	}
	s.recordID = strings.TrimPrefix(record.Name, v1alpha1.KindRollout+"-")
	whole, err := s.Home.GetRelease(ctx, record.Name)
	if problem.IsFailure(err, failure.NotFound) {
		if record.Labels[v1alpha1.LabelKind] != v1alpha1.KindKey {
			return false, nil // its twin has withdrawn it
		}
		s.pruned = &record
		return true, nil
	}
	if err != nil {
		return false, err
	}
	s.record, s.adopted = whole, true
	if whole.Outcome != nil {
		return true, nil
	}
	began, err := s.began(ctx, whole)
	if began || err != nil {
		return began, err
	}
	return time.Since(whole.Spec.CreatedAt.Time) > start.AdoptWindow, nil
}

// began says whether the record's release has a workflow, open or closed.
func (s *rolloutStart) began(ctx context.Context, record *v1alpha1.ReleaseRecord) (bool, error) {
	described, err := s.Describe(ctx, record.Spec.WorkflowID)
	if err != nil || described == nil {
		return false, err
	}
	return s.runs(ctx, described, record.Name), nil
}

// runs says whether the workflow of this name's releases is that of the record. One that was superseded has the memo of its first release.
func (s *rolloutStart) runs(ctx context.Context, described *workflowservice.DescribeWorkflowExecutionResponse, record string) bool {
	if memoRecord(described) == record {
		return true
	}
	var status rollout.Status
	return s.Query(ctx, s.key.workflowID(), &status) == nil && status.Record == record
}

// now is the release as it is answered: as its record or its workflow says, or, before a worker has taken it on, as it was asked. Another release
// of that name may run, or be newer: a key answers with its own.
func (s *rolloutStart) now(ctx context.Context) (rollout.Status, error) {
	if s.pruned != nil {
		return s.leftOf(s.pruned), nil
	}
	live, err := s.readRollout(ctx, s.key)
	switch {
	case s.record.Outcome != nil:
		seen, err := s.readComplete(s.record)
		return seen.status, err
	case err != nil || live.unanswered != "":
		return s.outlineRollout(s.record)
	case live.status.Record == s.record.Name:
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
	release, err := past.release(ctx, s.record.Name)
	return release.Rollout, err
}

// leftOf is a release whose record was pruned to its key: what was asked, which the request says again, and how it ended.
func (s *rolloutStart) leftOf(record *v1alpha1.ReleaseRecord) rollout.Status {
	created := record.Spec.CreatedAt.UTC()
	setup := rollout.Setup{Spec: s.request.Spec, Release: record.Name, Workflow: *s.WorkflowRef(record.Spec.WorkflowID, ""), CreatedAt: created,
		Actor: record.Spec.Actor, Reason: record.Spec.Reason, Via: record.Labels[v1alpha1.LabelVia], BringHome: s.bringHome}
	status := rollout.NewMachine(setup, created).Status()
	if outcome := record.Outcome; outcome != nil {
		status.Phase, status.Reason, status.WaitingFor = rollout.Phase(outcome.State), outcome.Reason, nil
		status.Workflow = s.WorkflowRef(record.Spec.WorkflowID, outcome.RunID)
		if outcome.FinishedAt != nil {
			status.FinishedAt = answer.UTC(outcome.FinishedAt.Time)
		}
	}
	return status
}
