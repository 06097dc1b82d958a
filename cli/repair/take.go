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

// take puts rollout.AnnotationRepair on everything that the rollout has borrowed: the API server's guard then lets our edits through, and
// an engine that is still there, or comes back, writes nothing more. Each object loses it with the write that gives it back.
func (r *repairer) take(ctx context.Context) error {
	routes, err := r.hands.Borrowed(ctx, r.routeRequest(r.subject, rollout.RouteToStable))
	if err != nil {
		return err
	}
	namespace := r.left.workload.Namespace
	for _, name := range r.left.saved.Autoscalers {
		routes = append(routes, kube.Ref{Resource: autoscalingv2.SchemeGroupVersion.WithResource("horizontalpodautoscalers"),
			Namespace: namespace, Name: name})
	}
	workload := kube.Ref{Resource: resourceOf(r.left.workload.WorkloadRef), Namespace: namespace, Name: r.left.workload.WorkloadRef.Name}
	if extra := r.left.saved.CanaryWorkload; extra != "" {
		routes = append(routes, kube.Ref{Resource: workload.Resource, Namespace: namespace, Name: extra})
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{
		rollout.AnnotationRepair: cmp.Or(app.SystemUser(), "slipway repair")}}})
	if err != nil {
		return err
	}
	for _, ref := range append(routes, workload) {
		if err := r.takeOver(ctx, ref, ref == workload, body); err != nil {
			return fmt.Errorf("%s %s/%s cannot be taken over for the repair: %w", ref.Resource.Resource, ref.Namespace, ref.Name, err)
		}
	}
	return nil
}

// takeOver takes one object over, where it is there and, unless it is the workload, held: what isn't held is never given back.
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
