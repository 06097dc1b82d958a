package home

import (
	"cmp"
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/catalog"
)

// Queue is the task queue on which a party's worker is found, and whether the party is known at all (design §4): a Party object, or a
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
