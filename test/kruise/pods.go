package kruise

import (
	"context"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// pods returns the pods that the workload owns, including terminating ones.
func (c *controller) pods(ctx context.Context, s *set) ([]*corev1.Pod, error) {
	selector, err := metav1.LabelSelectorAsSelector(s.Spec.Selector)
	if err != nil {
		return nil, err
	}
	list, err := c.kube.CoreV1().Pods(s.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return nil, err
	}
	var own []*corev1.Pod
	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], s) {
			own = append(own, &list.Items[i])
		}
	}
	return own, nil
}

// active reports whether a pod is neither terminated nor terminating.
func active(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded
}

func ready(p *corev1.Pod) bool {
	_, is := readySince(p)
	return is
}

func readySince(p *corev1.Pod) (time.Time, bool) {
	for _, cond := range p.Status.Conditions {
		if cond.Type == corev1.PodReady && cond.Status == corev1.ConditionTrue {
			return cond.LastTransitionTime.Time, true
		}
	}
	return time.Time{}, false
}

// available reports whether a pod has been ready for that many seconds. If it is ready, but not long enough, the
// workload is queued again for that time.
func (c *controller) available(k key, p *corev1.Pod, seconds int32) bool {
	since, is := readySince(p)
	if !is || seconds == 0 {
		return is
	}
	left := since.Add(time.Duration(seconds) * time.Second).Sub(c.now())
	if left > 0 {
		c.queue.AddAfter(k, left)
	}
	return left <= 0
}

// newPod returns a pod of a revision, without a name.
func newPod(s *set, r *revision, labels map[string]string) (*corev1.Pod, error) {
	template, err := r.template()
	if err != nil {
		return nil, err
	}
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Namespace, pod.OwnerReferences = s.Namespace, []metav1.OwnerReference{s.owner()}
	pod.Labels = maps.Clone(pod.Labels)
	maps.Copy(pod.Labels, labels)
	return pod, nil
}

func (c *controller) create(ctx context.Context, pod *corev1.Pod) error {
	_, err := c.kube.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	return err
}

// remove deletes the pod with this UID.
func (c *controller) remove(ctx context.Context, p *corev1.Pod) error {
	err := c.kube.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// report writes the status if it has changed.
func (c *controller) report(ctx context.Context, k key, u *unstructured.Unstructured, status map[string]any) error {
	status["observedGeneration"] = u.GetGeneration()
	before, _, _ := unstructured.NestedMap(u.Object, "status")
	if reflect.DeepEqual(before, status) {
		return nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": u.GetUID()}, "status": status})
	if err != nil {
		return err
	}
	_, err = c.dynamic.Resource(k.resource).Namespace(k.namespace).Patch(ctx, k.name, types.MergePatchType, body,
		metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// randomID returns a random suffix for a unique name.
func randomID() string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	id := make([]byte, 5)
	for i := range id {
		id[i] = letters[rand.IntN(len(letters))]
	}
	return string(id)
}
