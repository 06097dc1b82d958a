package harness

import (
	"context"
	"fmt"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func template(name, image string) (corev1.PodTemplateSpec, *metav1.LabelSelector) {
	labels := map[string]string{"app": name}
	grace := int64(1)
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{Name: "app", Image: image}}},
	}, &metav1.LabelSelector{MatchLabels: labels}
}

// Deployment creates a Deployment in the apps namespace; change, if not nil, may alter it first.
func (e *Engine) Deployment(name string, replicas int32, change func(*appsv1.Deployment)) {
	e.t.Helper()
	pods, selector := template(name, "registry.test/"+name+":v1")
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: selector, Template: pods}}
	if change != nil {
		change(d)
	}
	_, err := e.Kube.AppsV1().Deployments(e.Apps).Create(context.Background(), d, metav1.CreateOptions{})
	require.NoError(e.t, err)
}

// StatefulSet creates a StatefulSet in the apps namespace; change, if not nil, may alter it first.
func (e *Engine) StatefulSet(name string, replicas int32, change func(*appsv1.StatefulSet)) {
	e.t.Helper()
	pods, selector := template(name, "registry.test/"+name+":v1")
	s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{Replicas: &replicas, Selector: selector, Template: pods, ServiceName: name}}
	if change != nil {
		change(s)
	}
	_, err := e.Kube.AppsV1().StatefulSets(e.Apps).Create(context.Background(), s, metav1.CreateOptions{})
	require.NoError(e.t, err)
}

// ReadyPods returns the number of ready pods of a workload that are not being deleted. It selects pods by the label
// app=name.
func (e *Engine) ReadyPods(name string) int {
	e.t.Helper()
	pods, err := e.Kube.CoreV1().Pods(e.Apps).List(context.Background(),
		metav1.ListOptions{LabelSelector: "app=" + name})
	require.NoError(e.t, err)
	ready := 0
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil && isReady(p) {
			ready++
		}
	}
	return ready
}

func isReady(p corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// WaitReadyPods returns when a workload has exactly that many ready pods.
func (e *Engine) WaitReadyPods(name string, want int) {
	e.t.Helper()
	require.Eventually(e.t, func() bool {
		return e.ReadyPods(name) == want
	}, Patience, Tick, "%s never had %d ready pods", name, want)
}

// PodUIDs returns the names of a workload's pods by UID.
func (e *Engine) PodUIDs(name string) map[string]string {
	e.t.Helper()
	pods, err := e.Kube.CoreV1().Pods(e.Apps).List(context.Background(),
		metav1.ListOptions{LabelSelector: "app=" + name})
	require.NoError(e.t, err)
	uids := map[string]string{}
	for _, p := range pods.Items {
		uids[string(p.UID)] = p.Name
	}
	return uids
}

// DeploymentGeneration returns the generation of a Deployment, which counts the changes of its spec.
func (e *Engine) DeploymentGeneration(name string) int64 {
	e.t.Helper()
	d, err := e.Kube.AppsV1().Deployments(e.Apps).Get(context.Background(), name, metav1.GetOptions{})
	require.NoError(e.t, err)
	return d.Generation
}

// ScaleDeployment sets the size of a Deployment and removes the annotation slipway.io/replicas.
func (e *Engine) ScaleDeployment(name string, replicas int32) {
	e.t.Helper()
	patch := fmt.Sprintf(`{"spec":{"replicas":%d},"metadata":{"annotations":{"slipway.io/replicas":null}}}`, replicas)
	_, err := e.Kube.AppsV1().Deployments(e.Apps).Patch(context.Background(), name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{})
	require.NoError(e.t, err)
}
