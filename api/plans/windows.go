package plans

import (
	"time"

	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/strictyaml"
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

// servicesNeverOpen are the items that rollouts would release whose policy never lets them begin.
func servicesNeverOpen(snapshot plan.Snapshot) (all []schema.FieldProblem) {
	for n, item := range snapshot.Document.Items {
		if !snapshot.RollsOut(n) {
			continue
		}
		read, wrong := strategy.ReadService(snapshot.Services[item.ServiceID])
		if len(wrong) > 0 {
			continue // whoever plans the rollouts says what is wrong
		}
		if why, never := window.NeverFrom(time.Now(), read.Policy.Times); never {
			all = append(all, schema.FieldProblem{Item: n + 1, Field: strictyaml.Join(strictyaml.Index("deployPlanItems", n), "serviceId"),
				Reason: "the windows of the service's policy " + why})
		}
	}
	return all
}
