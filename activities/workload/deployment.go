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

	"slipway.io/slipway/activities/podword"
	"slipway.io/slipway/release/workloadops"
)

// annotationRevision is where the Deployment controller counts the revisions.
const annotationRevision = "deployment.kubernetes.io/revision"

type deployments struct{ client client.DeploymentsGetter }

func (deployments) resource() string { return "deployments" }

func (k deployments) get(ctx context.Context, namespace, name string) (*object, error) {
	d, err := k.client.Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return deploymentObject(d), nil
}

func (k deployments) list(ctx context.Context, namespace string, options metav1.ListOptions) ([]*object, string, error) {
	list, err := k.client.Deployments(namespace).List(ctx, options)
	if err != nil {
		return nil, "", err
	}
	page := make([]*object, len(list.Items))
	for i := range list.Items {
		page[i] = deploymentObject(&list.Items[i])
	}
	return page, list.Continue, nil
}

func (k deployments) patch(ctx context.Context, namespace, name string, body []byte) (*object, error) {
	d, err := k.client.Deployments(namespace).Patch(ctx, name, types.JSONPatchType, body, metav1.PatchOptions{FieldManager: fieldManager})
	if err != nil {
		return nil, err
	}
	return deploymentObject(d), nil
}

// owns goes by the name of the ReplicaSet that owns the pod, which the Deployment controller makes of its own name and the pod's template hash: asking for the
// ReplicaSets would need a permission more.
func (deployments) owns(o *object, pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "ReplicaSet" && owner.Name == o.meta.Name+"-"+pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
}

func (deployments) example() runtime.Object { return &appsv1.Deployment{} }

func (k deployments) listAll(ctx context.Context, namespace string, options metav1.ListOptions) (runtime.Object, error) {
	return k.client.Deployments(namespace).List(ctx, options)
}

func (k deployments) watchAll(ctx context.Context, namespace string, options metav1.ListOptions) (watch.Interface, error) {
	return k.client.Deployments(namespace).Watch(ctx, options)
}

func deploymentObject(d *appsv1.Deployment) *object {
	o := newObject(d.ObjectMeta, d.Spec.Selector, d.Spec.Template)
	o.size(d.Spec.Replicas)
	o.minReadySeconds = d.Spec.MinReadySeconds
	s := &o.seen
	s.ObservedGeneration = d.Status.ObservedGeneration
	s.Total, s.Ready, s.Available, s.Updated = d.Status.Replicas, d.Status.ReadyReplicas, d.Status.AvailableReplicas, d.Status.UpdatedReplicas
	s.Terminating = d.Status.TerminatingReplicas
	s.UpdateType = string(d.Spec.Strategy.Type)
	s.Paused = d.Spec.Paused
	s.Revision = d.Annotations[annotationRevision]
	if rolling := d.Spec.Strategy.RollingUpdate; rolling != nil {
		o.setting(workloadops.PathDeploymentUnavailable, rolling.MaxUnavailable)
		o.setting(workloadops.PathDeploymentSurge, rolling.MaxSurge)
	}
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			s.Trouble = podword.Line(c.Message)
		}
	}
	return o
}
