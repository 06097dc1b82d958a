package centre

import (
	"context"

	"slipway.io/slipway/release/build"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
)

// BuildTemplate returns the Job template of an order: the one in the task's record, or the catalogue's current one if
// the order has no task. Templates stay out of histories.
func (a *Activities) BuildTemplate(ctx context.Context, order build.Order) ([]byte, error) {
	service, err := a.serviceOf(ctx, order)
	if err != nil {
		return nil, err
	}
	if service.Build == nil {
		return nil, failure.New(failure.Refused, "service %s has no `build` in the catalogue", order.Service)
	}
	return service.Build.JobTemplate.Raw, nil
}

func (a *Activities) serviceOf(ctx context.Context, order build.Order) (catalog.Service, error) {
	if order.Task == "" {
		object, err := a.store.GetService(ctx, order.Service)
		if err != nil {
			return catalog.Service{}, err
		}
		return object.Spec, nil
	}
	snap, err := a.snapshot(ctx, order.Task)
	if err != nil {
		return catalog.Service{}, err
	}
	if order.Item < 1 || order.Item > len(snap.Document.Items) {
		return catalog.Service{}, failure.New(failure.NotFound, "the record of task %s has no item %d", order.Task,
			order.Item)
	}
	return snap.Services[snap.Document.Items[order.Item-1].ServiceID], nil
}
