package rollout

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"slipway.io/slipway/kube/watch"
	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/kruise"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/workload"
)

// workloads watches the workloads with the mark of a Rollout.
type workloads struct {
	objects dynamic.Interface
	kinds   *watch.Kinds
	watches map[string]*watch.Watch[*kruise.Workload]
}

// newWorkloads prepares a watch for each kind. changed is called with each changed workload, began when the watch of a
// kind has synced: earlier changes of its workloads were not reported.
func newWorkloads(objects dynamic.Interface, options Options, changed func(*kruise.Workload), began func()) *workloads {
	w := &workloads{objects: objects, kinds: watch.NewKinds(options.Served),
		watches: map[string]*watch.Watch[*kruise.Workload]{}}
	for _, kind := range workload.Kinds {
		watched := watch.New(watch.Untyped(objects, kind.Resource), readWorkload, watch.Options{
			Namespaces: options.Namespaces, Labels: gate.Label, Synced: began,
			Failed: warnUnwatched(options.Log, "workloads of kind "+kind.Key(), noReleases)}).
			Index(byNamespace, func(w *kruise.Workload) []string { return []string{w.Namespace} }).
			Handle(watch.OnChange(changed))
		w.watches[kind.Key()] = watched
		w.kinds.Add(kind.Resource, watched.Run)
	}
	return w
}

// readWorkload converts a workload to what a Rollout needs.
func readWorkload(u *unstructured.Unstructured) (*kruise.Workload, error) {
	return kruise.ReadWorkload(u), nil
}

// named returns the workload that an object names; nil if it does not exist. One without a mark is not in the watch,
// and is read from the API server.
func (w *workloads) named(ctx context.Context, r *v1beta1.Rollout) (*kruise.Workload, error) {
	kind := workload.Of(r.Spec.WorkloadRef.APIVersion, r.Spec.WorkloadRef.Kind)
	if !kind.Known() {
		return nil, nil
	}
	if one := w.watches[kind.Key()].Get(r.Namespace, r.Spec.WorkloadRef.Name); one != nil {
		return one, nil
	}
	found, err := w.objects.Resource(kind.Resource).Namespace(r.Namespace).Get(ctx, r.Spec.WorkloadRef.Name,
		metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	w.kinds.Recheck(kind.Resource) // its definition may just have been installed
	return kruise.ReadWorkload(found), nil
}

// strays returns the workloads with the mark of an object that does not name them.
func (w *workloads) strays(r *v1beta1.Rollout) (all []*kruise.Workload) {
	for _, k := range workload.Kinds {
		for _, one := range w.watches[k.Key()].By(byNamespace, r.Namespace) {
			if kruise.Marked(r, one) && !kruise.References(r, one) {
				all = append(all, one)
			}
		}
	}
	return all
}
