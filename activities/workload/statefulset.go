package workload

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	client "k8s.io/client-go/kubernetes/typed/apps/v1"

	"slipway.io/slipway/release/workloadops"
)

type statefulSets struct{ client client.StatefulSetsGetter }

func (statefulSets) resource() string { return "statefulsets" }

func (k statefulSets) get(ctx context.Context, namespace, name string) (*object, error) {
	s, err := k.client.StatefulSets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return statefulSetObject(s), nil
}

func (k statefulSets) list(ctx context.Context, namespace string, options metav1.ListOptions) ([]*object, string, error) {
	list, err := k.client.StatefulSets(namespace).List(ctx, options)
	if err != nil {
		return nil, "", err
	}
	page := make([]*object, len(list.Items))
	for i := range list.Items {
		page[i] = statefulSetObject(&list.Items[i])
	}
	return page, list.Continue, nil
}

func (k statefulSets) patch(ctx context.Context, namespace, name string, body []byte) (*object, error) {
	s, err := k.client.StatefulSets(namespace).Patch(ctx, name, types.JSONPatchType, body, metav1.PatchOptions{FieldManager: fieldManager})
	if err != nil {
		return nil, err
	}
	return statefulSetObject(s), nil
}

func (statefulSets) owns(o *object, pod *corev1.Pod) bool { return metav1.IsControlledBy(pod, &o.meta) }

func (statefulSets) example() runtime.Object { return &appsv1.StatefulSet{} }

func (k statefulSets) listAll(ctx context.Context, namespace string, options metav1.ListOptions) (runtime.Object, error) {
	return k.client.StatefulSets(namespace).List(ctx, options)
}

func (k statefulSets) watchAll(ctx context.Context, namespace string, options metav1.ListOptions) (watch.Interface, error) {
	return k.client.StatefulSets(namespace).Watch(ctx, options)
}

func statefulSetObject(set *appsv1.StatefulSet) *object {
	o := newObject(set.ObjectMeta, set.Spec.Selector, set.Spec.Template)
	o.size(set.Spec.Replicas)
	o.minReadySeconds = set.Spec.MinReadySeconds
	s := &o.seen
	s.ObservedGeneration = set.Status.ObservedGeneration
	s.Total, s.Ready, s.Available, s.Updated = set.Status.Replicas, set.Status.ReadyReplicas, set.Status.AvailableReplicas, set.Status.UpdatedReplicas
	s.UpdateType = string(set.Spec.UpdateStrategy.Type)
	s.OrderedReady = set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement
	s.Revision = set.Status.UpdateRevision
	if set.Spec.Ordinals != nil {
		s.FirstOrdinal = set.Spec.Ordinals.Start
	}
	o.setting(workloadops.PathUpdateStrategy, set.Spec.UpdateStrategy)
	if rolling := set.Spec.UpdateStrategy.RollingUpdate; rolling != nil {
		if rolling.Partition != nil {
			s.Partition = *rolling.Partition
		}
		o.setting(workloadops.PathUpdateUnavailable, rolling.MaxUnavailable)
	}
	return o
}
