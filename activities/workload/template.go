package workload

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"slipway.io/slipway/release/build"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/revision"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/workload"
)

// noVersions is the refusal of a worker without Options.Packages.
const noVersions = "this party's worker does not deploy packages and builds"

// withVersion is a copy of a pod template with a version in it, a code package or an image; a template that already has
// the version is copied unchanged. A package that is not fetched yet, whose query is recorded with the future release,
// is set without the query: that is for a dry run.
func (t *job) withVersion(ctx context.Context, v operation.Version, template map[string]any) (map[string]any, error) {
	copied, packages := runtime.DeepCopyJSON(template), t.a.options.Packages
	if v.PresentIn(copied) {
		return copied, nil
	}
	if packages == nil {
		return nil, t.refuse(noVersions)
	}
	if reason := v.UnfitReason(copied); reason != "" {
		return nil, t.refuse("%s", reason)
	}
	switch v := v.(type) {
	case source.Image:
		v.Put(copied)
	case source.Package:
		url := v.URL
		if v.SHA256 != "" {
			var err error
			if url, err = packages.URL(ctx, v); err != nil {
				return nil, err
			}
		}
		v.Put(copied, packages.Fetcher(), url)
	}
	return copied, nil
}

// versionRefusal returns the reason why a version, or the order that would build it, cannot reach pods of a template in
// this namespace.
func (a *Activities) versionRefusal(ctx context.Context, v operation.Version, order *build.Order, namespace string,
	template map[string]any) (source.Refusal, error) {
	if a.options.Packages == nil {
		return source.Refusal{Reason: noVersions}, nil
	}
	if reason := v.UnfitReason(template); reason != "" {
		return source.Refusal{Reason: reason}, nil
	}
	if code, is := v.(source.Package); is {
		code.URL = catalog.FillSample(code.URL) // its commit may not be known yet
		refusal, err := a.options.Packages.Refuses(ctx, code, namespace)
		if refusal.Reason != "" || err != nil {
			if order != nil { // the URL comes from the catalogue
				refusal.Key = ""
			}
			return refusal, err
		}
	}
	if order == nil {
		return source.Refusal{}, nil
	}
	return a.options.Packages.RefusesBuild(ctx, *order, namespace)
}

// packageOf is the SHA-256 of the code package that a pod template runs, "" when it runs none.
func packageOf(template map[string]any) string {
	annotations, _, _ := unstructured.NestedStringMap(template, "metadata", "annotations")
	return source.PackageDigest(annotations)
}

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
		kept, err := t.revisionsOf(ctx, o.Unstructured)
		if err != nil {
			return err
		}
		seen := pods.Observed{Recalled: t.req.Restore.Template}
		for _, r := range kept {
			seen.Revisions = append(seen.Revisions, r.Revision)
		}
		if found, there := seen.RecalledRevision(); there {
			t.restoreTemplate = templateIn(kept, found.Name)
		}
	}
	o.seen.Marker, o.seen.TemplateMissing = "", t.restoreTemplate == nil
	if t.restoreTemplate != nil && pods.SameButForRestarts(live, t.restoreTemplate) {
		o.seen.Marker = t.req.Marker
	}
	return nil
}

// markRestored marks the pods of the restored template by their revision, since RESTORE sets no marker on the template.
func (t *operationJob) markRestored(ctx context.Context, o *object) error {
	if t.restoreTemplate == nil {
		return nil
	}
	kept, err := t.revisionsOf(ctx, o.Unstructured)
	if err != nil {
		return err
	}
	restored := map[string]bool{}
	for _, r := range kept {
		restored[r.Hash] = pods.SameButForRestarts(r.template, t.restoreTemplate)
	}
	for i := range o.seen.Pods {
		if pod := &o.seen.Pods[i]; restored[pod.Revision] {
			pod.Marker = t.req.Marker
		}
	}
	return nil
}
