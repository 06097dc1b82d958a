package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/instant"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/history"
	"slipway.io/slipway/release/rollout/machine"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/v1alpha1"
)

// Snapshot returns what a task executes, from its record.
func (s *Store) Snapshot(ctx context.Context, task string) (plan.Snapshot, error) {
	record, err := s.GetRecord(ctx, task)
	if err != nil {
		return plan.Snapshot{}, err
	}
	var snapshot plan.Snapshot
	if err := v1alpha1.DecodeBody(record.Spec.Snapshot, &snapshot); err != nil {
		return plan.Snapshot{}, failure.New(failure.Refused, "the record of task %s cannot be read: %v", task, err)
	}
	return snapshot, nil
}

// PlanOfTask returns the plan that a task executes, "" if the task's record no longer exists.
func (s *Store) PlanOfTask(ctx context.Context, task string) (string, error) {
	record, err := s.GetRecord(ctx, task)
	if err != nil {
		return "", failure.Ignore(err, failure.NotFound)
	}
	return record.Spec.Subject, nil
}

// CompleteTask writes the final task into its record and keeps the newest keep records of its plan (0: keepRecords). It
// is idempotent.
func (s *Store) CompleteTask(ctx context.Context, task plan.Task, keep int) error {
	name := v1alpha1.RecordName(v1alpha1.KindTask, task.ID)
	outcome := v1alpha1.ReleaseOutcome{State: string(task.State), Reason: task.Reason,
		StartedAt: microTime(task.StartedAt), FinishedAt: microTime(task.FinishedAt), Packages: task.Packages(),
		Services: new(task.Counts())}
	if err := s.complete(ctx, v1alpha1.KindTask, name, outcome, ending{task.Workflow, task}); err != nil {
		return err
	}
	_, err := s.PruneRecords(ctx, v1alpha1.KindTask, task.Plan, name, keep)
	return err
}

// CompleteRollout writes the final status of a rollout into its record and keeps the newest keep records of its name
// (0: keepRecords). It is idempotent.
func (s *Store) CompleteRollout(ctx context.Context, record string, status rollout.Status, keep int) error {
	outcome := v1alpha1.ReleaseOutcome{State: string(status.Phase), Reason: status.Reason,
		StartedAt: microTime(&status.CreatedAt), FinishedAt: microTime(status.FinishedAt), Packages: status.Packages()}
	err := s.complete(ctx, v1alpha1.KindRollout, record, outcome, ending{status.Workflow, status})
	tooFew := status.Revision > 0 && status.Revision <= int64(cmp.Or(keep, keepRecords)/2)
	if err != nil || tooFew {
		return err // the subject cannot have enough records yet for one to be pruned
	}
	subject := v1alpha1.SubjectLabel(v1alpha1.RolloutSubject(status.Party, status.Namespace, status.Name))
	_, err = s.PruneRecords(ctx, v1alpha1.KindRollout, subject, record, keep)
	return err
}

// ending is the last status of a release, and its workflow.
type ending struct {
	workflow *audit.WorkflowRef
	status   any
}

func (s *Store) complete(ctx context.Context, kind, record string, outcome v1alpha1.ReleaseOutcome, end ending) error {
	var err error
	if outcome.Body, err = v1alpha1.EncodeBody(end.status); err != nil {
		return failure.New(failure.Refused, "record %s cannot be written: %v", record, err)
	}
	if end.workflow != nil {
		outcome.RunID = end.workflow.RunID
	}
	return s.CompleteRelease(ctx, kind, record, outcome)
}

func microTime(at *time.Time) *instant.Micro {
	if at == nil {
		return nil
	}
	return new(instant.MicroOf(*at))
}

