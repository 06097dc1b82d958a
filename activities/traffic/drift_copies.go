package traffic

import (
	"context"

	"slipway.io/slipway/execution"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/traffic"
	"slipway.io/slipway/release/workload"
)

// takeOffCopy removes from an object what a release had left on it and another client has brought back after the
// release's end: it would be taken for the original that the next release restores. taken is true if there is nothing
// else to compare.
func (d *DriftDetector) takeOffCopy(ctx context.Context, at place, l *borrowedObject) (taken bool, err error) {
	if !l.brought {
		return false, nil
	}
	if ended, err := execution.HasGivenBack(ctx, d.temporal, l.claim); !ended || err != nil {
		return false, err
	}
	live, err := d.a.get(ctx, at)
	if err != nil {
		return false, err
	}
	if live == nil || meta(live).GetUID() != l.UID || traffic.HolderOf(live) != l.claim {
		return true, nil // the watch delivers what it is now
	}
	ops := append([]jsonpatch.Op{jsonpatch.Test("/metadata/uid", string(l.UID)),
		jsonpatch.Test(jsonpatch.Annotation(rollout.AnnotationHeldBy), l.claim)}, rollout.RemovalOf(meta(live))...)
	_, err = d.a.cluster.Patch(ctx, at.Ref, jsonpatch.Encode(ops), false)
	if kube.IsAny(err, kube.Missing, kube.Rejected) { // it was deleted, or a release has borrowed it
		return true, nil
	}
	if err == nil {
		d.a.options.Logger.InfoContext(ctx, "another client had brought back what an ended release had on an object; "+
			"it was removed, and the rest of what that client wrote was left", "object", at.String(),
			"workflow", workload.ParseHolder(l.claim).WorkflowID)
	}
	return true, err
}
