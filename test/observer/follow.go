package observer

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/release/rollout/strategy"
)

// RolloutWatch observes one rollout, from before it is started.
type RolloutWatch struct {
	*Observer
	asked  Rollout
	client kubernetes.Interface
	ns     string
	before snapshot
	limits Limits
	stable string
	marks  []mark
	taken  int32
	kills  []time.Time
}

// FollowRollout begins to observe a namespace in which a rollout is about to be started. The workload is whole and of one revision;
// what is there now is what has to be there again at the end.
func FollowRollout(t *testing.T, config *rest.Config, namespace string, asked Rollout) *RolloutWatch {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	w := &RolloutWatch{Observer: start(t, feedsOfRollouts(t, config, namespace)), asked: asked, client: client, ns: namespace}
	replay(w.first, nil, func(_ uint64, _ string, now world) {
		obj := now.workload(asked.Workload)
		require.NotNil(t, obj, "%s is not there", asked.Workload)
		w.before, w.limits = now.snapshot(), limitsOf(obj)
		revisions := now.revisions(asked.Workload)
		require.Len(t, revisions, 1, "%s is not whole before its rollout: %v", asked.Workload, revisions)
		w.stable = revisions[0]
		require.Equal(t, sizeOf(obj), now.count(asked.Workload, w.stable).StableReady, "%s is not whole before its rollout", asked.Workload)
	})
	return w
}

// Stable is the revision that served when the observer began.
func (w *RolloutWatch) Stable() string { return w.stable }

// Resting says that the rollout rests at a step: from this moment on the pods and the traffic are exactly what the step asks.
func (w *RolloutWatch) Resting(t *testing.T, step int) {
	t.Helper()
	w.mark(t, mark{reach: w.asked.reach(step), resting: step})
	w.RequirePromises(t)
}

// GoTo says, before a verb is sent, that the rollout may now go as far as it comes by itself from a step on.
func (w *RolloutWatch) GoTo(t *testing.T, step int) {
	t.Helper()
	w.mark(t, mark{reach: w.asked.reach(step)})
}

// Finishing says, before a verb is sent, that the rollout may now bring all pods to the new version.
func (w *RolloutWatch) Finishing(t *testing.T) {
	t.Helper()
	w.mark(t, mark{reach: len(w.asked.Steps) + 1})
}

// Leaving says, before a verb is sent or the workload is touched, that the rollout rests no longer and goes no further.
func (w *RolloutWatch) Leaving(t *testing.T) {
	t.Helper()
	m := mark{reach: w.asked.reach(1)}
	if n := len(w.marks); n > 0 {
		m = w.marks[n-1]
	}
	m.resting = 0
	w.mark(t, m)
}