// RecordServing writes the record of a serving operation that begins. An existing one is its own.
func (s *Store) RecordServing(ctx context.Context, asked serving.ReleaseRequest) error {
	name := v1alpha1.RecordName(v1alpha1.KindServing, asked.RunID)
	snapshot, err := v1alpha1.EncodeBody(asked)
	if err != nil {
		return failure.New(failure.Refused, "record %s cannot be written: %v", name, err)
	}
	in := asked.Input
	err = s.CreateRecord(ctx, &v1alpha1.ReleaseRecord{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			v1alpha1.LabelKind: v1alpha1.KindServing, v1alpha1.LabelSubject: v1alpha1.SubjectLabel(in.ID)}},
		Spec: v1alpha1.ReleaseRecordSpec{Kind: v1alpha1.KindServing, Subject: in.ID,
			Comment:    fmt.Sprintf("%s, generation %d", in.Kind, in.Generation),
			WorkflowID: asked.WorkflowID, CreatedAt: instant.MicroOf(asked.StartedAt), Snapshot: snapshot},
	})
	if failure.Is(err, failure.Conflict) {
		return nil
	}
	return err
}

// CompleteServing writes how a serving operation ended into its record and keeps the newest keep records of that
// serving (0: keepRecords). It is idempotent; an ending with more commands than the record has replaces it.
func (s *Store) CompleteServing(ctx context.Context, name string, end serving.Ending, keep int) error {
	return failure.RetryOnConflict("record "+name, func() error {
		record, err := s.GetRelease(ctx, name)
		if err != nil {
			return err
		}
		var asked serving.ReleaseRequest
		if err := v1alpha1.DecodeBody(record.Spec.Snapshot, &asked); err != nil {
			return failure.New(failure.Refused, "record %s: %v", record.Name, err)
		}
		if err = s.endServing(ctx, record, asked, end); err != nil ||
			serving.BelowRecordLimit(asked.Input, cmp.Or(keep, keepRecords)) {
			return err
		}
		_, err = s.PruneRecords(ctx, v1alpha1.KindServing, record.Labels[v1alpha1.LabelSubject], name, keep)
		return err
	})
}

// endServing writes an ending into a record, which must be unchanged since it was read.
func (s *Store) endServing(ctx context.Context, record *v1alpha1.ReleaseRecord, asked serving.ReleaseRequest,
	end serving.Ending) error {
	release := asked.Release()
	if record.Outcome != nil {
		if err := v1alpha1.DecodeBody(record.Outcome.Body, &release); err != nil {
			return failure.New(failure.Refused, "record %s: %v", record.Name, err)
		}
		if release.Includes(end) {
			return nil
		}
	}
	body, err := v1alpha1.EncodeBody(release.Ended(end))
	if err != nil {
		return failure.New(failure.Refused, "record %s cannot be written: %v", record.Name, err)
	}
	return s.writeOutcome(ctx, record, v1alpha1.ReleaseOutcome{State: string(end.State), Reason: end.Reason,
		RunID: asked.RunID, Body: body,
		StartedAt: new(instant.MicroOf(asked.StartedAt)), FinishedAt: new(instant.MicroOf(end.At))})
}

// RolloutLabels select the records of all releases of a rollout's name.
func RolloutLabels(party, namespace, name string) map[string]string {
	return map[string]string{v1alpha1.LabelKind: v1alpha1.KindRollout,
		v1alpha1.LabelSubject: v1alpha1.SubjectLabel(v1alpha1.RolloutSubject(party, namespace, name))}
}

