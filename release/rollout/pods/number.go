package pods

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workloadops"
)

// number labels the pods of a revision that carry no number of this release yet: they are the batch's. name stands for the release where the batch
// names none, or none that fits a label.
func number(b *rollout.Batch, name string, aim Revision, seen Observed) (d NextAction, numbers bool) {
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
		return look("see which pods the step has brought"), true
	}
	fresh := slices.DeleteFunc(seen.allPods(), func(p workloadops.Pod) bool {
		return p.Revision != aim.Hash || !p.Alive() || p.RolloutID == id
	})
	if len(fresh) == 0 {
		return NextAction{}, false
	}
	d = next(workloadops.Next(ActNumber, fmt.Sprintf("number %d pods of step %d", len(fresh), b.Step)))
	d.Number = &PodNumbers{Pods: fresh, RolloutID: id, Batch: fmt.Sprint(b.Step)}
	return d, true
}
