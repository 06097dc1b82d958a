package plans

import (
	"iter"
	"time"

	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/window"
)

// neverOpens refuses times that leave no moment from now on to begin in: the task would wait for ever.
func neverOpens(times ...window.Times) []schema.FieldProblem {
	why, never := window.NeverFrom(time.Now(), times...)
	if !never {
		return nil
	}
	return []schema.FieldProblem{{Field: "windows", Reason: why}}
}

// neverOpens are the times of the task that leave no moment to begin in: the plan's own, those of this execution, or both together.
func (x *taskStart) neverOpens() []schema.FieldProblem {
	own := neverOpens(x.snapshot.Document.Times)
	if len(own) > 0 || x.times.AnyTime() { // nothing but the plan's
		return own
	}
	for _, one := range []struct {
		whose string
		times []window.Times
	}{
		{"the times of this execution, not those of the plan, ", []window.Times{x.times}},
		{"the times of this execution and those of the plan together ", x.snapshot.AllTimes()},
	} {
		if why, never := window.NeverFrom(time.Now(), one.times...); never {
			return []schema.FieldProblem{{Field: "windows", Reason: one.whose + why}}
		}
	}
	return nil
}

// servicesNeverOpen are the items that rollouts would release whose policy never lets them begin.
func servicesNeverOpen(snapshot plan.Snapshot) (all []schema.FieldProblem) {
	for n, times := range policies(snapshot) {
		if why, never := window.NeverFrom(time.Now(), times); never {
			all = append(all, itemFinding(n, "the windows of the service's policy "+why))
		}
	}
	return all
}

// waits says what would wait for the times if the task began now, and which times are past.
func (x *taskStart) waits(now time.Time) (all []schema.FieldProblem) {
	say := func(field, reason string) {
		if reason != "" {
			all = append(all, schema.FieldProblem{Field: field, Reason: reason})
		}
	}
	say("", window.HeldFrom(now, x.snapshot.AllTimes()...))
	for n, times := range policies(x.snapshot) {
		if held := window.HeldFrom(now, times); held != "" {
			all = append(all, itemFinding(n, "by the policy of service "+string(x.snapshot.Document.Items[n].ServiceID)+", "+held))
		}
	}
	if x.rerun == nil || !x.rerun.timed {
		say("notBefore", x.times.Lapsed(now))
	}
	if x.rerun == nil { // whose plan's time is past by nature
		say("notBefore", x.snapshot.Document.Lapsed(now))
	}
	return all
}

// policies are the times of the items that rollouts would release, by their indexes into the document.
func policies(snapshot plan.Snapshot) iter.Seq2[int, window.Times] {
	return func(yield func(int, window.Times) bool) {
		for n, item := range snapshot.Document.Items {
			if !snapshot.RollsOut(n) {
				continue
			}
			read, wrong := strategy.ReadService(snapshot.Services[item.ServiceID])
			if len(wrong) > 0 {
				continue // whoever plans the rollouts says what is wrong
			}
			if !yield(n, read.Policy.Times) {
				return
			}
		}
	}
}
