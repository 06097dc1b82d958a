package party

import (
	"cmp"
	"slices"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/v1alpha1"
)

// QueueHolder returns the other party that polls the queue of p, and came before it; "" if there is none. Two parties
// with one queue would take each other's work, so the younger one can't be used. The party "default" comes before all
// others if it has no object.
func QueueHolder(p v1alpha1.Party, all []v1alpha1.Party) string {
	return holder(p, all, isOlder)
}

// OtherWithQueue returns another party with the queue of p, whichever came first; "" if there is none.
func OtherWithQueue(p v1alpha1.Party, all []v1alpha1.Party) string {
	return holder(p, all, func(_, _ v1alpha1.Party) bool { return true })
}

func holder(p v1alpha1.Party, all []v1alpha1.Party, counts func(other, p v1alpha1.Party) bool) string {
	isDefault := func(p v1alpha1.Party) bool { return p.Name == catalog.DefaultParty }
	if !isDefault(p) && !slices.ContainsFunc(all, isDefault) && queueOf(p) == catalog.PartyQueue(catalog.DefaultParty) {
		return catalog.DefaultParty
	}
	i := slices.IndexFunc(all, func(other v1alpha1.Party) bool {
		return other.Name != p.Name && queueOf(other) == queueOf(p) && counts(other, p)
	})
	if i < 0 {
		return ""
	}
	return all[i].Name
}

func queueOf(p v1alpha1.Party) string { return catalog.QueueOf(p.Name, p.Spec.Queue) }

func isOlder(a, b v1alpha1.Party) bool {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name)) < 0
}

// SharedQueue says why the younger of two parties with one queue can't be used, and what to do.
func SharedQueue(name, queue, holder string) string {
	return "party " + name + " can't be used: its queue " + queue + " is that of party " + holder +
		", whose worker would take its work: give it a queue of its own"
}
