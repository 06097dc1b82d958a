package rollout

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/recent"
	"slipway.io/slipway/release/fieldmanager"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/kruise"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workload"
)

const (
	// givenBackTTL is how long the answer about a release that has left a split is cached: its workload may change
	// often.
	givenBackTTL = 5 * time.Second
	// removedCopyInterval is when a workload is read again after a split was removed from it: only those that a Rollout
	// has marked are watched.
	removedCopyInterval = 100 * time.Millisecond
)

// removeCopy removes from a workload the split of a release that has ended and given everything back: another client
// has brought it back, with an older copy of the workload, and the gate holds no change of a workload that has one. Of
// a claimed workload the drift detector of its party does it. It returns false if there is no such split.
func (c *Controller) removeCopy(ctx context.Context, w *kruise.Workload) (removed bool, err error) {
	if w == nil || w.Claim != "" || w.Saved == nil || w.Saved.Claim == "" || w.DeletionTimestamp != nil {
		return false, nil
	}
	claim := w.Saved.Claim
	ended, err := recent.Get(ctx, &c.givenBack, claim, givenBackTTL, func(ctx context.Context) (bool, error) {
		return c.releases.HasGivenBack(ctx, claim)
	})
	if !ended || err != nil {
		return false, err
	}
	found, err := c.objects.Resource(w.Ref.Lookup().Resource).Namespace(w.Namespace).Get(ctx, w.Name,
		metav1.GetOptions{})
	if err != nil {
		return true, ignoreStale(err)
	}
	if now := kruise.ReadWorkload(found); now.Claim != "" || now.Saved == nil || now.Saved.Claim != claim {
		return true, nil // changed since
	}
	if !fieldmanager.WrittenByOther(found, workload.AnnotationRollout) {
		return false, nil // the engine left it there
	}
	saved := found.GetAnnotations()[workload.AnnotationRollout]
	ops := append([]jsonpatch.Op{jsonpatch.Test("/metadata/uid", string(found.GetUID())),
		jsonpatch.Test(jsonpatch.Annotation(workload.AnnotationRollout), saved)}, rollout.RemovalOf(found)...)
	if err := c.patch(ctx, w, types.JSONPatchType, ops); err != nil {
		return true, ignoreStale(err)
	}
	c.options.Log.InfoContext(ctx, "another client had brought back the split of an ended release; it was removed, and "+
		"the settings that came with it were left", "workload", w.Ref.Kind+" "+w.Namespace+"/"+w.Name,
		"workflow", w.Saved.WorkflowID)
	return true, nil
}
