package rollouts

import (
	"time"

	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/window"
)

// neverOpens refuses a policy whose times never allow the rollout to begin.
func neverOpens(policy strategy.Policy) []schema.FieldProblem {
	why, never := window.NeverOpens(time.Now(), policy.Times)
	if !never {
		return nil
	}
	return []schema.FieldProblem{{Field: "policy.windows", Reason: why}}
}
