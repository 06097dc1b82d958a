package store

import (
	"context"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/v1alpha1"
)

// singleReads is the maximum number of services that are read one by one; for more, the whole catalogue is read.
const singleReads = 8

// ListServices reads one page of the catalogue in order of ID. next is the cursor of the next page, "" on the last one.
func (s *Store) ListServices(ctx context.Context, limit int, cursor string) (items []v1alpha1.ReleaseService,
	next string, err error) {
	return s.services.page(ctx, limit, cursor)
}

// GetService reads a service of the catalogue.
func (s *Store) GetService(ctx context.Context, id string) (*v1alpha1.ReleaseService, error) {
	return s.services.get(ctx, id)
}

// GetServices reads the services with these IDs; unknown IDs are absent from the result.
func (s *Store) GetServices(ctx context.Context, ids []plan.ServiceID) (map[plan.ServiceID]catalog.Service, error) {
	wanted := make(map[plan.ServiceID]bool, len(ids))
	for _, id := range ids {
		wanted[id] = true
	}
	found := make(map[plan.ServiceID]catalog.Service, len(wanted))
	if len(wanted) > singleReads {
		err := s.services.all(ctx, "", func(service *v1alpha1.ReleaseService) {
			if id := plan.ServiceID(v1alpha1.IDOf(service)); wanted[id] {
				found[id] = service.Spec
			}
		})
		return found, err
	}
	for id := range wanted {
		service, err := s.services.get(ctx, string(id))
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

// PutService creates or replaces a service. An equal service writes nothing: changed is false then.
func (s *Store) PutService(ctx context.Context, id string, spec catalog.Service) (created, changed bool, err error) {
	return put(ctx, s.services, id, spec, func(r *v1alpha1.ReleaseService) *catalog.Service { return &r.Spec })
}

// DeleteService deletes a service from the catalogue.
func (s *Store) DeleteService(ctx context.Context, id string) error {
	return s.services.delete(ctx, id, nil)
}
