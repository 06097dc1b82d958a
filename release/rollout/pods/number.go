package pods

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// PodNumbers are the labels of the pods that a step has added: the release's ID, and of each pod the number of its
// batch.
type PodNumbers struct {
	Pods      []workload.Pod
	RolloutID string
	Batches   []string
}

// numberPods labels the pods of a revision that do not carry the release's ID yet with that ID and the batch's number.
// hash, of the new revision, replaces the ID if the batch has none, or none that is a valid label value.
func numberPods(b *rollout.Batch, hash string, aim Revision, seen Observed, style strategy.Style) (d NextAction,
	numbers bool) {
	if b == nil {
		return NextAction{}, false
	}
	id := b.RolloutID
	if id == "" || len(validation.IsValidLabelValue(id)) > 0 {
		id = hash
	}
	switch {
	case id == "":
		return NextAction{}, false
	case !seen.PodsSeen:
		return readPods("read which pods the step has added"), true
	}
	fresh := slices.DeleteFunc(slices.Clone(seen.allPods()), func(p workload.Pod) bool {
		return p.Revision != aim.Hash || !p.Alive() || p.RolloutID == id
	})
	numbered := PodNumbers{RolloutID: id}
	room := batchRoom(b, id, aim, seen, style)
	for _, pod := range fresh {
		at := slices.IndexFunc(room, func(n int32) bool { return n > 0 })
		switch {
		case at >= 0:
			room[at]--
		case b.Only: // the others are of later steps
			continue
		default:
			at = b.Step - 1
		}
		numbered.Pods = append(numbered.Pods, pod)
		numbered.Batches = append(numbered.Batches, fmt.Sprint(at+1))
	}
	if len(numbered.Pods) == 0 {
		return NextAction{}, false
	}
	d = next(workload.Next(ActNumber, fmt.Sprintf("number %d pods of step %d", len(numbered.Pods), b.Step)))
	d.Number = &numbered
	return d, true
}

// batchRoom returns how many pods the batches up to the current one lack, by the plan of steps for the workload's size.
func batchRoom(b *rollout.Batch, id string, aim Revision, seen Observed, style strategy.Style) (room []int32) {
	before := int32(0)
	for i, replicas := range b.Plan {
		target := max(strategy.Target(style, replicas, seen.Replicas), before)
		there := int32(0)
		for _, p := range seen.allPods() {
			if p.Revision == aim.Hash && p.Alive() && p.RolloutID == id && p.Batch == fmt.Sprint(i+1) {
				there++
			}
		}
		room = append(room, target-before-there)
		before = target
	}
	return room
}

// onlyNumbers reports whether the step creates no pod: it only gives pods the number of the release.
func (m *move) onlyNumbers() bool { return m.req.Batch != nil && m.req.Batch.Only }

// numberStep decides on the step of a release that replaces no pod. The step is done once as many pods are ready as it
// has, and these have their numbers.
func (m *move) numberStep() NextAction {
	t := m.task
	switch {
	case m.req.Halt:
		m.numbers.Message = m.progress()
		return done(m.numbers.Message)
	case !t.Placed:
		return failTemplateDrift(m.req.Subject, m.seen)
	case t.Total < t.Target || t.Ready+t.Tolerated < t.Target:
		return m.wait("")
	}
	m.numbers.Message = m.progress()
	d, numbers := numberPods(m.req.Batch, t.Aim.Hash, t.Aim, m.seen, m.req.Style)
	if !numbers {
		return done(m.numbers.Message)
	}
	d.Ends = true
	return d
}
