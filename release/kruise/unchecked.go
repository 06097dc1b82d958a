package kruise

import (
	"slices"
	"time"

	"slipway.io/slipway/release/author"
	"slipway.io/slipway/release/kruise/v1beta1"
)

// reasonAuthors is the reason of ConditionUnchecked.
const reasonAuthors = "AuthorsNotChecked"

// AuthoredBy returns what is needed to judge whether the authors of a Rollout may change what it refers to; false if it
// refers to nothing that releases change, or only by a TrafficRouting, which has authors of its own.
func AuthoredBy(r *v1beta1.Rollout) (o author.Object, refers bool) {
	s := r.Spec.Strategy
	refers = s.Canary != nil && len(s.Canary.TrafficRoutings) > 0 ||
		s.BlueGreen != nil && len(s.BlueGreen.TrafficRoutings) > 0
	return author.Object{Resource: author.ResourceRollouts, Namespace: r.Namespace, Name: r.Name,
		Created: r.CreationTimestamp.Time, Mark: r.Annotations[author.AnnotationChecked],
		Shown: IsUnchecked(r.Status)}, refers
}

// IsUnchecked returns the warning that a status shows about the authors of its Rollout; "" for none.
func IsUnchecked(s v1beta1.RolloutStatus) string {
	return conditionOf(s.Conditions, v1beta1.ConditionUnchecked).Message
}

// showUnchecked sets ConditionUnchecked in a status, as the last condition, or removes it if why is empty.
func showUnchecked(status *v1beta1.RolloutStatus, before []v1beta1.Condition, why string, now time.Time) {
	all := conditionList{before: before, now: now, list: slices.DeleteFunc(slices.Clone(status.Conditions),
		func(c v1beta1.Condition) bool { return c.Type == v1beta1.ConditionUnchecked })}
	if why != "" {
		all.set(v1beta1.ConditionUnchecked, true, reasonAuthors, why)
	}
	status.Conditions = all.list
}