// mark keeps what the test knows from the present version of the cluster on.
func (w *RolloutWatch) mark(t *testing.T, m mark) {
	t.Helper()
	list, err := w.client.CoreV1().Services(w.ns).List(context.Background(), metav1.ListOptions{Limit: 1})
	require.NoError(t, err)
	m.version, err = strconv.ParseUint(list.ResourceVersion, 10, 64)
	require.NoError(t, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	m.taken = w.taken
	w.marks = append(w.marks, m)
}

// RequirePromises fails the test when a promise was broken at any moment until now.
func (w *RolloutWatch) RequirePromises(t *testing.T) {
	t.Helper()
	w.catchUp(t)
	w.mu.Lock()
	defer w.mu.Unlock()
	j := newJudge(w.asked, w.limits, w.stable, w.marks)
	j.kills = w.kills
	j.judge(w.first, w.changes, w.times)
	require.Empty(t, j.broken, "the first promise that was broken: %s\n%s", first(j.broken), strings.Join(j.drawn, "\n"))
}

func first(broken []Broken) string {
	if len(broken) == 0 {
		return ""
	}
	return broken[0].String()
}

// now is the world as it is when every change has arrived.
func (w *RolloutWatch) now(t *testing.T) world {
	t.Helper()
	w.catchUp(t)
	w.mu.Lock()
	defer w.mu.Unlock()
	var last world
	replay(w.first, w.changes, func(_ uint64, _ string, now world) { last = now })
	return last
}

// Count is how many pods of the workload there are now, and of its extra workload, whose pods count as new.
func (w *RolloutWatch) Count(t *testing.T) Count {
	t.Helper()
	now := w.now(t)
	c, extra := now.count(w.asked.Workload, w.stable), now.count(w.asked.extra(), "")
	c.New, c.NewReady = c.New+extra.New, c.NewReady+extra.NewReady
	return c
}

// Requests says which shares of requests like any other to the first routing's Service arrive at the new version now, and meet nobody, in percent.
func (w *RolloutWatch) Requests(t *testing.T) (toNew, nowhere float64) {
	t.Helper()
	now, err := newScene().split(w.now(t), w.stable, w.asked.Routings[0], strategy.Match{})
	require.NoError(t, err)
	return now.New, now.Nowhere
}

// Made is how many pods of the workload itself were made since the observer began.
func (w *RolloutWatch) Made(t *testing.T) int {
	t.Helper()
	return len(w.Timeline(t).Made[w.asked.Workload])
}

// WaitCount returns when the pods are so many.
func (w *RolloutWatch) WaitCount(t *testing.T, want Count) {
	t.Helper()
	until := time.Now().Add(time.Minute)
	for {
		last := w.Count(t)
		if last == want {
			return
		}
		require.True(t, time.Now().Before(until), "%s never had %+v, but %+v", w.asked.Workload, want, last)
		time.Sleep(150 * time.Millisecond) // until the next look
	}
}

// revisions are those of a workload's pods that are not on their way out, sorted.
func (w world) revisions(name Name) []string {
	var found []string
	for _, pod := range w.podsOf(name) {
		if r := revisionOf(pod, name); pod.DeletionTimestamp == nil && !slices.Contains(found, r) {
			found = append(found, r)
		}
	}
	slices.Sort(found)
	return found
}

// SomebodyElse says that somebody else is about to change the workload, or what routes to it. What its own limits promise still holds, and no request meets nobody for
// longer than it takes a worker to notice (shelterWithin); how many pods are of which version is theirs. It holds until the rollout rests again.
func (w *RolloutWatch) SomebodyElse(t *testing.T) {
	t.Helper()
	w.mark(t, mark{reach: len(w.asked.Steps) + 1, foreign: true})
}

// Neighbour is SomebodyElse for one who goes on changing things: an engine that is alive sees a change within a second, so that a pinned Service may have served
// nobody for as long when its pods have gone, and a few on two cores that a dozen tests share. A real Deployment takes minutes where the stack's takes milliseconds.
func (w *RolloutWatch) Neighbour(t *testing.T) {
	t.Helper()
	w.mark(t, mark{reach: len(w.asked.Steps) + 1, foreign: true, grace: 4 * time.Second})
}

// PodTaken says that somebody else is about to delete a pod: it is theirs that there is one less, until the rollout is over.
func (w *RolloutWatch) PodTaken(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	w.taken++
	w.mu.Unlock()
	w.Neighbour(t)
}

// WorkerKilled says that the worker is about to be killed.
func (w *RolloutWatch) WorkerKilled() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kills = append(w.kills, time.Now())
}

// Sheltered says that the rollout has seen what somebody else has done: its Services serve now.
func (w *RolloutWatch) Sheltered(t *testing.T) {
	t.Helper()
	now := w.now(t)
	for _, routing := range w.asked.Routings {
		require.True(t, now.serves(routing.Service), "Service %s serves nobody", routing.Service)
	}
	w.mark(t, mark{reach: len(w.asked.Steps) + 1, foreign: true})
}

// WaitStill returns when nothing has changed in the namespace for two seconds: as long as the native controllers and the stack's nodes need to react, and more.
func (w *RolloutWatch) WaitStill(t *testing.T) {
	t.Helper()
	seen, since := -1, time.Now()
	require.Eventually(t, func() bool {
		w.mu.Lock()
		n := len(w.changes)
		w.mu.Unlock()
		if n != seen {
			seen, since = n, time.Now()
		}
		return time.Since(since) > 2*time.Second
	}, time.Minute, 50*time.Millisecond, "the namespace does not come to rest")
}
