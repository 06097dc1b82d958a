package store

import (
	"cmp"
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/v1alpha1"
)

// DefaultNamespace is the namespace that a party's workloads are in unless a request says otherwise; "" when the party has none of its own.
func (s *Store) DefaultNamespace(ctx context.Context, party string) (string, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	object, err := s.parties.Get(ctx, cmp.Or(party, catalog.DefaultParty), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", failed(err, "party "+party)
	}
	return object.Spec.Namespace, nil
}

// Queue is the task queue on which a party's worker is found, and whether the party is known at all: a Party object, or a
// namespace of the home cluster of that name, which the party "default" serves, or "default" itself.
func (s *Store) Queue(ctx context.Context, party string) (queue string, known bool, err error) {
	party = cmp.Or(party, catalog.DefaultParty)
	ctx, cancel := bounded(ctx)
	defer cancel()
	object, err := s.parties.Get(ctx, party, metav1.GetOptions{})
	if err == nil {
		return cmp.Or(object.Spec.Queue, catalog.PartyQueue(party)), true, nil
	}
	if !apierrors.IsNotFound(err) {
		return "", false, failed(err, "party "+party)
	}
	if party == catalog.DefaultParty {
		return catalog.PartyQueue(party), true, nil
	}
	_, err = s.core.Namespaces().Get(ctx, party, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", false, nil
	}
	if err != nil {
		return "", false, failed(err, "namespace "+party)
	}
	return s.Queue(ctx, catalog.DefaultParty)
}

// ListParties reads all Party objects, in order of name: there are few.
func (s *Store) ListParties(ctx context.Context) ([]v1alpha1.Party, error) {
	all := []v1alpha1.Party{}
	for cursor := ""; ; {
		list, err := listPage(ctx, s.parties, pageSize, cursor)
		if err != nil {
			return nil, failed(err, "the list of parties")
		}
		all = append(all, list.Items...)
		if cursor = list.Continue; cursor == "" {
			return all, nil
		}
	}
}

// GetParty reads a Party object. Parties without one are known all the same: see Queue.
func (s *Store) GetParty(ctx context.Context, name string) (*v1alpha1.Party, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	party, err := s.parties.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, failed(err, "party "+name)
	}
	return party, nil
}

// PutParty creates or replaces a Party object. One equal to what is stored writes nothing: changed is false then.
func (s *Store) PutParty(ctx context.Context, name string, spec v1alpha1.PartySpec) (created, changed bool, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	return put(ctx, "party "+name, putter[*v1alpha1.Party]{
		client: s.parties,
		id:     name,
		empty:  func() *v1alpha1.Party { return &v1alpha1.Party{} },
		equal:  func(stored *v1alpha1.Party) bool { return sameJSON(stored.Spec, spec) },
		fill:   func(object *v1alpha1.Party) { object.Spec = spec },
	})
}

// DeleteParty deletes the Party object that was read as stored; another one of its name, or a change since, is a Conflict.
func (s *Store) DeleteParty(ctx context.Context, stored *v1alpha1.Party) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	precondition := &metav1.Preconditions{UID: &stored.UID, ResourceVersion: &stored.ResourceVersion}
	return failed(s.parties.Delete(ctx, stored.Name, metav1.DeleteOptions{Preconditions: precondition}), "party "+stored.Name)
}
