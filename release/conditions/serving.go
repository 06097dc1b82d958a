package conditions

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

// OfServing are the conditions of a serving. The status of a serving has one time, when it last changed, which stands for all conditions
// that have none of their own.
func OfServing(v serving.View) []metav1.Condition {
	since := latest(&v.CreatedAt, v.UpdatedAt)
	s := set{generation: v.Generation}
	s.add(Available, fact{availability(v), string(v.Phase), v.Message, since})
	op := v.Operation
	switch {
	case v.Phase == kuscia.PhaseProgressing || op != nil && !op.Done:
		progress := fact{metav1.ConditionTrue, string(kuscia.PhaseProgressing), v.Message, since}
		if op != nil && op.StartedAt != nil && !op.Done {
			progress.message, progress.since = op.Message, *op.StartedAt
		}
		s.add(Progressing, progress)
	default:
		s.add(Progressing, fact{metav1.ConditionFalse, string(v.Phase), "", since})
	}
	if op != nil && !op.Done && op.WaitingFor != nil {
		s.add(Waiting, fact{metav1.ConditionTrue, camel(op.WaitingFor.Kind), op.WaitingFor.Message, op.WaitingFor.Since.Time})
	} else {
		s.add(Waiting, fact{metav1.ConditionFalse, reasonNothing, "", since})
	}
	if v.Phase == kuscia.PhaseFailed {
		reason := v.Reason
		if reason == "" {
			reason = string(v.Phase)
		}
		s.add(Stalled, fact{metav1.ConditionTrue, reason, v.Message, since})
	} else {
		s.add(Stalled, fact{metav1.ConditionFalse, reasonSound, "", since})
	}
	return s.list
}

func availability(v serving.View) metav1.ConditionStatus {
	if v.Phase == kuscia.PhaseUnknown {
		return metav1.ConditionUnknown
	}
	return statusOf(v.TotalParties > 0 && v.AvailableParties == v.TotalParties)
}
