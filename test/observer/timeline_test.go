package observer

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"slipway.io/slipway/release/workload"
)

var order = Name{"Deployment", "order"}

func deployment(replicas int32, generation int64, claim string) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "order", Generation: generation},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas}}
	if claim != "" {
		d.Annotations = map[string]string{workload.AnnotationClaimedBy: claim}
	}
	return d
}

func pod(name string, ready, leaving bool) *corev1.Pod {
	yes := true
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name),
		Labels:          map[string]string{"pod-template-hash": "abc"},
		OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "order-abc", Controller: &yes}}}}
	if ready {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	if leaving {
		p.DeletionTimestamp = &metav1.Time{}
	}
	return p
}

func TestMostOut(t *testing.T) {
	t.Parallel()
	before := []runtime.Object{deployment(2, 1, ""), pod("a", true, false), pod("b", true, false)}
	claimed := change{10, watch.Modified, deployment(2, 2, "w@r")}
	cases := map[string]struct {
		reason  string
		changes []change
		most    int32
		version uint64
	}{
		"none": {"no pod changes", []change{claimed}, 0, 0},
		"not claimed": {"changes without a claim are not attributed to a release",
			[]change{{11, watch.Modified, pod("a", false, false)}, {12, watch.Modified, pod("b", false, false)}}, 0, 0},
		"one": {"a pod that is being deleted does not serve, ready or not",
			[]change{claimed, {11, watch.Modified, pod("a", true, true)}}, 1, 11},
		"two": {"both are unavailable at once",
			[]change{claimed, {11, watch.Modified, pod("a", true, true)}, {13, watch.Modified, pod("b", false, false)}},
			2, 13},
		"one by one": {"the second is deleted after its replacement is ready",
			[]change{claimed, {11, watch.Modified, pod("a", true, true)}, {12, watch.Added, pod("c", true, false)},
				{13, watch.Modified, pod("b", true, true)}}, 1, 11},
		"out of arrival": {"changes are sorted by version, not by arrival",
			[]change{claimed, {13, watch.Modified, pod("b", true, true)}, {11, watch.Modified, pod("a", true, true)},
				{12, watch.Added, pod("c", true, false)}}, 1, 11},
		"fewer asked": {"a pod beyond the desired size is not unavailable",
			[]change{{10, watch.Modified, deployment(1, 2, "w@r")}, {11, watch.Deleted, pod("a", true, true)}}, 0, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tl, err := newTimeline(before, tc.changes)
			require.NoError(t, err)
			most, at := tl.MostUnavailable(order)
			require.Equal(t, tc.most, most, "%s\n%s", tc.reason, tl)
			require.Equal(t, tc.version, at.Version, tc.reason)
		})
	}
}

func TestTimeline_RecordsCreatedPodsAndGenerations(t *testing.T) {
	t.Parallel()
	tl, err := newTimeline([]runtime.Object{deployment(1, 1, ""), pod("a", true, false)}, []change{
		{10, watch.Modified, deployment(1, 2, "w@r")}, {11, watch.Added, pod("b", false, false)},
		{12, watch.Modified, pod("b", true, false)}, {13, watch.Modified, deployment(1, 2, "")},
	})
	require.NoError(t, err)
	require.Len(t, tl.Created[order], 1, "only pods created during the observation count, each once")
	require.Equal(t, "b", tl.Created[order][0].Name)
	require.Equal(t, []int64{1, 2}, tl.Generations(order))
	require.Equal(t, []Name{order}, tl.Claimed())
}

func TestTimeline_OmitsPodsDeletedByNode(t *testing.T) {
	t.Parallel()
	with := func(p *corev1.Pod, grace int64) *corev1.Pod {
		p.Spec.TerminationGracePeriodSeconds = &grace
		return p
	}
	marked := func(grace int64) *corev1.Pod {
		p := with(pod("b", false, true), 1)
		p.DeletionGracePeriodSeconds = &grace
		return p
	}
	cases := map[string]struct {
		reason  string
		changes []change
		made    int
	}{
		"deleted by node": {"a pod with a grace period that disappears without a request was deleted by the node",
			[]change{{11, watch.Added, with(pod("b", false, false), 1)},
				{12, watch.Deleted, with(pod("b", false, false), 1)}}, 0},
		"graceful deletion": {"a pod with a graceful deletion request was deleted by a client",
			[]change{{11, watch.Added, with(pod("b", false, false), 1)}, {12, watch.Modified, marked(1)},
				{13, watch.Modified, marked(0)}, {14, watch.Deleted, marked(0)}}, 1},
		"marked with grace 0": {"the API server marks what the node deletes, without a grace period",
			[]change{{11, watch.Added, with(pod("b", false, false), 1)}, {12, watch.Modified, marked(0)},
				{13, watch.Deleted, marked(0)}}, 0},
		"without grace": {"a pod without a grace period is deleted at once by any client",
			[]change{{11, watch.Added, with(pod("b", false, false), 0)},
				{12, watch.Deleted, with(pod("b", false, false), 0)}}, 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tl, err := newTimeline([]runtime.Object{deployment(1, 1, "")}, tc.changes)
			require.NoError(t, err)
			require.Len(t, tl.Created[order], tc.made, tc.reason)
		})
	}
}
