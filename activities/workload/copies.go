package workload

import (
	"context"

	"slipway.io/slipway/activities/drift"
	"slipway.io/slipway/execution"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workload"
)

// noteCopy finds out whether another client has brought back what an ended release had left on a workload, with a dump
// or a manifest. The detector removes it from a claimed workload, but an operation that begins before that, or on a
// workload that a frozen release had left without a claim, must not take it for the state of a release.
func (t *operationJob) noteCopy(ctx context.Context, o *object) {
	claim, annotation := o.seen.Claim, workload.AnnotationClaimedBy
	if claim == "" && o.seen.Rollout != "" {
		if saved, err := rollout.ParseSaved(o.seen.Rollout); err == nil {
			claim, annotation = saved.Claim, workload.AnnotationRollout
		}
	}
	if t.a.options.Temporal == nil || claim == "" || claim == t.req.Claim || workload.IsForeign(t.req.Claim, claim) ||
		!drift.Brought(o, annotation) {
		return
	}
	ended, err := execution.HasGivenBack(ctx, t.a.options.Temporal, claim)
	if err != nil { // then it counts as what it seems to be
		t.a.options.Logger.WarnContext(ctx, "Temporal did not answer whether a release has ended", "workload",
			t.workload.String(), "claim", claim, "error", err)
		return
	}
	if ended {
		o.seen.Copied, o.seen.Original, o.seen.OriginalProblem, o.seen.Rollout = true, nil, "", ""
	}
}
