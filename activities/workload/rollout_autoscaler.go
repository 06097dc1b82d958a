package workload

import (
	"context"
	"slices"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/activities/drift"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/workload"
)

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
	list, err := t.list(ctx, autoscalersResource, "")
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
	fresh := jsonpatch.Test("/metadata/resourceVersion", o.GetResourceVersion())
	var ops []jsonpatch.Op
	step := "restore"
	if c.Pin == nil {
		undo, err := jsonpatch.ParseUndo(o.GetAnnotations()[rollout.AnnotationRestore], borrowedOfAutoscaler)
		if err != nil {
			return failure.New(failure.Refused,
				"%s: invalid annotation %s on its autoscaler %s (%s): correct its limits by hand and remove that "+
					"annotation",
				t.subject.Workload, rollout.AnnotationRestore, c.Name, err.Error())
		}
		ops = remainingUndo(o, append(undo, jsonpatch.Remove(jsonpatch.Annotation(rollout.AnnotationRepair))))
	} else {
		step = "pin"
		ops = t.pinOps(o, *c.Pin)
	}
	return t.patchRelated(ctx, change{autoscalersResource, o, append([]jsonpatch.Op{fresh}, ops...),
		"rollout.autoscaler", step})
}

// pinOps pins an autoscaler, and stores the undo patch on it. If the autoscaler was pinned before, a limit that another
// client has set since becomes the value to restore.
func (t *rolloutJob) pinOps(o *unstructured.Unstructured, size int32) []jsonpatch.Op {
	undo := []jsonpatch.Op{jsonpatch.Remove(jsonpatch.Annotation(rollout.AnnotationRestore)),
		jsonpatch.Remove(jsonpatch.Annotation(rollout.AnnotationHeldBy)),
		jsonpatch.Remove(jsonpatch.Annotation(rollout.AnnotationWritten)),
		jsonpatch.Remove(jsonpatch.Label(workload.LabelClaimed))}
	saved, _ := jsonpatch.ParseUndo(o.GetAnnotations()[rollout.AnnotationRestore], borrowedOfAutoscaler)
	ours := unchangedLimit(o)
	var ops []jsonpatch.Op
	for _, field := range limitFields {
		path := limits + field
		was := slices.IndexFunc(saved, func(op jsonpatch.Op) bool { return op.Path == path })
		v, there := jsonpatch.At(o.Object, path)
		switch {
		case was >= 0 && ours(path):
			undo = append(undo, saved[was])
		case there:
			undo = append(undo, jsonpatch.Add(path, v))
		default:
			undo = append(undo, jsonpatch.Remove(path))
		}
		ops = append(ops, jsonpatch.Add(path, size))
	}
	ops = append(ops, entries("/metadata/labels", o.GetLabels(), claimedLabel, nil)...)
	return append(ops, entries("/metadata/annotations", o.GetAnnotations(),
		map[string]string{rollout.AnnotationRestore: string(jsonpatch.Encode(undo)),
			rollout.AnnotationHeldBy: t.subject.Claim, rollout.AnnotationWritten: pinnedTo(int64(size))}, nil)...)
}

// borrowedOfAutoscaler reports whether a pin changes that field of an autoscaler.
func borrowedOfAutoscaler(pointer string) bool {
	marks := []string{rollout.AnnotationRestore, rollout.AnnotationHeldBy, rollout.AnnotationWritten}
	return slices.ContainsFunc(limitFields, func(field string) bool { return pointer == limits+field }) ||
		slices.ContainsFunc(marks, func(name string) bool { return pointer == jsonpatch.Annotation(name) }) ||
		pointer == jsonpatch.Label(workload.LabelClaimed)
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
	return []string{limits + limitFields[0], limits + limitFields[1]}
}

// limits is the path of an autoscaler's limits, limitFields are their names.
const limits = "/spec/"

var limitFields = pods.AutoscalerLimits()

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

// remainingUndo drops from the undo patch of a pin what must not be undone any more: a limit that another client has
// set since, and a mark that another client has removed.
func remainingUndo(o *unstructured.Unstructured, undo []jsonpatch.Op) []jsonpatch.Op {
	ours := unchangedLimit(o)
	return slices.DeleteFunc(undo, func(c jsonpatch.Op) bool {
		_, there := jsonpatch.At(o.Object, c.Path)
		return strings.HasPrefix(c.Path, limits) && !ours(c.Path) || c.Op == "remove" && !there
	})
}
