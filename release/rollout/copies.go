package rollout

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/workload"
)

// MemoRestoreOnly is the key of the memo of a release's workflow that deploys nothing: it only restores what an earlier
// one left frozen.
const MemoRestoreOnly = "restoreOnly"

// LeftAnnotations and LeftLabels are what a release has on an object until it ends. Any client can write them again
// later, with a dump or a manifest that has them.
var (
	LeftAnnotations = []string{workload.AnnotationClaimedBy, workload.AnnotationRollout, workload.AnnotationOriginal,
		AnnotationRecover, AnnotationSettled, AnnotationNext, AnnotationHeldBy, AnnotationRestore, AnnotationWritten,
		AnnotationInProgressing, AnnotationExtraStatus, AnnotationOriginalStrategy, AnnotationOriginalSpec}
	LeftLabels = []string{workload.LabelClaimed, workload.LabelRollout, LabelStableRevision}
)

// IsCopy reports whether an object has what a release left on another one: it was made from a dump or from a backup of
// that one, which may have had the same name.
func IsCopy(o metav1.Object) bool {
	uid, annotations := string(o.GetUID()), o.GetAnnotations()
	return uid != "" && slices.ContainsFunc([]string{workload.AnnotationRollout, workload.AnnotationOriginal},
		func(name string) bool {
			text := annotations[name]
			if text == "" || strings.Contains(text, `"uid":"`+uid+`"`) {
				return false
			}
			var left struct {
				UID string `json:"uid"`
			}
			return json.Unmarshal([]byte(text), &left) == nil && left.UID != "" && left.UID != uid
		})
}

// AnnotationsOf returns the annotations of an object, those of a copy without LeftAnnotations: no release holds a copy,
// nor has it saved anything on it.
func AnnotationsOf(o metav1.Object) map[string]string {
	annotations := o.GetAnnotations()
	if !IsCopy(o) {
		return annotations
	}
	annotations = maps.Clone(annotations)
	for _, name := range LeftAnnotations {
		delete(annotations, name)
	}
	return annotations
}

// RemovalOf returns the operations that remove from an object what releases leave on objects until they end.
func RemovalOf(o metav1.Object) (ops []jsonpatch.Op) {
	for _, name := range LeftAnnotations {
		if _, has := o.GetAnnotations()[name]; has {
			ops = append(ops, jsonpatch.Remove(jsonpatch.Annotation(name)))
		}
	}
	for _, name := range LeftLabels {
		if _, has := o.GetLabels()[name]; has {
			ops = append(ops, jsonpatch.Remove(jsonpatch.Label(name)))
		}
	}
	return ops
}
