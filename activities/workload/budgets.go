package workload

import (
	"context"
	"sync"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"slipway.io/slipway/release/workload"
)

// budgets finds the PodDisruptionBudgets of a namespace that cover a workload's pods. They are read once, on first use.
// A worker that may not read them finds none; callers for which that matters have checked the permission before.
func (a *Activities) budgets(ctx context.Context, namespace string) func(
	*unstructured.Unstructured) []workload.Budget {
	all := sync.OnceValue(func() []policyv1.PodDisruptionBudget {
		list, err := a.cluster.Budgets(ctx, namespace)
		if err != nil {
			a.options.Logger.DebugContext(ctx, "failed to read the PodDisruptionBudgets", "namespace", namespace,
				"error", err)
		}
		return list
	})
	return func(o *unstructured.Unstructured) (covering []workload.Budget) {
		podLabels, _, _ := unstructured.NestedStringMap(o.Object, "spec", "template", "metadata", "labels")
		for _, b := range all() {
			selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
			if err == nil && selector.Matches(labels.Set(podLabels)) {
				covering = append(covering, workload.Budget{Name: b.Name, Allowed: b.Status.DisruptionsAllowed})
			}
		}
		return covering
	}
}
