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
	"slipway.io/slipway/release/party"
	"slipway.io/slipway/release/v1alpha1"
)

// DefaultNamespace returns the default namespace of a party's workloads; "" if the party has none.
func (s *Store) DefaultNamespace(ctx context.Context, name string) (string, error) {
	object, err := s.parties.get(ctx, cmp.Or(name, catalog.DefaultParty))
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
func (s *Store) Queue(ctx context.Context, name string) (queue string, known bool, err error) {
	name = cmp.Or(name, catalog.DefaultParty)
	queue, err = recent.Get(ctx, &s.queues, name, queueTTL, func(ctx context.Context) (string, error) {
		queue, known, err := s.FindQueue(ctx, name)
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
// namespace of the home cluster of that name (served by the party "default"), or as "default" itself. The younger of
// two parties with one queue is Refused.
func (s *Store) FindQueue(ctx context.Context, name string) (queue string, known bool, err error) {
	name = cmp.Or(name, catalog.DefaultParty)
	object, err := s.parties.get(ctx, name)
	if err == nil {
		queue = catalog.QueueOf(name, object.Spec.Queue)
		return queue, true, s.checkQueueHolder(ctx, *object)
	}
	if !failure.Is(err, failure.NotFound) {
		return "", false, err
	}
	if name == catalog.DefaultParty {
		return catalog.PartyQueue(name), true, nil
	}
	if _, err = s.getNamespace(ctx, name); err != nil {
		return "", false, failure.Ignore(err, failure.NotFound)
	}
	return s.FindQueue(ctx, catalog.DefaultParty)
}

// checkQueueHolder refuses a party whose queue is that of an older one. The list of parties is cached like their
// queues: a serving may look up many parties at once.
func (s *Store) checkQueueHolder(ctx context.Context, object v1alpha1.Party) error {
	all, err := recent.Get(ctx, &s.partyLists, "", queueTTL, s.ListParties)
	if err != nil {
		return err
	}
	if other := party.QueueHolder(object, all); other != "" {
		return failure.New(failure.Refused, "%s",
			party.SharedQueue(object.Name, catalog.QueueOf(object.Name, object.Spec.Queue), other))
	}
	return nil
}

// checkQueueFree refuses, as a Conflict, a queue for a party that is another party's. A stored party keeps its queue
// unless the other party is older.
func (s *Store) checkQueueFree(ctx context.Context, name string, spec v1alpha1.PartySpec) error {
	all, err := s.ListParties(ctx)
	if err != nil {
		return err
	}
	asked := v1alpha1.Party{Spec: spec}
	asked.Name = name
	other := party.OtherWithQueue(asked, all)
	for _, stored := range all {
		if stored.Name == name && catalog.QueueOf(name, stored.Spec.Queue) == catalog.QueueOf(name, spec.Queue) {
			other = party.QueueHolder(stored, all)
		}
	}
	if other != "" {
		return failure.New(failure.Conflict, "%s", party.SharedQueue(name, catalog.QueueOf(name, spec.Queue), other))
	}
	return nil
}

func (s *Store) forgetParties() {
	s.queues.Forget()
	s.partyLists.Forget()
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

// PutParty creates or replaces a Party object. An equal one writes nothing: changed is false then. A queue that is
// another party's is a Conflict.
func (s *Store) PutParty(ctx context.Context, name string, spec v1alpha1.PartySpec) (created, changed bool, err error) {
	if err := s.checkQueueFree(ctx, name, spec); err != nil {
		return false, false, err
	}
	defer s.forgetParties()
	return put(ctx, s.parties, name, spec, func(p *v1alpha1.Party) *v1alpha1.PartySpec { return &p.Spec })
}

// DeleteParty deletes the Party object that was read; another object of its name, or a change since, is a Conflict.
func (s *Store) DeleteParty(ctx context.Context, stored *v1alpha1.Party) error {
	defer s.forgetParties()
	return s.parties.delete(ctx, stored.Name, &metav1.Preconditions{UID: &stored.UID,
		ResourceVersion: &stored.ResourceVersion})
}
