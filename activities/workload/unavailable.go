package workload

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/release/workloadops"
)

// CountUnavailable counts the pods of each workload that are asked for and not ready. It writes nothing. A cluster that does not answer is
// asked again.
func (a *Activities) CountUnavailable(ctx context.Context, in workloadops.UnavailableRequest) (workloadops.UnavailableResult, error) {
	result := workloadops.UnavailableResult{Unavailable: make([]int32, len(in.Workloads))}
	for i, w := range in.Workloads {
		k, known := kindOf(w.WorkloadRef)
		if !known || k.operated == nil || !a.serves(w.Namespace) {
			continue // Run says what is wrong with it
		}
		o, err := a.reader.Get(ctx, k.resource, w.Namespace, w.WorkloadRef.Name)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return result, attempt.RetriedError((&preflight{a: a}).failure(err))
		}
		result.Unavailable[i] = max(0, k.asked(o)-count(o, k.ready))
	}
	return result, nil
}
