package conditions

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

// OfServing returns the conditions of a serving. kept are the conditions in its status: an unchanged condition keeps
// its transition time. For others it is the time of the last status write, or a more exact time on record.
func OfServing(v serving.View, kept []metav1.Condition) []metav1.Condition {
	since := latest(&v.CreatedAt, v.UpdatedAt)
	s := set{generation: v.Generation}
	now := fact{string(v.Phase), v.Message, since}
	s.addAs(Available, availability(v), now)
	op := v.Operation
	runs := op != nil && !op.Done
	progress := fact{string(kuscia.PhaseProgressing), v.Message, since}
	if runs && op.StartedAt != nil {
		progress.message, progress.since = op.Message, *op.StartedAt
	}
	s.add(Progressing, runs || v.Phase == kuscia.PhaseProgressing, progress, fact{string(v.Phase), "", since})
	var wait fact
	if runs && op.WaitingFor != nil {
		wait = fact{waitReason(op.WaitingFor.Kind), op.WaitingFor.Message, op.WaitingFor.Since.Time}
	}
	s.add(Waiting, runs && op.WaitingFor != nil, wait, fact{reasonNothing, "", since})
	s.add(Stalled, v.Phase == kuscia.PhaseFailed, fact{cmp.Or(v.Reason, string(v.Phase)), v.Message, since},
		fact{reasonNoProblem, "", since})
	for i, c := range s.list {
		if before := meta.FindStatusCondition(kept, c.Type); before != nil && before.Status == c.Status {
			s.list[i].LastTransitionTime = before.LastTransitionTime
		}
	}
	return s.list
}

// UpdateStatus writes the conditions of a serving into its status. Their generation is the one whose processing began
// last, so that a client that waits for a newer generation does not mistake them for it. The time of a transition is
// the time of the write that found it.
func UpdateStatus(kd *kuscia.KusciaDeployment, now time.Time) {
	st := kd.Status
	view := serving.View{Generation: st.ObservedGeneration, Phase: cmp.Or(st.Phase, serving.DisplayedPending),
		Reason:       st.Reason,
		Message:      st.Message,
		TotalParties: st.TotalParties, AvailableParties: st.AvailableParties}
	if op := st.Operation; op != nil {
		view.Operation = &serving.OperationView{Done: op.Done, Message: op.Message, WaitingFor: op.WaitingFor}
	}
	for _, c := range OfServing(view, nil) {
		c.LastTransitionTime = metav1.NewTime(now.UTC().Truncate(time.Second))
		meta.SetStatusCondition(&kd.Status.Conditions, c)
	}
}

func availability(v serving.View) metav1.ConditionStatus {
	switch {
	case v.Phase == kuscia.PhaseUnknown:
		return metav1.ConditionUnknown
	case v.TotalParties > 0 && v.AvailableParties == v.TotalParties:
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}
