package workload

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/failpoint"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/workload"
)

// newTemplate is the pod template to set: that of a revision, or the request's change applied to the stable one. The
// party's policy judges it if the release adds it.
func (t *rolloutJob) newTemplate(ctx context.Context, l *snapshot, from workload.Template) (map[string]any, error) {
	template, err := t.wantedTemplate(ctx, l, from)
	if err != nil || !t.adds(l, from, template) {
		return template, err
	}
	return template, t.admitRollout(template, t.stableTemplate(l))
}

// wantedTemplate is newTemplate before the party's policy judges it.
func (t *rolloutJob) wantedTemplate(ctx context.Context, l *snapshot, from workload.Template) (map[string]any, error) {
	if from.Revision != "" {
		if template := l.template(from.Revision); template != nil {
			return template, nil
		}
		return nil, t.refuse("its revision %s no longer exists, so the template is not available: set it by hand, "+
			"then retry", from.Revision)
	}
	if t.change.Declared != nil {
		return t.declaredTemplate(l)
	}
	return t.changedTemplate(ctx, l, t.baseTemplate(l))
}

// baseTemplate is the pod template that the request changes: the stable one or, if the release began over an update
// that hung, that update's, as for any other client.
func (t *rolloutJob) baseTemplate(l *snapshot) map[string]any {
	if l.seen.Saved != nil {
		if hung := l.template(l.seen.Saved.Over); hung != nil {
			return hung
		}
	}
	return t.stableTemplate(l)
}

// stableTemplate is the pod template that the release began from; nil when the cluster no longer keeps it.
func (t *rolloutJob) stableTemplate(l *snapshot) map[string]any {
	if l.seen.Saved != nil {
		return l.template(l.seen.Saved.Stable)
	}
	return templateOf(l.object)
}

// changedTemplate is the request's change applied to a pod template (baseTemplate), or the earlier one that it names.
func (t *rolloutJob) changedTemplate(ctx context.Context, l *snapshot, base map[string]any) (map[string]any, error) {
	switch {
	case t.change.Revision != nil:
		r, kept := l.seen.RecalledRevision()
		if !kept {
			return nil, failure.New(failure.Refused, "%s", pods.NotKeptReason(t.workload, l.seen))
		}
		return l.template(r.Name), nil
	case base == nil:
		return nil, t.refuse("its stable revision %s no longer exists, so the new version cannot be made from it: "+
			"set the stable template by hand, then retry", l.seen.Saved.Stable)
	}
	if v := operation.VersionOf(t.change); v != nil {
		return t.withVersion(ctx, v, base)
	}
	template, err := pods.Apply(t.change, t.workload.WorkloadRef.APIVersion, base)
	if err != nil {
		return nil, t.refuse("%s", err.Error())
	}
	return template, nil
}

// declaredTemplate is the template that the workload declares: the live one, or the next one in its annotation.
func (t *rolloutJob) declaredTemplate(l *snapshot) (map[string]any, error) {
	digest := t.change.Declared.Template
	for _, template := range []map[string]any{templateOf(l.object), nextTemplate(l.object)} {
		if template != nil && pods.Digest(template) == digest {
			return template, nil
		}
	}
	if r, kept := l.seen.RevisionByTemplate(digest); kept {
		return l.template(r.Name), nil
	}
	return nil, t.refuse("the pod template that is released is no longer on it: set it again by hand, then retry")
}

// nextTemplate is the declared next template in the workload's annotation; nil without one.
func nextTemplate(o *unstructured.Unstructured) (template map[string]any) {
	if json.Unmarshal([]byte(o.GetAnnotations()[rollout.AnnotationNext]), &template) != nil {
		return nil
	}
	return template
}

