package store

import (
	"cmp"
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/recent"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/v1alpha1"
)

// DefaultNamespace returns the default namespace of a party's workloads; "" if the party has none.
func (s *Store) DefaultNamespace(ctx context.Context, party string) (string, error) {
	object, err := s.parties.get(ctx, cmp.Or(party, catalog.DefaultParty))
	if err != nil {
		return "", failure.Ignore(err, failure.NotFound)
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
	if _, err = s.getNamespace(ctx, party); err != nil {
		return "", false, failure.Ignore(err, failure.NotFound)
	}
	return s.FindQueue(ctx, catalog.DefaultParty)
}

func (s *Store) getNamespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	found, err := s.core.Namespaces().Get(ctx, name, metav1.GetOptions{})
	return found, asFailure(err, "namespace "+name)
}

// NamespaceLabels returns the labels of a namespace; none if it does not exist.
func (s *Store) NamespaceLabels(ctx context.Context, name string) (map[string]string, error) {
	found, err := s.getNamespace(ctx, name)
	if err != nil {
		return nil, failure.Ignore(err, failure.NotFound)
	}
	return found.Labels, nil
}

// CheckCluster returns an error if the home cluster, or the engine's namespace in it, cannot be read.
func (s *Store) CheckCluster(ctx context.Context) error {
	_, err := s.getNamespace(ctx, s.namespace)
	return err
}

// ListParties reads all Party objects, in order of name; there are few.
func (s *Store) ListParties(ctx context.Context) ([]v1alpha1.Party, error) {
	found := []v1alpha1.Party{}
	err := s.parties.all(ctx, "", func(p *v1alpha1.Party) { found = append(found, *p) })
	return found, err
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
