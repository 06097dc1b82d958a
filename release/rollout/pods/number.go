package pods

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workload"
)

// numberPods labels the pods of a revision that do not carry the release's ID yet with that ID and the batch's number.
// name replaces the ID if the batch has none, or none that is a valid label value.
func numberPods(b *rollout.Batch, name string, aim Revision, seen Observed) (d NextAction, numbers bool) {
	if b == nil {
		return NextAction{}, false
	}
	id := b.RolloutID
	if id == "" || len(validation.IsValidLabelValue(id)) > 0 {
		id = name
	}
	switch {
	case id == "":
		return NextAction{}, false
	case !seen.PodsSeen:
		return readPods("read which pods the step has added"), true
	}
	fresh := slices.DeleteFunc(seen.allPods(), func(p workload.Pod) bool {
		return p.Revision != aim.Hash || !p.Alive() || p.RolloutID == id
	})
	if len(fresh) == 0 {
		return NextAction{}, false
	}
	d = next(workload.Next(ActNumber, fmt.Sprintf("number %d pods of step %d", len(fresh), b.Step)))
	d.Number = &PodNumbers{Pods: fresh, RolloutID: id, Batch: fmt.Sprint(b.Step)}
	return d, true
}
