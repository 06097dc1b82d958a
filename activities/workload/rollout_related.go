package workload

import (
	"context"
	"maps"
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"slipway.io/slipway/activities/drift"
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
	rest, live := restOf(o), pods.Digest(templateOf(o))
	e := &pods.Extra{Snapshot: t.kind.snapshot(o, nil), Name: name, UID: string(o.GetUID()),
		CanaryOf: o.GetLabels()[strategy.LabelCanaryOf], Images: pods.Images(templateOf(o)),
		RecordedSize: rest.Replicas, Template: live}
	e.Creation = noReplicaSet(o)
	if rest.Template != "" && o.GetAnnotations()[rollout.AnnotationWritten] == live {
		// The template is what we wrote: then its digest is that of the source template, without the added metadata.
		e.Template = rest.Template
	}
	l.seen.Extra = e
	l.extraKept, err = from.revisions(ctx, o)
	for _, r := range l.extraKept {
		if r.Template == live { // the other ReplicaSets are not of the new version
			e.Hash, e.Total, e.Ready, e.Creation = r.Hash, r.Total, r.Ready, r.Creation
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
func restOf(o *unstructured.Unstructured) rollout.SettledState {
	return ptr.Deref(rollout.SettledOn(o.GetAnnotations()), rollout.SettledState{})
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
		if base, err = t.newTemplate(ctx, l, workload.Template{}); err != nil {
			return nil, "", err
		}
	} else if base == nil {
		if base, err = t.dryRun(ctx, l); err != nil {
			return nil, "", err
		}
		t.expectedTemplate = base
	}
	added := l.seen.Saved.CanaryMetadata
	if err := t.admitMetadata(base, added); err != nil {
		return nil, "", err
	}
	selector, _, _ := unstructured.NestedMap(l.object.Object, "spec", "selector")
	own := workload.WithoutOwned(base, selector)
	return pods.WithMetadata(own, l.object.GetName(), added), pods.Digest(base), nil
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

var autoscalersResource = autoscalingv2.SchemeGroupVersion.WithResource("horizontalpodautoscalers")

// readAutoscalersOnly reads the autoscalers of a deleted workload. If a new workload has its name, that is read, but
// not written.
func (t *rolloutJob) readAutoscalersOnly(ctx context.Context) (*snapshot, pods.NextAction, error) {
	l := &snapshot{}
	object, err := t.get(ctx)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, pods.NextAction{}, err
	}
	if err == nil {
		l.object, l.seen = object, t.observeObject(object)
	}
	if err := t.autoscalers(ctx, l); err != nil {
		return nil, pods.NextAction{}, err
	}
	return l, t.decide(l.seen), nil
}

// autoscalers reads the autoscalers of the workload.
func (t *rolloutJob) autoscalers(ctx context.Context, l *snapshot) error {
	ref := t.subject.Workload.WorkloadRef
	list, err := t.a.cluster.List(ctx, autoscalersResource, t.workload.Namespace, "")
	if err != nil {
		return err
	}
	t.scalers = map[string]*unstructured.Unstructured{}
	for i := range list {
		o := &list[i]
		scaled := func(field string) string { return text(o, "spec", "scaleTargetRef", field) }
		if scaled("kind") != ref.Kind || scaled("name") != ref.Name || scaled("apiVersion") != ref.APIVersion {
			continue
		}
		a := pods.Autoscaler{Name: o.GetName(), Edited: len(editedLimits(o)) > 0}
		_, a.Pinned = o.GetAnnotations()[rollout.AnnotationRestore]
		t.scalers[a.Name] = o
		l.seen.Autoscalers = append(l.seen.Autoscalers, a)
	}
	return nil
}

// changeAutoscaler pins an autoscaler to the workload's size, or restores it by the undo patch in its annotation.
func (t *rolloutJob) changeAutoscaler(ctx context.Context, c *pods.AutoscalerChange) error {
	o := t.scalers[c.Name]
	wanted, err := unpinned(o)
	step := "restore"
	if c.Pin != nil {
		step = "pin"
		pin(wanted, int64(*c.Pin), t.subject.Claim)
	} else if err != nil {
		return t.refuse("invalid annotation %s on its autoscaler %s (%s): correct its limits by hand and remove that "+
			"annotation", rollout.AnnotationRestore, c.Name, err.Error())
	}
	ops := append([]jsonpatch.Op{jsonpatch.Test("/metadata/resourceVersion", o.GetResourceVersion())},
		jsonpatch.Diff(o.Object, wanted, slices.Concat(pinnedFields, []string{repairMark}))...)
	return t.patchRelated(ctx, change{autoscalersResource, o, ops, "rollout.autoscaler", step})
}

// pin pins an autoscaler to a size, and stores the undo patch on it.
func pin(autoscaler map[string]any, size int64, claim string) {
	undo := jsonpatch.Encode(jsonpatch.Undo(autoscaler, pinnedFields))
	for i, value := range []string{string(undo), claim, pinnedTo(size), workload.LabelClaimedValue} {
		jsonpatch.Put(autoscaler, pinMarks[i], value)
	}
	for _, path := range limitPaths {
		jsonpatch.Put(autoscaler, path, size)
	}
}

// unpinned is an autoscaler after its pin was undone, without the marks of one; err is why its undo patch cannot be
// read, and then its limits stay. A limit that another client has set since it was pinned stays, too.
func unpinned(o *unstructured.Unstructured) (original map[string]any, err error) {
	undo, err := jsonpatch.ParseUndo(o.GetAnnotations()[rollout.AnnotationRestore], func(pointer string) bool {
		return slices.Contains(pinnedFields, pointer)
	})
	ours := unchangedLimit(o)
	original = jsonpatch.Apply(o.Object, slices.DeleteFunc(undo, func(c jsonpatch.Op) bool {
		return slices.Contains(limitPaths, c.Path) && !ours(c.Path)
	}))
	for _, path := range slices.Concat(pinMarks, []string{repairMark}) {
		jsonpatch.Drop(original, path)
	}
	return original, err
}

// Autoscalers is the kind of object that a blue-green rollout borrows in addition to its workload.
func Autoscalers() drift.Kind {
	return drift.Kind{Name: "HorizontalPodAutoscaler", Resource: autoscalersResource, EditedPaths: editedLimits,
		What: rollout.ObservedSettings}
}

// editedLimits are the limits of a pinned autoscaler if another client has set one of them since.
func editedLimits(o *unstructured.Unstructured) []string {
	written, recorded := o.GetAnnotations()[rollout.AnnotationWritten]
	least, most := number(o, "spec", limitFields[0]), number(o, "spec", limitFields[1])
	if !recorded || least == most && pinnedTo(least) == written {
		return nil
	}
	return limitPaths
}

var (
	// limitFields are the names of an autoscaler's limits, limitPaths their JSON Pointers.
	limitFields = pods.AutoscalerLimits()
	limitPaths  = []string{"/spec/" + limitFields[0], "/spec/" + limitFields[1]}
	// pinMarks are the marks of a pinned autoscaler, pinnedFields all fields that a pin changes.
	pinMarks = []string{jsonpatch.Annotation(rollout.AnnotationRestore), jsonpatch.Annotation(rollout.AnnotationHeldBy),
		jsonpatch.Annotation(rollout.AnnotationWritten), jsonpatch.Label(workload.LabelClaimed)}
	pinnedFields = slices.Concat(pinMarks, limitPaths)
	repairMark   = jsonpatch.Annotation(rollout.AnnotationRepair)
)

// pinnedTo is rollout.AnnotationWritten of an autoscaler that is pinned to a size.
func pinnedTo(size int64) string {
	return pods.Digest(map[string]any{limitFields[0]: size, limitFields[1]: size})
}

// unchangedLimit returns a function that reports whether a limit of a pinned autoscaler still has the pinned value.
func unchangedLimit(o *unstructured.Unstructured) func(path string) bool {
	written, recorded := o.GetAnnotations()[rollout.AnnotationWritten]
	return func(path string) bool {
		if !recorded { // pinned by a version that did not record this
			return true
		}
		now, _ := jsonpatch.At(o.Object, path)
		for _, field := range limitFields { // if another client set one limit, the other has the size
			if size := number(o, "spec", field); pinnedTo(size) == written {
				return now == size
			}
		}
		return false
	}
}
