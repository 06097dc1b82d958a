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

// RolloutLabels find the records of all releases of a rollout's name.
func RolloutLabels(party, namespace, name string) map[string]string {
	return map[string]string{v1alpha1.LabelKind: v1alpha1.KindRollout,
		v1alpha1.LabelSubject: v1alpha1.SubjectLabel(v1alpha1.RolloutSubject(party, namespace, name))}
}

// NewRolloutRecord is the record of a release that begins, as far as Asked's spec, number, task and way say it: who starts it adds a name, when, by whom and
// why.
func NewRolloutRecord(asked machine.Asked) (*v1alpha1.ReleaseRecord, error) {
	spec := asked.Spec
	snapshot, err := v1alpha1.EncodeBody(spec)
	if err != nil {
		return nil, err
	}
	party := spec.Workload().PartyOrDefault()
	record := &v1alpha1.ReleaseRecord{Spec: v1alpha1.ReleaseRecordSpec{Kind: v1alpha1.KindRollout,
		Subject: v1alpha1.RolloutSubject(party, spec.Namespace, spec.Name), Comment: asked.Outline(), Workload: &spec.WorkloadRef,
		Style: string(spec.Strategy.Style), WorkflowID: rollout.WorkflowID(party, spec.Namespace, spec.Name), Snapshot: snapshot}}
	record.Labels = RolloutLabels(party, spec.Namespace, spec.Name)
	if asked.BringHome {
		record.Labels[v1alpha1.LabelBringHome] = "true"
	} else {
		record.Labels[v1alpha1.LabelRevision] = strconv.FormatInt(asked.Revision, 10)
	}
	if asked.Task != "" {
		record.Labels[v1alpha1.LabelTask] = asked.Task
	}
	return record, nil
}

// RolloutAsked is what a record's release was asked; the spec is told beside it.
func RolloutAsked(record *v1alpha1.ReleaseRecord, spec strategy.Spec) machine.Asked {
	return machine.Asked{Spec: spec, Record: record.Name, CreatedAt: record.Spec.CreatedAt.UTC(), Actor: record.Spec.Actor,
		Reason: record.Spec.Reason, Via: record.Labels[v1alpha1.LabelVia], BringHome: BringsHome(record), Revision: v1alpha1.RevisionOf(record),
		Task: record.Labels[v1alpha1.LabelTask]}
}

// BringsHome says that a record's release changes nothing, and only restores what one before it left frozen.
func BringsHome(record *v1alpha1.ReleaseRecord) bool {
	return record.Labels[v1alpha1.LabelBringHome] != ""
}

// RecordedNumbers are the numbers of releases as they were recorded. What only brought home a frozen split is no release.
func RecordedNumbers(records []*v1alpha1.ReleaseRecord) (numbers []int64) {
	for _, record := range records {
		if !BringsHome(record) {
			numbers = append(numbers, v1alpha1.RevisionOf(record))
		}
	}
	return numbers
}

// NextNumber is the number of the next release of a name, of which these are the records.
func NextNumber(records []*v1alpha1.ReleaseRecord) int64 {
	return history.Next(RecordedNumbers(records))
}

// Outnumbered says that one of these records has the number of another one, and was written first.
func Outnumbered(record *v1alpha1.ReleaseRecord, among []*v1alpha1.ReleaseRecord) bool {
	return slices.ContainsFunc(among, func(other *v1alpha1.ReleaseRecord) bool {
		if other.Name == record.Name || BringsHome(other) || v1alpha1.RevisionOf(other) != v1alpha1.RevisionOf(record) {
			return false
		}
		return cmp.Or(other.Spec.CreatedAt.Compare(record.Spec.CreatedAt.Time), cmp.Compare(other.Name, record.Name)) < 0
	})
}
