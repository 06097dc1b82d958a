package workload

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/revision"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/workloadops"
)

// recorded is a workload's pod template as a record keeps it. A StatefulSet alone names its revision; that of a Deployment, and of a DaemonSet, is
// found by the digest.
func (k kind) recorded(o *object) *revision.Revision {
	r := &revision.Revision{Template: pods.Digest(templateOf(o.Unstructured))}
	if o.GetKind() == workloadops.KindStatefulSet && !o.seen.Lagging() {
		r.Name = o.seen.Revision
	}
	return r
}

// recall finds the pod template that RESTORE brings back, and says whether the workload has it. Restart stamps don't matter: pods that were restarted
// since are not replaced for that.
func (t *operationJob) recall(ctx context.Context, o *object) error {
	live := templateOf(o.Unstructured)
	if t.recalled == nil && pods.Digest(live) == t.req.Restore.Template.Template {
		t.recalled = live
	}
	if t.recalled == nil {
		kept, err := t.revisionsOf(ctx, o)
		if err != nil {
			return err
		}
		seen := pods.Observed{Recalled: t.req.Restore.Template}
		for _, r := range kept {
			seen.Revisions = append(seen.Revisions, r.Revision)
		}
		if found, there := seen.Recall(); there {
			t.recalled = kept[slices.IndexFunc(kept, func(r keptRevision) bool { return r.Name == found.Name })].template
		}
	}
	o.seen.Marker, o.seen.Unkept = "", t.recalled == nil
	if t.recalled != nil && pods.SameButForRestarts(live, t.recalled) {
		o.seen.Marker = t.req.Marker
	}
	return nil
}

func (t *operationJob) revisionsOf(ctx context.Context, o *object) ([]keptRevision, error) {
	selector, err := selectorOf(o.Unstructured)
	if err != nil {
		return nil, err
	}
	return t.keptRevisions(ctx, o.Unstructured, selector)
}

// markRestored marks the pods that are of the restored template: by their revision, since RESTORE leaves no mark of its own on the template.
func (t *operationJob) markRestored(ctx context.Context, o *object, list []workloadops.Pod) error {
	if t.recalled == nil {
		return nil
	}
	kept, err := t.revisionsOf(ctx, o)
	if err != nil {
		return err
	}
	restored := map[string]bool{}
	for _, r := range kept {
		restored[r.Hash] = pods.SameButForRestarts(r.template, t.recalled)
	}
	for i := range list {
		if restored[list[i].Revision] {
			list[i].Marker = t.req.Marker
		}
	}
	return nil
}

// restored is the pod template that RESTORE puts back.
func (t *operationJob) restored(ctx context.Context, o *object) (map[string]any, error) {
	if t.recalled == nil { // it was there when that was decided
		return nil, failure.New(failure.Refused, "%s: its cluster has just dropped the earlier pod template", t.req.Workload)
	}
	annotations, _, _ := unstructured.NestedStringMap(t.recalled, "metadata", "annotations")
	t.keep(ctx, o.seen.Package, source.Packaged(annotations))
	return t.recalled, nil
}
