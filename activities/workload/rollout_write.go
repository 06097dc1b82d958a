package workload

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/activities/failpoint"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/workloadops"
)

// patchOf is a write as a JSON Patch for the workload as it was seen. Its tests come first, so that it is made as a whole or not at all:
// the claim, and the spec's generation, since every write depends on the spec that was seen.
func (t *rolloutJob) patchOf(l *snapshot, w *workloadops.Write) ([]byte, error) {
	var ops []jsonpatch.Op
	if w.Fresh {
		ops = append(ops, jsonpatch.Test("/metadata/resourceVersion", l.object.GetResourceVersion()))
	} else {
		ops = append(ops, jsonpatch.Test("/metadata/generation", l.object.GetGeneration()))
	}
	if w.Held != "" {
		ops = append(ops, jsonpatch.Test(jsonpatch.Annotation(workloadops.AnnotationClaimedBy), w.Held))
	}
	for _, s := range w.Settings {
		_, there := jsonpatch.At(l.object.Object, s.Path)
		switch gone := len(s.Value) == 0 || string(s.Value) == "null"; {
		case !gone:
			ops = append(ops, jsonpatch.Add(s.Path, s.Value))
		case there:
			ops = append(ops, jsonpatch.Remove(s.Path))
		}
	}
	if w.Template != nil {
		template, err := t.newTemplate(l, *w.Template)
		if err != nil {
			return nil, err
		}
		ops = append(ops, jsonpatch.Replace("/spec/template", template))
	}
	ops = append(ops,
		metadata(l.object, w)...)
	ops = append(ops, savedLabel(l.object, w)...)
	return json.Marshal(ops)
}

// savedLabel has workloadops.LabelRollout come and go with what is saved. A claim comes first, so that there are labels by then.
func savedLabel(o *unstructured.Unstructured, w *workloadops.Write) []jsonpatch.Op {
	path := jsonpatch.Label(workloadops.LabelRollout)
	_, there := o.GetLabels()[workloadops.LabelRollout]
	switch _, sets := w.Annotations[rollout.AnnotationSaved]; {
	case sets && !there:
		return []jsonpatch.Op{jsonpatch.Add(path, workloadops.LabelClaimedValue)}
	case there && slices.Contains(w.Remove, rollout.AnnotationSaved):
		return []jsonpatch.Op{jsonpatch.Remove(path)}
	}
	return nil
}

// newTemplate is the pod template to set: a revision's, or the request's change applied to the stable one.
func (t *rolloutJob) newTemplate(l *snapshot, from workloadops.Template) (map[string]any, error) {
	if from.Revision != "" {
		template, ok := l.templates[from.Revision]
		if !ok {
			return nil, failure.New(failure.Refused,
				"%s: its revision %s is gone, so the template cannot be taken from it: set it by hand, then retry", t.subject.Workload,
				from.Revision)
		}
		return template, nil
	}
	stable := templateOf(l.object)
	if l.seen.Saved != nil {
		kept, ok := l.templates[l.seen.Saved.Stable]
		if !ok {
			return nil, failure.New(failure.Refused, "%s: its stable revision %s is gone, so the new version cannot be made of it",
				t.subject.Workload, l.seen.Saved.Stable)
		}
		stable = kept
	}
	template, err := pods.Apply(t.change, t.subject.Workload.WorkloadRef.APIVersion, stable)
	if err != nil {
		return nil, failure.New(failure.Refused, "%s: %s", t.subject.Workload, err.Error())
	}
	return template, nil
}

// expect finds out, by a dry run, which digest the new template would have; only while the workflow does not know it.
func (t *rolloutJob) expect(ctx context.Context, l *snapshot) error {
	saved := l.seen.Saved
	if !t.wantsNew || t.template != "" || saved == nil || l.seen.Claim != t.subject.Claim || l.seen.Deleting {
		return nil
	}
	if t.expected == "" {
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

// dryRun has the API server check and complete the new template without a write.
func (t *rolloutJob) dryRun(ctx context.Context, l *snapshot) (map[string]any, error) {
	template, err := t.newTemplate(l, workloadops.Template{})
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal([]jsonpatch.Op{jsonpatch.Replace("/spec/template", template)})
	if err != nil {
		return nil, err
	}
	after, err := t.a.patch(ctx, t.kind.resource, l.object, body, metav1.DryRunAll)
	if err != nil {
		if kind := kube.Classify(err); kind == kube.Rejected || kind == kube.Refused {
			return nil, failure.New(failure.Refused, "%s: its cluster does not accept the new version: %s", t.subject.Workload,
				kube.Text(err))
		}
		return nil, err
	}
	return templateOf(after), nil
}

// write makes one write on the workload.
func (t *rolloutJob) write(ctx context.Context, l *snapshot, w *workloadops.Write) error {
	body, err := t.patchOf(l, w)
	if err != nil {
		return err
	}
	err = t.patch(ctx, l.object, body, "rollout.patch", w.Step)
	if err != nil && kube.Classify(err) == kube.Rejected {
		// Most likely somebody was faster; the next look tells.
		if t.rejected == l.object.GetResourceVersion() {
			return failure.New(failure.Refused, "%s: its cluster does not accept the change: %s", t.subject.Workload, kube.Text(err))
		}
		t.rejected = l.object.GetResourceVersion()
		return nil
	}
	return err
}

// patchBeside makes one write on an object beside the workload. Its controllers write its status at any time, and it may be gone: the next
// look tells.
func (t *rolloutJob) patchBeside(ctx context.Context, o *unstructured.Unstructured, ops []jsonpatch.Op, point, step string) error {
	body, err := json.Marshal(ops)
	if err != nil {
		return err
	}
	if err = t.patch(ctx, o, body, point, step); err == nil {
		return nil
	}
	switch class := kube.Classify(err); {
	case class == kube.Missing:
		return nil
	case class == kube.Rejected && t.rejected != o.GetResourceVersion():
		t.rejected = o.GetResourceVersion()
		return nil
	}
	return err
}

// patch makes one write on any object; point and step name its failpoints.
func (t *rolloutJob) patch(ctx context.Context, o *unstructured.Unstructured, body []byte, point, step string) error {
	resource := t.kind.resource
	switch point {
	case pointExtra:
		resource = deploymentsResource
	case pointAutoscaler:
		resource = autoscalersResource
	}
	failpoint.Hit(point + ".before/" + step)
	_, err := t.a.patch(ctx, resource, o, body)
	failpoint.Hit(point + ".after/" + step)
	if err == nil {
		t.a.options.Logger.InfoContext(ctx, "rollout: object changed", "object", o.GetKind()+" "+o.GetName(), "step", step)
	}
	return err
}
