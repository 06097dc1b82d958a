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

// newTemplate is the pod template to set: that of a revision, or the request's change applied to the stable one.
func (t *rolloutJob) newTemplate(ctx context.Context, l *snapshot, from workload.Template) (map[string]any, error) {
	if from.Revision != "" {
		template, ok := l.templates[from.Revision]
		if !ok {
			return nil, failure.New(failure.Refused,
				"%s: its revision %s no longer exists, so the template is not available: set it by hand, then retry",
				t.subject.Workload,
				from.Revision)
		}
		return template, nil
	}
	switch {
	case t.change.Declared != nil:
		return t.declaredTemplate(l)
	case t.change.Revision != nil:
		return t.recalledTemplate(l)
	}
	stable := templateOf(l.object)
	if l.seen.Saved != nil {
		kept, ok := l.templates[l.seen.Saved.Stable]
		if !ok {
			return nil, failure.New(failure.Refused,
				"%s: its stable revision %s no longer exists, so the new version cannot be made from it: set the "+
					"stable template by hand, then retry",
				t.subject.Workload, l.seen.Saved.Stable)
		}
		stable = kept
	}
	if v := operation.VersionOf(t.change); v != nil {
		return t.a.withVersion(ctx, t.subject.Workload, v, stable)
	}
	template, err := pods.Apply(t.change, t.subject.Workload.WorkloadRef.APIVersion, stable)
	if err != nil {
		return nil, failure.New(failure.Refused, "%s: %s", t.subject.Workload, err.Error())
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
	for _, r := range l.seen.Revisions {
		if r.Template == digest {
			return l.templates[r.Name], nil
		}
	}
	return nil, failure.New(failure.Refused, "%s: the pod template that is released is no longer on it: set it again "+
		"by hand, then retry",
		t.subject.Workload)
}

// recalledTemplate is the template of the earlier revision to which the rollout returns.
func (t *rolloutJob) recalledTemplate(l *snapshot) (map[string]any, error) {
	r, kept := l.seen.RecalledRevision()
	if !kept {
		return nil, failure.New(failure.Refused, "%s", pods.NotKeptReason(t.subject.Workload, l.seen))
	}
	return l.templates[r.Name], nil
}

// nextTemplate is the declared next template in the workload's annotation; nil without one.
func nextTemplate(o *unstructured.Unstructured) (template map[string]any) {
	if json.Unmarshal([]byte(o.GetAnnotations()[rollout.AnnotationNext]), &template) != nil {
		return nil
	}
	return template
}

// determineDigest finds out, by a dry run, which digest the new template would get; only while the workflow does not
// know it.
func (t *rolloutJob) determineDigest(ctx context.Context, l *snapshot) error {
	if t.change.Declared != nil { // it is on the workload as the API server stores it
		l.seen.Expected = t.change.Declared.Template
		return nil
	}
	if !t.needsDigest(l) {
		return nil
	}
	if !t.digestForeseen(l) {
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

// digestForeseen reports whether the digest of the new template is known without a dry run.
func (t *rolloutJob) digestForeseen(l *snapshot) bool {
	t.expected = cmp.Or(t.expected, t.foreseen.Digest(l.seen.UID, l.seen.Template))
	return t.expected != ""
}

// needsDigest reports whether the digest of the new template is needed, and not known to the workflow.
func (t *rolloutJob) needsDigest(l *snapshot) bool {
	return t.change.Declared == nil && t.wantsNew && t.template == "" && l.seen.Saved != nil &&
		l.seen.Claim == t.subject.Claim && !l.seen.Deleting
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
		return nil, failure.New(failure.Refused, "%s: its cluster does not accept the new version: %s",
			t.subject.Workload, kube.Text(err))
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
	if w.Template != nil {
		var err error
		if template, err = t.newTemplate(ctx, l, *w.Template); err != nil {
			return nil, err
		}
		t.keepPackages(ctx, l, template)
	}
	if w.KeepRevision != "" {
		keepTemplate(w, l.templates[w.KeepRevision])
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
	for _, p := range n.Pods {
		ops := []jsonpatch.Op{jsonpatch.Test("/metadata/uid", p.UID),
			jsonpatch.Add(jsonpatch.Label(rollout.LabelRolloutID), n.RolloutID),
			jsonpatch.Add(jsonpatch.Label(rollout.LabelBatchID), n.Batch)}
		failpoint.Hit("rollout.pod.number.before")
		_, err := t.a.cluster.Patch(ctx, t.ref(podsResource, p.Name), jsonpatch.Encode(ops), false)
		failpoint.Hit("rollout.pod.number.after")
		if err != nil && !kube.IsAny(err, kube.Missing, kube.Rejected) {
			return err
		}
	}
	return nil
}
