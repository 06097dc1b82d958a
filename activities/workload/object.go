package workload

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/workloadops"
)

// object is a workload as an operation sees it.
type object struct {
	*unstructured.Unstructured
	// seen is what the decision goes by, pods and time left out.
	seen workloadops.Observed
}

// sized says that the size is spelt out in the object, as it always is on a real API server.
func (o *object) sized() bool {
	_, there, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
	return there
}

// observe is what operations see of a workload.
func (k kind) observe(o *unstructured.Unstructured) *object {
	annotations := o.GetAnnotations()
	s := workloadops.Observed{
		Snapshot: k.snapshot(o, k.operated.borrowed), Rollout: savedBy(o.GetLabels(), annotations),
		Partition:    int32(number(o, "spec", "updateStrategy", "rollingUpdate", "partition")),
		FirstOrdinal: int32(number(o, "spec", "ordinals", "start")),
		Remembered:   annotations[workloadops.AnnotationReplicas], LeftAt: annotations[workloadops.AnnotationLeftAt],
	}
	s.UpdateType, _, _ = unstructured.NestedString(o.Object, "spec", k.operated.strategy, "type")
	s.Paused, _, _ = unstructured.NestedBool(o.Object, "spec", "paused")
	s.Marker, _, _ = unstructured.NestedString(o.Object, "spec", "template", "metadata", "annotations", workloadops.AnnotationRestartedBy)
	policy, _, _ := unstructured.NestedString(o.Object, "spec", "podManagementPolicy")
	s.OrderedReady = policy == "OrderedReady"
	if n, there, _ := unstructured.NestedInt64(o.Object, "status", "terminatingReplicas"); there {
		terminating := int32(n)
		s.Terminating = &terminating
	}
	if k.operated.revision != nil {
		s.Revision = k.operated.revision(o)
	}
	if text, saved := annotations[workloadops.AnnotationOriginal]; saved {
		original, err := workloadops.ParseOriginal(text)
		if err != nil {
			s.OriginalProblem = err.Error()
		}
		s.Original = original
	}
	return &object{Unstructured: o, seen: s}
}

// snapshot is what operations and rollouts both see of a workload.
func (k kind) snapshot(o *unstructured.Unstructured, settings []string) workloadops.Snapshot {
	return workloadops.Snapshot{
		Claim:      o.GetAnnotations()[workloadops.AnnotationClaimedBy],
		Generation: o.GetGeneration(), ObservedGeneration: number(o, "status", "observedGeneration"),
		Deleting: o.GetDeletionTimestamp() != nil,
		Replicas: k.asked(o), Total: count(o, k.total), Ready: count(o, k.ready), Available: count(o, k.available),
		Updated:  count(o, k.updated),
		Settings: settingsOf(o, settings), Trouble: replicaFailure(o),
	}
}

// asked is the size that a workload is asked for: an absent one means 1 (Kubernetes API), where it is not the number of nodes.
func (k kind) asked(o *unstructured.Unstructured) int32 {
	if n, there, _ := unstructured.NestedInt64(o.Object, k.size...); there || k.size[0] == "status" {
		return int32(n)
	}
	return 1
}

// settingsOf are the values at these JSON Pointers; one that is not set is left out.
func settingsOf(o *unstructured.Unstructured, paths []string) map[string]json.RawMessage {
	settings := map[string]json.RawMessage{}
	for _, path := range paths {
		v, there := jsonpatch.At(o.Object, path)
		if !there || v == nil {
			continue
		}
		if raw, err := json.Marshal(v); err == nil {
			settings[path] = raw
		}
	}
	return settings
}

// savedBy is what a rollout has saved on a workload; "" when none has, or when it is a stale copy (workloadops.LabelRollout).
func savedBy(labels, annotations map[string]string) string {
	if labels[workloadops.LabelRollout] == "" {
		return ""
	}
	return annotations[workloadops.AnnotationRollout]
}
