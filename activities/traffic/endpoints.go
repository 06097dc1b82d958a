package traffic

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// page is how many objects are asked for at once.
const page = 500

// readyPods are the names of the ready pods that a selector takes.
func (a *Activities) readyPods(ctx context.Context, namespace string, selector map[string]string) (map[string]bool, error) {
	out := map[string]bool{}
	options := metav1.ListOptions{LabelSelector: labels.SelectorFromSet(selector).String(), Limit: page}
	for {
		call, cancel := a.call(ctx)
		list, err := a.client.CoreV1().Pods(namespace).List(call, options)
		cancel()
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			if pod := &list.Items[i]; pod.DeletionTimestamp == nil && isReady(pod) {
				out[pod.Name] = true
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return out, nil
		}
	}
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// endpoints are the pods behind the ready endpoints of a Service.
func (a *Activities) endpoints(ctx context.Context, namespace, service string) ([]string, error) {
	call, cancel := a.call(ctx)
	defer cancel()
	slices, err := a.client.DiscoveryV1().EndpointSlices(namespace).List(call, metav1.ListOptions{
		LabelSelector: labels.Set{discoveryv1.LabelServiceName: service}.String(),
	})
	if err != nil {
		return nil, err
	}
	var out []string
	for _, slice := range slices.Items {
		for _, e := range slice.Endpoints {
			if e.TargetRef != nil && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
				out = append(out, e.TargetRef.Name)
			}
		}
	}
	return out, nil
}
