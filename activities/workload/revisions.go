package workload

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
)

// keptRevision is a revision that the cluster keeps, with its pod template.
type keptRevision struct {
	pods.Revision
	uid      types.UID
	template map[string]any
}

// keptRevisions reads the ReplicaSets or ControllerRevisions that the workload's selector matches, and returns those
// that it owns, oldest first.
func (t *job) keptRevisions(ctx context.Context, workload *unstructured.Unstructured, selector string) ([]keptRevision,
	error) {
	list, err := t.list(ctx, t.kind.revisions(), selector)
	if err != nil {
		return nil, err
	}
	var kept []keptRevision
	for i := range list {
		owner := metav1.GetControllerOf(&list[i])
		if owner != nil && owner.UID == workload.GetUID() {
			kept = append(kept, t.kind.revision(&list[i]))
		}
	}
	slices.SortFunc(kept, oldestFirst)
	return kept, nil
}

func oldestFirst(a, b keptRevision) int {
	return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Name, b.Name))
}

// list lists objects in the workload's namespace.
func (t *job) list(ctx context.Context, resource schema.GroupVersionResource,
	selector string) ([]unstructured.Unstructured, error) {
	return t.a.cluster.List(ctx, resource, t.workload.Namespace, selector)
}

func (k kind) revision(r *unstructured.Unstructured) keptRevision {
	if k.hash == nil {
		template := pods.Stripped(templateOf(r))
		hash := r.GetLabels()[rollout.RevisionLabel("Deployment")]
		n, _ := strconv.ParseInt(r.GetAnnotations()[annotationRevision], 10, 64)
		return keptRevision{pods.Revision{Name: hash, Hash: hash, Number: n, Template: pods.Digest(template),
			Images:  pods.Images(template),
			Package: packageOf(template), HasCounts: true,
			Desired: int32(number(r, "spec", "replicas")), Total: count(r, "replicas"),
			Ready:     count(r, "readyReplicas"),
			Available: count(r, "availableReplicas"), Rest: r.GetAnnotations()[rollout.AnnotationSettled]}, r.GetUID(),
			template}
	}
	raw, _, _ := unstructured.NestedMap(r.Object, "data", "spec", "template")
	template := pods.Stripped(raw)
	return keptRevision{pods.Revision{Name: r.GetName(), Hash: k.hash(r), Number: number(r, "revision"),
		Template: pods.Digest(template),
		Images:   pods.Images(template), Package: packageOf(template)}, r.GetUID(), template}
}
