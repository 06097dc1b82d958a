package party

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/v1alpha1"
)

func TestQueueHolder(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	named := func(name, queue string, at time.Time) v1alpha1.Party {
		return v1alpha1.Party{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(at)},
			Spec: v1alpha1.PartySpec{Queue: queue}}
	}
	alice, later := named("alice", "", noon), noon.Add(time.Second)
	for reason, c := range map[string]struct {
		p, other v1alpha1.Party
		holder   string
	}{
		"the younger one can't be used":           {named("bob", "slipway.party.alice", later), alice, "alice"},
		"the older one can":                       {alice, named("bob", "slipway.party.alice", later), ""},
		"of two of one second, the name decides":  {named("bob", "slipway.party.alice", noon), alice, "alice"},
		"queues differ":                           {named("bob", "", later), alice, ""},
		"the queue of default is taken by itself": {named("bob", "slipway.party.default", noon), alice, "default"},
		"default has another queue": {named("bob", "slipway.party.default", later), named("default", "own", noon),
			""},
	} {
		require.Equal(t, c.holder, QueueHolder(c.p, []v1alpha1.Party{c.other, c.p}), reason)
	}
	require.Equal(t, "bob", OtherWithQueue(alice, []v1alpha1.Party{alice, named("bob", "slipway.party.alice", later)}))
}
