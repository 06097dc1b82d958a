package observer

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/rollout/strategy"
)

// TestUnavailablePods_AreExcused_WhenAnotherClientReversesUpdate: two of four pods ready are excused where another
// client reversed the native update, and a breach everywhere else.
func TestUnavailablePods_AreExcused_WhenAnotherClientReversesUpdate(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason        string
		foreign, busy bool
		paused        bool
		broken        bool
	}{
		{"another client, in the middle of an update", true, true, false, false},
		{"another client, between updates: the controller's counts are right", true, false, false, true},
		{"no other client", false, true, false, true},
		{"a paused Deployment must not replace pods", true, true, true, true},
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
			s.foreign()
		}
		reversed := d.DeepCopy()
		reversed.Spec.Template.Labels = map[string]string{"app": "order", "version": "2"}
		s.put(reversed).put(podOf("order", "n1", "new", true), set("old", 0)) // the pods have not followed yet
		s.deleted(podOf("order", "s1", "old", true), podOf("order", "s2", "old", true),
			podOf("order", "s3", "old", true))
		broken := s.judge(storyRollout(strategy.StyleCanary, false)).broken
		require.Equal(t, tc.broken, len(broken) > 0, "%s: %v", tc.reason, broken)
	}
}