// determineDigest finds out, by a dry run, which digest the new template would get; only while the workflow does not
// know it. It fails with errNotCached instead of a dry run.
func (t *rolloutJob) determineDigest(ctx context.Context, l *snapshot, cached bool) error {
	switch {
	case t.change.Declared != nil: // it is on the workload as the API server stores it
		l.seen.Expected = t.change.Declared.Template
		return nil
	case !t.wantsNew, t.template != "", l.seen.Saved == nil, l.seen.Claim != t.subject.Claim, l.seen.Deleting:
		return nil
	}
	t.expected = cmp.Or(t.expected, t.foreseen.Digest(l.seen.UID, l.seen.Template))
	if t.expected == "" {
		if cached {
			return errNotCached
		}
		template, err := t.dryRun(ctx, l)
		if f := (*failure.Error)(nil); t.halting && errors.As(err, &f) {
			return nil
		}
		if err != nil {
			return err
		}
		t.expectedTemplate, t.expected = template, pods.Digest(template)
	}
	l.seen.Expected = t.expected
	return nil
}

// dryRun makes the API server validate and default the new template without a write.
func (t *rolloutJob) dryRun(ctx context.Context, l *snapshot) (map[string]any, error) {
	template, err := t.newTemplate(ctx, l, workload.Template{})
	if err != nil {
		return nil, err
	}
	after, err := t.a.cluster.Patch(ctx, t.ref(t.kind.Resource, l.object.GetName()),
		jsonpatch.Encode([]jsonpatch.Op{jsonpatch.Replace("/spec/template", template)}), true)
	if kube.IsAny(err, kube.Rejected, kube.Refused) {
		return nil, t.refuse("its cluster does not accept the new version: %s", kube.Text(err))
	}
	if err != nil {
		return nil, err
	}
	return templateOf(after), nil
}

// write makes one write on the workload, under the condition that its spec is unchanged since it was read. It returns
// nil when the write must be decided again.
func (t *rolloutJob) write(ctx context.Context, l *snapshot, w *workload.Write) (*unstructured.Unstructured, error) {
	var template map[string]any
	if t.beginning {
		if err := t.admitBegin(ctx, l); err != nil {
			return nil, err
		}
	}
	if w.Template != nil {
		var err error
		if template, err = t.newTemplate(ctx, l, *w.Template); err != nil {
			return nil, err
		}
		t.keep(ctx, packageOf(t.stableTemplate(l)), packageOf(template))
	}
	if w.KeepRevision != "" {
		keepTemplate(w, l.template(w.KeepRevision))
	}
	ops := patchOf(l.object, w, template)
	// a user may have taken it over for repair since; a test for null passes if the annotation is absent
	if t.fromCache {
		ops = slices.Insert(ops, 0, jsonpatch.Test(jsonpatch.Annotation(rollout.AnnotationRepair), nil))
	}
	if !w.OnlyIfUnchanged {
		ops = slices.Insert(ops, 0, jsonpatch.Test("/metadata/generation", l.object.GetGeneration()))
	}
	return t.patch(ctx, change{t.kind.Resource, l.object, ops, "rollout.patch", w.Step})
}

// patchRelated makes one write on an object that belongs to the workload. If that does not exist, the next round finds
// out.
func (t *rolloutJob) patchRelated(ctx context.Context, c change) error {
	_, err := t.patch(ctx, c)
	if kube.IsAny(err, kube.Missing) {
		return nil
	}
	return err
}

// labelPods labels the pods of a step with its number. A pod that has disappeared needs no label.
func (t *rolloutJob) labelPods(ctx context.Context, n *pods.PodNumbers) error {
	for i, p := range n.Pods {
		ops := []jsonpatch.Op{jsonpatch.Test("/metadata/uid", p.UID),
			jsonpatch.Add(jsonpatch.Label(rollout.LabelRolloutID), n.RolloutID),
			jsonpatch.Add(jsonpatch.Label(rollout.LabelBatchID), n.Batches[i])}
		failpoint.Hit("rollout.pod.number.before")
		_, err := t.a.cluster.Patch(ctx, t.ref(podsResource, p.Name), jsonpatch.Encode(ops), false)
		failpoint.Hit("rollout.pod.number.after")
		if err != nil && !kube.IsAny(err, kube.Missing, kube.Rejected) {
			return err
		}
	}
	return nil
}
