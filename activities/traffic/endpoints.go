package traffic

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"slipway.io/slipway/activities/podstatus"
)

var endpointSlices = discoveryv1.SchemeGroupVersion.WithResource("endpointslices")

// readyPods are the names of the ready pods that a selector takes.
func (a *Activities) readyPods(ctx context.Context, namespace string, selector map[string]string) (map[string]bool, error) {
	out := map[string]bool{}
	_, err := a.reader.Pods(ctx, namespace, labels.SelectorFromSet(selector).String(), func(pod *corev1.Pod) {
		if pod.DeletionTimestamp == nil && podstatus.Ready(pod) {
			out[pod.Name] = true
		}
	})
	return out, err
}

// endpoints are the pods behind the ready endpoints of a Service.
func (a *Activities) endpoints(ctx context.Context, namespace, service string) ([]string, error) {
	slices, err := a.reader.List(ctx, endpointSlices, namespace, labels.Set{discoveryv1.LabelServiceName: service}.String())
	if err != nil {
		return nil, err
	}
	var out []string
	for i := range slices {
		var slice discoveryv1.EndpointSlice
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(slices[i].Object, &slice); err != nil {
			return nil, err
		}
		for _, e := range slice.Endpoints {
			if e.TargetRef != nil && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
				out = append(out, e.TargetRef.Name)
			}
		}
	}
	return out, nil
}
