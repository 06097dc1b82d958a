package store

import (
	"cmp"
	"slices"
	"strconv"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/history"
	"slipway.io/slipway/release/rollout/machine"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/v1alpha1"
)

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
		Workload: &spec.WorkloadRef,
		Style:    string(spec.Strategy.Style), WorkflowID: rollout.WorkflowID(party, spec.Namespace, spec.Name),
		Snapshot: snapshot}}
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
		Actor:  record.Spec.Actor,
		Reason: record.Spec.Reason, Via: record.Labels[v1alpha1.LabelVia], RollBackFrozen: IsRestoreOnly(record),
		Revision: v1alpha1.RevisionOf(record),
		Task:     record.Labels[v1alpha1.LabelTask]}
}

// IsRestoreOnly reports whether a record's release deploys nothing, and only restores what an earlier release left
// frozen.
func IsRestoreOnly(record *v1alpha1.ReleaseRecord) bool {
	return record.Labels[v1alpha1.LabelRollBackFrozen] != ""
}

// recordedNumbers returns the recorded release numbers. A release that only restored a frozen split has none.
func recordedNumbers(records []*v1alpha1.ReleaseRecord) (numbers []int64) {
	for _, record := range records {
		if !IsRestoreOnly(record) {
			numbers = append(numbers, v1alpha1.RevisionOf(record))
		}
	}
	return numbers
}

// NextNumber returns the number of the next release of a name; records are all of that name.
func NextNumber(records []*v1alpha1.ReleaseRecord) int64 {
	return history.Next(recordedNumbers(records))
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
