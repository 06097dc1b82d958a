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
	"slipway.io/slipway/release/workload"
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
	raw, _, _ := unstructured.NestedMap(r.Object, "data", "spec", "template")
	is := pods.Revision{Name: r.GetName(), Number: number(r, "revision")}
	if k.Revisions == workload.ReplicaSets {
		raw = templateOf(r)
		counts := k.Count(r.Object)
		n, _ := strconv.ParseInt(r.GetAnnotations()[annotationRevision], 10, 64)
		is = pods.Revision{Name: k.RevisionOf(r), Number: n, HasCounts: true, Desired: counts.Size, Total: counts.Total,
			Ready: counts.Ready, Available: counts.Available, Rest: r.GetAnnotations()[rollout.AnnotationSettled]}
	}
	template := pods.Stripped(raw)
	is.Hash, is.Template = k.RevisionOf(r), pods.Digest(template)
	is.Images, is.Package = pods.Images(template), packageOf(template)
	return keptRevision{is, r.GetUID(), template}
}