// NewRolloutRecord returns the record of a release that begins, with Asked's spec, number, task and labels. The caller
// adds its name, time, actor and reason.
func NewRolloutRecord(asked machine.Request) (*v1alpha1.ReleaseRecord, error) {
	spec := asked.Spec
	snapshot, err := v1alpha1.EncodeBody(spec)
	if err != nil {
		return nil, err
	}
	party := spec.Workload().PartyOrDefault()
	record := &v1alpha1.ReleaseRecord{Spec: v1alpha1.ReleaseRecordSpec{Kind: v1alpha1.KindRollout,
		Subject: v1alpha1.RolloutSubject(party, spec.Namespace, spec.Name), Comment: asked.Outline(),
		Workload: &spec.WorkloadRef, Style: string(spec.Strategy.Style), WorkflowID: rollout.WorkflowID(party,
			spec.Namespace, spec.Name), Snapshot: snapshot}}
	record.Labels = RolloutLabels(party, spec.Namespace, spec.Name)
	if asked.RollBackFrozen {
		record.Labels[v1alpha1.LabelRollBackFrozen] = "true"
	} else {
		record.Labels[v1alpha1.LabelRevision] = strconv.FormatInt(asked.Revision, 10)
	}
	if asked.Task != "" {
		record.Labels[v1alpha1.LabelTask] = asked.Task
	}
	return record, nil
}

// RolloutAsked returns the request of a record's release; the caller passes the decoded spec.
func RolloutAsked(record *v1alpha1.ReleaseRecord, spec strategy.Spec) machine.Request {
	return machine.Request{Spec: spec, Record: record.Name, CreatedAt: record.Spec.CreatedAt.UTC(),
		Actor: record.Spec.Actor, Reason: record.Spec.Reason, Via: record.Labels[v1alpha1.LabelVia],
		RollBackFrozen: IsRestoreOnly(record), Revision: v1alpha1.RevisionOf(record),
		Task: record.Labels[v1alpha1.LabelTask]}
}

// IsRestoreOnly reports whether a record's release deploys nothing, and only restores what an earlier release left
// frozen.
func IsRestoreOnly(record *v1alpha1.ReleaseRecord) bool {
	return record.Labels[v1alpha1.LabelRollBackFrozen] != ""
}

// LastHealthy returns the version that the newest Healthy release of this name has left on its workload; nil if none is
// on record.
func (s *Store) LastHealthy(ctx context.Context, of strategy.Spec) (*strategy.Revision, error) {
	records, err := s.ListRecords(ctx, RolloutLabels(of.Workload().PartyOrDefault(), of.Namespace, of.Name))
	if err != nil {
		return nil, err
	}
	for _, listed := range records {
		if IsRestoreOnly(listed) || listed.Outcome == nil || listed.Outcome.State != string(rollout.PhaseHealthy) {
			continue
		}
		record, err := s.GetRelease(ctx, listed.Name)
		if failure.Is(err, failure.NotFound) {
			continue // it was pruned in the meantime
		}
		if err != nil {
			return nil, err
		}
		var ended rollout.Status
		if err := v1alpha1.DecodeBody(record.Outcome.Body, &ended); err != nil {
			return nil, fmt.Errorf("record %s: %w", record.Name, err)
		}
		if left, known := history.DeployedBy(ended); known && ended.WorkloadRef == of.WorkloadRef {
			return &left, nil
		}
	}
	return nil, nil
}

// NextNumber returns the number of the next release of a name; records are all of that name. A release that only
// restored a frozen split has none.
func NextNumber(records []*v1alpha1.ReleaseRecord) int64 {
	var numbers []int64
	for _, record := range records {
		if !IsRestoreOnly(record) {
			numbers = append(numbers, v1alpha1.RevisionOf(record))
		}
	}
	return history.Next(numbers)
}

// NumberTaken reports whether one of these records has the same number and was written first.
func NumberTaken(record *v1alpha1.ReleaseRecord, among []*v1alpha1.ReleaseRecord) bool {
	return slices.ContainsFunc(among, func(other *v1alpha1.ReleaseRecord) bool {
		if other.Name == record.Name || IsRestoreOnly(other) ||
			v1alpha1.RevisionOf(other) != v1alpha1.RevisionOf(record) {
			return false
		}
		return cmp.Or(other.Spec.CreatedAt.Compare(record.Spec.CreatedAt.Time),
			cmp.Compare(other.Name, record.Name)) < 0
	})
}
