package kruise

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// clones returns pods described by letters: o old, n updated, a capital letter for a pod that is not available, and a
// dash after it if it is not even ready.
func clones(text string) []clonePod {
	var out []clonePod
	for i, r := range text {
		if r == '-' {
			out[len(out)-1].ready = false
			continue
		}
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p%02d", i),
			CreationTimestamp: metav1.NewTime(time.Unix(int64(i), 0))}}
		out = append(out, clonePod{pod: p, updated: r == 'n' || r == 'N', ready: true, serving: r == 'n' || r == 'o'})
	}
	return out
}

func TestCloneDiff_CreatesAndRemovesPods(t *testing.T) {
	for _, test := range []struct {
		reason             string
		settings           cloneSettings
		pods               string
		create, old, leave int
	}{
		{"missing pods are created", cloneSettings{4, 0, 1, 0}, "nn", 2, 0, 0},
		{"missing pods below the partition are old ones", cloneSettings{4, 3, 1, 0}, "on", 2, 2, 0},
		{"one at a time within maxUnavailable", cloneSettings{4, 0, 1, 0}, "oooo", 0, 0, 1},
		{"no pod is removed while one is unavailable", cloneSettings{4, 0, 1, 0}, "oooN-", 0, 0, 0},
		{"the surge is created before old pods are removed", cloneSettings{4, 0, 0, 2}, "oooo", 2, 0, 0},
		{"an available surge allows the removal of old pods", cloneSettings{4, 0, 0, 2}, "oooonn", 0, 0, 2},
		{"the surge is at most the number of pods above the partition", cloneSettings{4, 3, 0, 4}, "oooo", 1, 0, 0},
		{"old pods stay while no new pod is available", cloneSettings{4, 0, 0, 4}, "OOOONNNN", 0, 0, 0},
		{"of too many pods old ones are removed first", cloneSettings{2, 0, 1, 0}, "oonn", 0, 0, 2},
		{"a pod that is not ready is removed although maxUnavailable is exhausted", cloneSettings{2, 0, 0, 0}, "N-nN-",
			0, 0, 1},
		{"the partition is reached", cloneSettings{4, 2, 1, 0}, "oonn", 0, 0, 0},
	} {
		d := diffClone(test.settings, clones(test.pods), false)
		require.Equal(t, []int{test.create, test.old, test.leave}, []int{d.create, d.createOld, len(d.remove)},
			test.reason)
	}
}

func TestOutdatedDaemons_AreReplacedWithinLimit(t *testing.T) {
	node := func(i int, hash string) nodePods {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: hash + fmt.Sprint(i),
			Labels: map[string]string{"controller-revision-hash": hash}}}
		return nodePods{node: fmt.Sprint(i), pods: []*corev1.Pod{p}}
	}
	nodes := []nodePods{node(1, "old"), node(2, "old"), node(3, "old"), node(4, "new")}
	all := func(*corev1.Pod) bool { return true }
	names := func(pods []*corev1.Pod) []string {
		out := []string{}
		for _, p := range pods {
			out = append(out, p.Name)
		}
		return out
	}
	require.Equal(t, []string{}, names(outdated(nodes, "new", 3, 4, all)),
		"three nodes keep their pods, and one is updated already")
	require.Equal(t, []string{"old3"}, names(outdated(nodes, "new", 2, 4, all)), "the last node is first")
	require.Equal(t, []string{"old3"}, names(outdated(nodes, "new", 0, 1, all)), "one at a time")
	allButOld1 := func(p *corev1.Pod) bool { return p.Name != "old1" }
	require.Equal(t, []string{"old1", "old3"}, names(outdated(nodes, "new", 0, 1, allButOld1)),
		"an unavailable pod is replaced first and does not count against the limit")
	require.Equal(t, []string{}, names(outdated(nodes, "new", 4, 4, all)), "a partition of all nodes keeps all pods")
}
