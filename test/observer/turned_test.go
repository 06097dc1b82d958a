package observer

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/rollout/strategy"
)

// Two of four ready pods are the native controller's doing where somebody else has turned its update round, and a breach everywhere else.
func TestATurnInMidUpdateIsTheirs(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason        string
		foreign, busy bool
		paused        bool
		broken        bool
	}{
		{"somebody else, in the middle of an update", true, true, false, false},
		{"somebody else, at rest: its controller counts right", true, false, false, true},
		{"nobody else is there", false, true, false, true},
		{"of a paused one no pod may move", true, true, true, true},
	} {
		s := newStory()
		d := s.first[0].(*appsv1.Deployment)
		d.Spec.Paused = tc.paused
		set := func(revision string, n int32) *appsv1.ReplicaSet {
			rs := replicaSet(revision, n)
			rs.OwnerReferences = []metav1.OwnerReference{{Kind: "Deployment", Name: "order", Controller: new(true)}}
			return rs
		}
		s.put(set("old", 4))
		if tc.busy {
			s.put(set("new", 1))
		}
		if tc.foreign {
			s.theirs()
		}
		turned := d.DeepCopy()
		turned.Spec.Template.Labels = map[string]string{"app": "order", "version": "2"}
		s.put(turned).put(podOf("order", "n1", "new", true), set("old", 0)) // nothing is over while its pods have not followed
		s.gone(podOf("order", "s1", "old", true), podOf("order", "s2", "old", true), podOf("order", "s3", "old", true))
		broken := s.judge(asked(strategy.StyleCanary, false)).broken
		require.Equal(t, tc.broken, len(broken) > 0, "%s: %v", tc.reason, broken)
	}
}
