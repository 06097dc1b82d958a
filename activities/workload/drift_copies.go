package workload

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"slipway.io/slipway/execution"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workload"
)

// takeOffCopy removes from a workload what a release had left on it, or on another one, and another client has brought
// back since, with a dump or a manifest: no release would ever remove it. The workload's settings stay as that client
// wrote them. taken is true if there is nothing else to compare.
func (s *DriftDetector) takeOffCopy(ctx context.Context, t target, r *claimedWorkload) (taken bool, err error) {
	if r.claim == "" || r.repairer != "" || !r.copied && !r.brought {
		return false, nil
	}
	if !r.copied { // the workload itself is read only then
		if ended, err := execution.HasGivenBack(ctx, s.temporal, r.claim); !ended || err != nil {
			return false, err
		}
	}
	o, err := s.activities.cluster.Get(ctx, t.ref())
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if o.GetUID() != r.UID || o.GetAnnotations()[workload.AnnotationClaimedBy] != r.claim {
		return true, nil // the watch delivers what it is now
	}
	if !r.copied {
		if copied, err := isCopy(ctx, s.temporal, o, r.claim); !copied || err != nil {
			return false, err
		}
	}
	tests := []jsonpatch.Op{jsonpatch.Test("/metadata/uid", string(r.UID)),
		jsonpatch.Test(jsonpatch.Annotation(workload.AnnotationClaimedBy), r.claim)}
	_, err = s.activities.cluster.Patch(ctx, t.ref(), jsonpatch.Encode(append(tests, rollout.RemovalOf(o)...)), false)
	if kube.IsAny(err, kube.Missing, kube.Rejected) { // it was deleted, or a release has claimed it
		return true, nil
	}
	if err == nil {
		s.activities.options.Logger.InfoContext(ctx, "another client had brought back what an ended release had on a "+
			"workload; it was removed, and the settings that came with it were left", "workload", t.String(),
			"workflow", workload.ParseHolder(r.claim).WorkflowID, "ofAnotherObject", r.copied)
	}
	return true, err
}
