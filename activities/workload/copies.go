package workload

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/activities/drift"
	"slipway.io/slipway/execution"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workload"
)

// isCopy reports whether another client has brought back what a workload has of releases, with a dump or a manifest:
// the release of its claim and the one that saved its split, which may be two, have ended and given everything back.
// ours is a claim of this engine, which knows nothing of the releases of another one.
func isCopy(ctx context.Context, temporal execution.Describer, o metav1.Object, ours string) (bool, error) {
	annotations := rollout.AnnotationsOf(o)
	left := map[string]string{workload.AnnotationClaimedBy: annotations[workload.AnnotationClaimedBy]}
	if saved, err := rollout.ParseSaved(rollout.SavedOn(o.GetLabels(), annotations)); err == nil {
		left[workload.AnnotationRollout] = saved.Claim
	}
	is := false
	for annotation, claim := range left {
		if claim == "" {
			continue
		}
		if workload.IsForeign(ours, claim) || !drift.Brought(o, annotation) {
			return false, nil
		}
		if ended, err := execution.HasGivenBack(ctx, temporal, claim); !ended || err != nil {
			return false, err
		}
		is = true
	}
	return is, nil
}

// noteCopy finds out whether what a workload has of releases is a copy. The detector removes it from a claimed
// workload, but an operation that begins before that, or on a workload that a frozen release had left without a claim,
// must not take it for the state of a release.
func (t *operationJob) noteCopy(ctx context.Context, o *object) {
	claim := o.seen.Claim
	if t.a.options.Temporal == nil || claim == "" && o.seen.Rollout == "" || claim == t.req.Claim {
		return
	}
	copied, err := isCopy(ctx, t.a.options.Temporal, o, t.req.Claim)
	if err != nil { // then it counts as what it seems to be
		t.a.options.Logger.WarnContext(ctx, "Temporal did not answer whether a release has ended", "workload",
			t.workload.String(), "claim", claim, "error", err)
		return
	}
	if copied {
		o.seen.Copied, o.seen.Original, o.seen.OriginalProblem, o.seen.Rollout = true, nil, "", ""
	}
}
