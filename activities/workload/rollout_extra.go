package workload

import (
	"context"
	"encoding/json"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/failpoint"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// readExtra reads the extra Deployment and its ReplicaSets.
func (t *rolloutJob) readExtra(ctx context.Context, l *snapshot, from objectSource) error {
	name := l.seen.Saved.CanaryWorkload
	o, err := from.workload(ctx, name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	l.extra = o
	e := &pods.Extra{Snapshot: t.kind.snapshot(o, nil), Name: name, UID: string(o.GetUID()),
		CanaryOf: o.GetLabels()[strategy.LabelCanaryOf], Images: pods.Images(templateOf(o)),
		RecordedSize: restOf(o).Replicas}
	live := pods.Digest(templateOf(o))
	var rest rollout.SettledState
	if e.Template = live; o.GetAnnotations()[rollout.AnnotationWritten] == live &&
		json.Unmarshal([]byte(o.GetAnnotations()[rollout.AnnotationSettled]), &rest) == nil {
		// The template is what we wrote: then its digest is that of the source template, without the added metadata.
		e.Template = rest.Template
	}
	l.seen.Extra = e
	sets, err := from.revisions(ctx, t.kind, o)
	for _, r := range sets {
		l.extras[r.uid] = true
		if r.Template == live { // the other ReplicaSets are not of the new version
			e.Hash, e.Total, e.Ready = r.Hash, r.Total, r.Ready
		}
	}
	return err
}

// changeExtra makes one change of the extra Deployment.
func (t *rolloutJob) changeExtra(ctx context.Context, l *snapshot, c *pods.ExtraChange) error {
	switch {
	case c.Create != nil:
		return t.createExtra(ctx, l, *c.Create)
	case c.Delete != "":
		return t.deleteExtra(ctx, l, c.Delete)
	case c.Replicas != nil:
		rest := restOf(l.extra)
		rest.Replicas = *c.Replicas
		return t.patchExtra(ctx, l, "scale", jsonpatch.Add("/spec/replicas", *c.Replicas),
			jsonpatch.Add(jsonpatch.Annotation(rollout.AnnotationSettled), rest.String()))
	}
	template, digest, err := t.extraTemplate(ctx, l)
	if err != nil {
		return err
	}
	return t.patchExtra(ctx, l, "put-back", jsonpatch.Replace("/spec/template", template),
		jsonpatch.Add(jsonpatch.Annotation(rollout.AnnotationWritten), pods.Digest(template)),
		jsonpatch.Add(jsonpatch.Annotation(rollout.AnnotationSettled),
			rollout.SettledState{Template: digest, Replicas: restOf(l.extra).Replicas}.String()))
}

// restOf is the state recorded on an object; empty if it cannot be decoded.
func restOf(o *unstructured.Unstructured) (rest rollout.SettledState) {
	if json.Unmarshal([]byte(o.GetAnnotations()[rollout.AnnotationSettled]), &rest) != nil {
		return rollout.SettledState{}
	}
	return rest
}

// patchExtra changes the extra Deployment if it is unchanged since the read. If it has an earlier claim on this very
// workload, which was taken over, it is claimed.
func (t *rolloutJob) patchExtra(ctx context.Context, l *snapshot, step string, changes ...jsonpatch.Op) error {
	claim := jsonpatch.Annotation(workload.AnnotationClaimedBy)
	ops := []jsonpatch.Op{jsonpatch.Test(claim, t.subject.Claim)}
	if l.seen.Extra.Claim != t.subject.Claim {
		ops = []jsonpatch.Op{jsonpatch.Add(claim, t.subject.Claim),
			jsonpatch.Add(jsonpatch.Annotation(rollout.AnnotationHeldBy), t.subject.Claim)}
	}
	ops = append(ops, jsonpatch.Test("/metadata/generation", l.extra.GetGeneration()))
	return t.patchRelated(ctx, change{deploymentsResource, l.extra, append(ops, changes...), "rollout.extra", step})
}

// extraTemplate is the extra Deployment's pod template, with the API server's defaults, and the digest of the template
// from which it was made.
func (t *rolloutJob) extraTemplate(ctx context.Context, l *snapshot) (template map[string]any, digest string,
	err error) {
	base := t.expectedTemplate
	if base == nil && t.change.Declared != nil {
		if base, err = t.declaredTemplate(l); err != nil {
			return nil, "", err
		}
	} else if base == nil {
		if base, err = t.dryRun(ctx, l); err != nil {
			return nil, "", err
		}
		t.expectedTemplate = base
	}
	return pods.WithMetadata(base, l.object.GetName(), l.seen.Saved.CanaryMetadata), pods.Digest(base), nil
}

// createExtra creates the extra Deployment: the workload's spec with the new template and a selector of its own.
func (t *rolloutJob) createExtra(ctx context.Context, l *snapshot, size int32) error {
	template, digest, err := t.extraTemplate(ctx, l)
	if err != nil {
		return err
	}
	name := l.object.GetName()
	of := strategy.CanaryOf(name)
	spec, _, err := unstructured.NestedMap(l.object.Object, "spec")
	if err != nil {
		return err
	}
	spec["template"], spec["replicas"] = template, int64(size)
	delete(spec, "paused")
	if err := unstructured.SetNestedField(spec, of, "selector", "matchLabels", strategy.LabelCanaryOf); err != nil {
		return err
	}
	labels := map[string]string{}
	maps.Copy(labels, l.object.GetLabels())
	if t.change.Declared != nil {
		labels[rollout.LabelCanaryDeployment] = of
	}
	delete(labels, rollout.LabelStableRevision)
	delete(labels, gate.Label) // a Rollout object names the workload, not this one
	labels[strategy.LabelCanaryOf], labels[workload.LabelClaimed] = of, workload.LabelClaimedValue
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "spec": spec}}
	o.SetName(l.seen.Saved.CanaryWorkload)
	o.SetLabels(labels)
	o.SetAnnotations(map[string]string{
		workload.AnnotationClaimedBy: t.subject.Claim, rollout.AnnotationHeldBy: t.subject.Claim,
		rollout.AnnotationWritten: pods.Digest(template),
		rollout.AnnotationSettled: rollout.SettledState{Template: digest, Replicas: size}.String(),
	})
	o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: name,
		UID: l.object.GetUID()}})
	failpoint.Hit("rollout.extra.before/create")
	_, err = t.a.cluster.Create(ctx, t.ref(deploymentsResource, o.GetName()), o, false)
	failpoint.Hit("rollout.extra.after/create")
	if apierrors.IsAlreadyExists(err) {
		return nil // an earlier attempt created it: the next round reads it
	}
	return err
}

func (t *rolloutJob) deleteExtra(ctx context.Context, l *snapshot, uid string) error {
	failpoint.Hit("rollout.extra.before/delete")
	err := t.a.cluster.Delete(ctx, t.ref(deploymentsResource, l.extra.GetName()), types.UID(uid), "")
	failpoint.Hit("rollout.extra.after/delete")
	if kube.IsAny(err, kube.Missing, kube.Changed) {
		return nil
	}
	return err
}
