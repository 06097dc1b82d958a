package workload

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/revision"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/workload"
)

// recordedRevision is a workload's pod template as a release record keeps it. Only a StatefulSet names its revision;
// that of a Deployment or DaemonSet is found by the digest.
func (k kind) recordedRevision(o *object) *revision.Revision {
	r := &revision.Revision{Template: pods.Digest(templateOf(o.Unstructured))}
	if k.Revisions == workload.Named && !o.seen.Lagging() {
		r.Name = o.seen.Revision
	}
	return r
}

// findRestoreTemplate finds the pod template that RESTORE sets, and notes whether the workload has it. Restart stamps
// are ignored: pods that were restarted since are not replaced for that.
func (t *operationJob) findRestoreTemplate(ctx context.Context, o *object) error {
	live := templateOf(o.Unstructured)
	if t.restoreTemplate == nil && pods.Digest(live) == t.req.Restore.Template.Template {
		t.restoreTemplate = live
	}
	if t.restoreTemplate == nil {
		kept, err := t.revisionsOf(ctx, o)
		if err != nil {
			return err
		}
		seen := pods.Observed{Recalled: t.req.Restore.Template}
		for _, r := range kept {
			seen.Revisions = append(seen.Revisions, r.Revision)
		}
		if found, there := seen.RecalledRevision(); there {
			t.restoreTemplate = kept[slices.IndexFunc(kept, func(r keptRevision) bool {
				return r.Name == found.Name
			})].template
		}
	}
	o.seen.Marker, o.seen.TemplateMissing = "", t.restoreTemplate == nil
	if t.restoreTemplate != nil && pods.SameButForRestarts(live, t.restoreTemplate) {
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

// markRestored marks the pods of the restored template by their revision, since RESTORE sets no marker on the template.
func (t *operationJob) markRestored(ctx context.Context, o *object, list []workload.Pod) error {
	if t.restoreTemplate == nil {
		return nil
	}
	kept, err := t.revisionsOf(ctx, o)
	if err != nil {
		return err
	}
	restored := map[string]bool{}
	for _, r := range kept {
		restored[r.Hash] = pods.SameButForRestarts(r.template, t.restoreTemplate)
	}
	for i := range list {
		if restored[list[i].Revision] {
			list[i].Marker = t.req.Marker
		}
	}
	return nil
}

// templateToRestore is the pod template that RESTORE sets.
func (t *operationJob) templateToRestore(ctx context.Context, o *object) (map[string]any, error) {
	if t.restoreTemplate == nil { // it existed when that was decided
		return nil, failure.New(failure.Refused, "%s: the earlier pod template has just been removed from its cluster",
			t.req.Workload)
	}
	annotations, _, _ := unstructured.NestedStringMap(t.restoreTemplate, "metadata", "annotations")
	t.keep(ctx, o.seen.Package, source.PackageDigest(annotations))
	return t.restoreTemplate, nil
}
