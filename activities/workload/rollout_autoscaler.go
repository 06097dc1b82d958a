package workload

import (
	"context"
	"encoding/json"
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
	"slipway.io/slipway/release/workloadops"
)

var autoscalersResource = autoscalingv2.SchemeGroupVersion.WithResource("horizontalpodautoscalers")

// lookAtOrphans is a look at the autoscalers of a workload that was deleted. What is there of its name, if anything, is read, not written.
func (t *rolloutJob) lookAtOrphans(ctx context.Context) (*snapshot, pods.NextAction, error) {
	l := &snapshot{}
	object, err := t.get(ctx)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, pods.NextAction{}, err
	}
	if err == nil {
		l.object, l.seen = object, t.plain(object)
	}
	if err := t.autoscalers(ctx, l); err != nil {
		return nil, pods.NextAction{}, err
	}
	return l, t.decide(l.seen), nil
}

// autoscalers reads those that scale the workload.
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

// changeAutoscaler pins one to the workload's size, or restores it by the patch that stands on it.
func (t *rolloutJob) changeAutoscaler(ctx context.Context, c *pods.AutoscalerChange) error {
	o := t.scalers[c.Name]
	fresh := jsonpatch.Test("/metadata/resourceVersion", o.GetResourceVersion())
	var ops []jsonpatch.Op
	step := "restore"
	if c.Pin == nil {
		undo, err := jsonpatch.ParseUndo(o.GetAnnotations()[rollout.AnnotationRestore], borrowedOfAutoscaler)
		if err != nil {
			return failure.New(failure.Refused,
				"%s: the annotation %s of its autoscaler %s is not followed (%s): put its limits right by hand and remove that annotation",
				t.subject.Workload, rollout.AnnotationRestore, c.Name, err.Error())
		}
		ops = undoing(o, append(undo, jsonpatch.Remove(jsonpatch.Annotation(rollout.AnnotationRepair))))
	} else {
		step = "pin"
		ops = t.pinning(o, *c.Pin)
	}
	return t.patchBeside(ctx, change{autoscalersResource, o, append([]jsonpatch.Op{fresh}, ops...), "rollout.autoscaler", step})
}

// pinning pins an autoscaler, and leaves on it the patch that undoes that. Of one that was pinned before, a limit that somebody else has set
// since is what it is given back.
func (t *rolloutJob) pinning(o *unstructured.Unstructured, size int32) []jsonpatch.Op {
	undo := []jsonpatch.Op{jsonpatch.Remove(jsonpatch.Annotation(rollout.AnnotationRestore)),
		jsonpatch.Remove(jsonpatch.Annotation(rollout.AnnotationHeldBy)), jsonpatch.Remove(jsonpatch.Annotation(rollout.AnnotationWritten)),
		jsonpatch.Remove(jsonpatch.Label(workloadops.LabelClaimed))}
	saved, _ := jsonpatch.ParseUndo(o.GetAnnotations()[rollout.AnnotationRestore], borrowedOfAutoscaler)
	ours := limitsOfOurs(o)
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
	ops = append(ops, entries("/metadata/labels", o.GetLabels(),
		map[string]string{workloadops.LabelClaimed: workloadops.LabelClaimedValue}, nil)...)
	restore, err := json.Marshal(undo)
	if err != nil {
		panic(err) // it was JSON before: it always marshals
	}
	return append(ops, entries("/metadata/annotations", o.GetAnnotations(), map[string]string{rollout.AnnotationRestore: string(restore),
		rollout.AnnotationHeldBy: t.subject.Claim, rollout.AnnotationWritten: pinnedTo(int64(size))}, nil)...)
}

// borrowedOfAutoscaler says whether a pin changes that place of an autoscaler.
func borrowedOfAutoscaler(pointer string) bool {
	marks := []string{rollout.AnnotationRestore, rollout.AnnotationHeldBy, rollout.AnnotationWritten}
	return slices.ContainsFunc(limitFields, func(field string) bool { return pointer == limits+field }) ||
		slices.ContainsFunc(marks, func(name string) bool { return pointer == jsonpatch.Annotation(name) }) ||
		pointer == jsonpatch.Label(workloadops.LabelClaimed)
}

// Autoscalers is the kind of object that a blue-green borrows beside its workload.
func Autoscalers() drift.Kind {
	return drift.Kind{Name: "HorizontalPodAutoscaler", Resource: autoscalersResource, Edited: editedLimits, What: rollout.ObservedSettings}
}

// editedLimits are the limits of a pinned autoscaler when somebody else has set one of them since.
func editedLimits(o *unstructured.Unstructured) []string {
	written, told := o.GetAnnotations()[rollout.AnnotationWritten]
	least, most := number(o, "spec", limitFields[0]), number(o, "spec", limitFields[1])
	if !told || least == most && pinnedTo(least) == written {
		return nil
	}
	return []string{limits + limitFields[0], limits + limitFields[1]}
}

// limits is where an autoscaler's limits stand, limitFields are their names.
const limits = "/spec/"

var limitFields = pods.AutoscalerLimits()

// pinnedTo is rollout.AnnotationWritten of an autoscaler that is pinned to a size.
func pinnedTo(size int64) string {
	return pods.Digest(map[string]any{limitFields[0]: size, limitFields[1]: size})
}

// limitsOfOurs says of a pinned autoscaler's limit whether it is as it was pinned.
func limitsOfOurs(o *unstructured.Unstructured) func(path string) bool {
	written, told := o.GetAnnotations()[rollout.AnnotationWritten]
	return func(path string) bool {
		if !told { // it was pinned before that was noted
			return true
		}
		now, _ := jsonpatch.At(o.Object, path)
		for _, field := range limitFields { // where one limit is theirs now, the other tells the size
			if size := number(o, "spec", field); pinnedTo(size) == written {
				return now == size
			}
		}
		return false
	}
}

// undoing keeps of the patch that undoes a pin what there still is to be undone: a limit that somebody else has set since is theirs, and a
// mark that they have removed is gone.
func undoing(o *unstructured.Unstructured, undo []jsonpatch.Op) []jsonpatch.Op {
	ours := limitsOfOurs(o)
	return slices.DeleteFunc(undo, func(c jsonpatch.Op) bool {
		_, there := jsonpatch.At(o.Object, c.Path)
		return strings.HasPrefix(c.Path, limits) && !ours(c.Path) || c.Op == "remove" && !there
	})
}
