package store

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/v1alpha1"
)

// singleReads is up to how many services are read one by one; for more, the whole catalogue is read at once.
const singleReads = 8

// ListServices reads one page of the catalogue in order of ID. next is the cursor of the page after it, "" on the last one.
func (s *Store) ListServices(ctx context.Context, limit int, cursor string) (items []v1alpha1.ReleaseService, next string, err error) {
	list, err := listPage(ctx, s.services, limit, cursor)
	if err != nil {
		return nil, "", failed(err, "the list of services")
	}
	return list.Items, list.Continue, nil
}

// GetService reads a service of the catalogue.
func (s *Store) GetService(ctx context.Context, id string) (*v1alpha1.ReleaseService, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	service, err := s.services.Get(ctx, v1alpha1.ObjectName(id), metav1.GetOptions{})
	if err == nil && v1alpha1.IDOf(service) != id {
		return nil, failure.New(failure.NotFound, "service %s does not exist", id)
	}
	if err != nil {
		return nil, failed(err, "service "+id)
	}
	return service, nil
}

// GetServices reads the services of these IDs; an ID that the catalogue does not have is absent from the answer.
func (s *Store) GetServices(ctx context.Context, ids []plan.ServiceID) (map[plan.ServiceID]catalog.Service, error) {
	wanted := make(map[plan.ServiceID]bool, len(ids))
	for _, id := range ids {
		wanted[id] = true
	}
	if len(wanted) > singleReads {
		return s.selectServices(ctx, wanted)
	}
	found := make(map[plan.ServiceID]catalog.Service, len(wanted))
	for id := range wanted {
		service, err := s.GetService(ctx, string(id))
		if failure.Is(err, failure.NotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found[id] = service.Spec
	}
	return found, nil
}

func (s *Store) selectServices(ctx context.Context, wanted map[plan.ServiceID]bool) (map[plan.ServiceID]catalog.Service, error) {
	found := make(map[plan.ServiceID]catalog.Service, len(wanted))
	for cursor := ""; ; {
		items, next, err := s.ListServices(ctx, pageSize, cursor)
		if err != nil {
			return nil, err
		}
		for _, service := range items {
			if id := plan.ServiceID(v1alpha1.IDOf(&service)); wanted[id] {
				found[id] = service.Spec
			}
		}
		if next == "" {
			return found, nil
		}
		cursor = next
	}
}

// PutService creates or replaces a service. A service equal to what is stored writes nothing: changed is false then.
func (s *Store) PutService(ctx context.Context, id string, spec catalog.Service) (created, changed bool, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	return put(ctx, "service "+id, putter[*v1alpha1.ReleaseService]{
		client: s.services,
		id:     id,
		empty:  func() *v1alpha1.ReleaseService { return &v1alpha1.ReleaseService{} },
		equal:  func(stored *v1alpha1.ReleaseService) bool { return sameJSON(stored.Spec, spec) },
		fill:   func(object *v1alpha1.ReleaseService) { object.Spec = spec },
	})
}

// DeleteService takes a service out of the catalogue.
func (s *Store) DeleteService(ctx context.Context, id string) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	return failed(s.services.Delete(ctx, v1alpha1.ObjectName(id), metav1.DeleteOptions{}), "service "+id)
}
