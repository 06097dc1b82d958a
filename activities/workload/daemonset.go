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

type daemonSets struct{ client client.DaemonSetsGetter }

func (daemonSets) resource() string { return "daemonsets" }

func (k daemonSets) get(ctx context.Context, namespace, name string) (*object, error) {
	d, err := k.client.DaemonSets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return daemonSetObject(d), nil
}

func (k daemonSets) list(ctx context.Context, namespace string, options metav1.ListOptions) ([]*object, string, error) {
	list, err := k.client.DaemonSets(namespace).List(ctx, options)
	if err != nil {
		return nil, "", err
	}
	page := make([]*object, len(list.Items))
	for i := range list.Items {
		page[i] = daemonSetObject(&list.Items[i])
	}
	return page, list.Continue, nil
}

func (k daemonSets) patch(ctx context.Context, namespace, name string, body []byte) (*object, error) {
	d, err := k.client.DaemonSets(namespace).Patch(ctx, name, types.JSONPatchType, body, metav1.PatchOptions{FieldManager: fieldManager})
	if err != nil {
		return nil, err
	}
	return daemonSetObject(d), nil
}

func (daemonSets) owns(o *object, pod *corev1.Pod) bool { return metav1.IsControlledBy(pod, &o.meta) }

func (daemonSets) example() runtime.Object { return &appsv1.DaemonSet{} }

func (k daemonSets) listAll(ctx context.Context, namespace string, options metav1.ListOptions) (runtime.Object, error) {
	return k.client.DaemonSets(namespace).List(ctx, options)
}

func (k daemonSets) watchAll(ctx context.Context, namespace string, options metav1.ListOptions) (watch.Interface, error) {
	return k.client.DaemonSets(namespace).Watch(ctx, options)
}

func daemonSetObject(d *appsv1.DaemonSet) *object {
	o := newObject(d.ObjectMeta, d.Spec.Selector, d.Spec.Template)
	o.minReadySeconds = d.Spec.MinReadySeconds
	s := &o.seen
	s.ObservedGeneration = d.Status.ObservedGeneration
	s.Replicas = d.Status.DesiredNumberScheduled
	s.Total, s.Ready, s.Available, s.Updated = d.Status.CurrentNumberScheduled, d.Status.NumberReady, d.Status.NumberAvailable, d.Status.UpdatedNumberScheduled
	s.UpdateType = string(d.Spec.UpdateStrategy.Type)
	if rolling := d.Spec.UpdateStrategy.RollingUpdate; rolling != nil {
		o.setting(workloadops.PathUpdateUnavailable, rolling.MaxUnavailable)
		o.setting(workloadops.PathUpdateSurge, rolling.MaxSurge)
	}
	return o
}
