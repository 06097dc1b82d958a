package store

import (
	"cmp"
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/recent"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/v1alpha1"
)

// DefaultNamespace returns the default namespace of a party's workloads; "" if the party has none.
func (s *Store) DefaultNamespace(ctx context.Context, party string) (string, error) {
	object, err := s.parties.get(ctx, cmp.Or(party, catalog.DefaultParty))
	if failure.Is(err, failure.NotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return object.Spec.Namespace, nil
}

// queueTTL is how long the queue of a party is cached: hundreds of releases may start in a second, and a party's queue
// hardly ever changes.
const queueTTL = time.Second

// errUnknownParty keeps an unknown party out of the cache: a user may be about to create it.
var errUnknownParty = errors.New("the party is not known")

// Queue is FindQueue with results cached for a second, except that a party is unknown.
func (s *Store) Queue(ctx context.Context, party string) (queue string, known bool, err error) {
	party = cmp.Or(party, catalog.DefaultParty)
	queue, err = recent.Get(ctx, &s.queues, party, queueTTL, func(ctx context.Context) (string, error) {
		queue, known, err := s.FindQueue(ctx, party)
		if err == nil && !known {
			err = errUnknownParty
		}
		return queue, err
	})
	if errors.Is(err, errUnknownParty) {
		return "", false, nil
	}
	return queue, err == nil, err
}

// FindQueue returns the task queue of a party's worker, and whether the party is known: as a Party object, as a
// namespace of the home cluster of that name (served by the party "default"), or as "default" itself.
func (s *Store) FindQueue(ctx context.Context, party string) (queue string, known bool, err error) {
	party = cmp.Or(party, catalog.DefaultParty)
	object, err := s.parties.get(ctx, party)
	if err == nil {
		return catalog.QueueOf(party, object.Spec.Queue), true, nil
	}
	if !failure.Is(err, failure.NotFound) {
		return "", false, err
	}
	if party == catalog.DefaultParty {
		return catalog.PartyQueue(party), true, nil
	}
	call, cancel := bounded(ctx)
	defer cancel()
	_, err = s.core.Namespaces().Get(call, party, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", false, nil
	}
	if err != nil {
		return "", false, asFailure(err, "namespace "+party)
	}
	return s.FindQueue(ctx, catalog.DefaultParty)
}

// ListParties reads all Party objects, in order of name; there are few.
func (s *Store) ListParties(ctx context.Context) ([]v1alpha1.Party, error) {
	return all(func(cursor string) ([]v1alpha1.Party, string, error) { return s.parties.page(ctx, pageSize, cursor) })
}

// GetParty reads a Party object. A party may be known without one: see FindQueue.
func (s *Store) GetParty(ctx context.Context, name string) (*v1alpha1.Party, error) {
	return s.parties.get(ctx, name)
}

// PutParty creates or replaces a Party object. An equal one writes nothing: changed is false then.
func (s *Store) PutParty(ctx context.Context, name string, spec v1alpha1.PartySpec) (created, changed bool, err error) {
	defer s.queues.Forget()
	return put(ctx, s.parties, name, spec, func(p *v1alpha1.Party) *v1alpha1.PartySpec { return &p.Spec })
}

// DeleteParty deletes the Party object that was read; another object of its name, or a change since, is a Conflict.
func (s *Store) DeleteParty(ctx context.Context, stored *v1alpha1.Party) error {
	defer s.queues.Forget()
	return s.parties.delete(ctx, stored.Name, &metav1.Preconditions{UID: &stored.UID,
		ResourceVersion: &stored.ResourceVersion})
}
