package repair

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/rollout"
)

// takeOverAll sets rollout.AnnotationRepair on everything that the rollout has borrowed. The API server's guard then
// allows the repair's changes, and a running engine writes nothing more. The write that restores an object removes the
// annotation.
func (r *repairer) takeOverAll(ctx context.Context) error {
	routes, err := r.activities.Borrowed(ctx, r.routeRequest(r.subject, rollout.RouteToStable))
	if err != nil {
		return err
	}
	namespace := r.leftovers.workload.Namespace
	for _, name := range r.leftovers.saved.Autoscalers {
		routes = append(routes, kube.Ref{Resource: autoscalingv2.SchemeGroupVersion.WithResource(
			"horizontalpodautoscalers"),
			Namespace: namespace, Name: name})
	}
	workload := kube.Ref{Resource: r.leftovers.workload.WorkloadRef.Lookup().Resource, Namespace: namespace,
		Name: r.leftovers.workload.WorkloadRef.Name}
	if extra := r.leftovers.saved.CanaryWorkload; extra != "" {
		routes = append(routes, kube.Ref{Resource: workload.Resource, Namespace: namespace, Name: extra})
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{
		rollout.AnnotationRepair: cmp.Or(app.SystemUser(), "slipway repair")}}})
	if err != nil {
		return err
	}
	for _, ref := range append(routes, workload) {
		if err := r.takeOver(ctx, ref, ref == workload, body); err != nil {
			return fmt.Errorf("cannot take over %s %s/%s for the repair: %w", ref.Resource.Resource, ref.Namespace,
				ref.Name, err)
		}
	}
	return nil
}

// takeOver marks one object, if it exists and is borrowed or is the workload. Objects that are not borrowed would keep
// the annotation, because they are never restored.
func (r *repairer) takeOver(ctx context.Context, ref kube.Ref, isWorkload bool, body []byte) error {
	objects := r.objects.Resource(ref.Resource).Namespace(ref.Namespace)
	object, err := objects.Get(ctx, ref.Name, metav1.GetOptions{})
	if err == nil && (isWorkload || object.GetAnnotations()[rollout.AnnotationHeldBy] != "") {
		_, err = objects.Patch(ctx, ref.Name, types.MergePatchType, body, metav1.PatchOptions{})
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
