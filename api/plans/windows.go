package plans

import (
	"iter"
	"time"

	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/window"
)

// neverOpens refuses times that never allow a beginning from now on: the task would wait forever.
func neverOpens(times ...window.Times) []schema.FieldProblem {
	why, never := window.NeverOpens(time.Now(), times...)
	if !never {
		return nil
	}
	return []schema.FieldProblem{{Field: "windows", Reason: why}}
}

// neverOpens refuses the task's times if they never allow a beginning: the plan's own, those of this execution, or both
// combined.
func (x *taskStart) neverOpens() []schema.FieldProblem {
	own := neverOpens(x.snapshot.Document.Times)
	if len(own) > 0 || x.times.AnyTime() { // this execution adds no times
		return own
	}
	for _, one := range []struct {
		whose string
		times []window.Times
	}{
		{"the times of this execution, not those of the plan, ", []window.Times{x.times}},
		{"the times of this execution and those of the plan together ", x.snapshot.AllTimes()},
	} {
		if why, never := window.NeverOpens(time.Now(), one.times...); never {
			return []schema.FieldProblem{{Field: "windows", Reason: one.whose + why}}
		}
	}
	return nil
}

// servicesNeverOpen refuses items released by rollouts whose policy windows never open.
func servicesNeverOpen(snapshot plan.Snapshot) (all []schema.FieldProblem) {
	for n, times := range policies(snapshot) {
		if why, never := window.NeverOpens(time.Now(), times); never {
			all = append(all, itemFinding(n, "the windows of the service's policy "+why))
		}
	}
	return all
}

// timeWarnings returns which times would delay the task if it began now, and which times are in the past.
func (x *taskStart) timeWarnings(now time.Time) (all []schema.FieldProblem) {
	add := func(field, reason string) {
		if reason != "" {
			all = append(all, schema.FieldProblem{Field: field, Reason: reason})
		}
	}
	add("", window.DelayReason(now, x.snapshot.AllTimes()...))
	for n, times := range policies(x.snapshot) {
		if held := window.DelayReason(now, times); held != "" {
			all = append(all, itemFinding(n, "by the policy of service "+string(x.snapshot.Document.Items[n].ServiceID)+
				", "+held))
		}
	}
	if x.rerun == nil || !x.rerun.keepsTimes {
		add("notBefore", x.times.Lapsed(now))
	}
	if x.rerun == nil { // for a rerun, the plan's time is expected to be in the past
		add("notBefore", x.snapshot.Document.Lapsed(now))
	}
	return all
}

// policies yields the times of the policies of items released by rollouts, by index into the document.
func policies(snapshot plan.Snapshot) iter.Seq2[int, window.Times] {
	return func(yield func(int, window.Times) bool) {
		for n, item := range snapshot.Document.Items {
			if !snapshot.RollsOut(n) {
				continue
			}
			read, wrong := strategy.ReadService(snapshot.Services[item.ServiceID])
			if len(wrong) > 0 {
				continue // plan.Resolve reports the errors
			}
			if !yield(n, read.Policy.Times) {
				return
			}
		}
	}
}
