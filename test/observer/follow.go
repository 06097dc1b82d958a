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

// RolloutWatch observes one rollout, beginning before it is started.
type RolloutWatch struct {
	*Observer
	spec        Rollout
	client      kubernetes.Interface
	ns          string
	before      snapshot
	limits      Limits
	stable      string
	marks       []mark
	deletedPods int32
	kills       []time.Time
}

// FollowRollout begins to observe a namespace in which a rollout is about to start. The workload must be complete and
// have one revision. The present state is the one that RequireFinalised expects at the end.
func FollowRollout(t *testing.T, config *rest.Config, namespace string, asked Rollout) *RolloutWatch {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	w := &RolloutWatch{Observer: start(t, feedsOfRollouts(t, config, namespace)), spec: asked, client: client,
		ns: namespace}
	replay(w.first, nil, func(_ uint64, _ string, now world) {
		obj := now.workload(asked.Workload)
		require.NotNil(t, obj, "%s does not exist", asked.Workload)
		w.before, w.limits = now.snapshot(), limitsOf(obj)
		revisions := now.revisions(asked.Workload)
		require.Len(t, revisions, 1, "%s must have one revision before its rollout: %v", asked.Workload, revisions)
		w.stable = revisions[0]
		require.Equal(t, sizeOf(obj), now.count(asked.Workload, w.stable).StableReady,
			"%s must have all pods ready before its rollout", asked.Workload)
	})
	return w
}

// Stable returns the revision that served when the observer began.
func (w *RolloutWatch) Stable() string { return w.stable }

// MarkPaused declares that the rollout waits at a step: from now on the pods and the traffic must be exactly what the
// step asks for.
func (w *RolloutWatch) MarkPaused(t *testing.T, step int) {
	t.Helper()
	w.mark(t, mark{reach: w.spec.reach(step), pausedAt: step})
	w.RequirePromises(t)
}

// AllowStep declares, before a verb is sent, that the rollout may continue to a step and from there as far as it does
// without approval.
func (w *RolloutWatch) AllowStep(t *testing.T, step int) {
	t.Helper()
	w.mark(t, mark{reach: w.spec.reach(step)})
}

// AllowFinish declares, before a verb is sent, that the rollout may move all pods to the new version.
func (w *RolloutWatch) AllowFinish(t *testing.T) {
	t.Helper()
	w.mark(t, mark{reach: len(w.spec.Steps) + 1})
}

// MarkMoving declares, before a verb is sent or the workload is changed, that the rollout no longer waits, but does not
// go further either.
func (w *RolloutWatch) MarkMoving(t *testing.T) {
	t.Helper()
	m := mark{reach: w.spec.reach(1)}
	if n := len(w.marks); n > 0 {
		m = w.marks[n-1]
	}
	m.pausedAt = 0
	w.mark(t, m)
}

// mark adds a declaration of the test that holds from the present resourceVersion on.
func (w *RolloutWatch) mark(t *testing.T, m mark) {
	t.Helper()
	list, err := w.client.CoreV1().Services(w.ns).List(context.Background(), metav1.ListOptions{Limit: 1})
	require.NoError(t, err)
	m.version, err = strconv.ParseUint(list.ResourceVersion, 10, 64)
	require.NoError(t, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	m.deletedPods = w.deletedPods
	w.marks = append(w.marks, m)
}

// RequirePromises fails the test if a promise was broken at any moment until now.
func (w *RolloutWatch) RequirePromises(t *testing.T) {
	t.Helper()
	w.catchUp(t)
	w.mu.Lock()
	defer w.mu.Unlock()
	j := newJudge(w.spec, w.limits, w.stable, w.marks)
	j.kills = w.kills
	j.judge(w.first, w.changes, w.times)
	require.Empty(t, j.broken, "the first broken promise: %s\n%s", first(j.broken), strings.Join(j.trace, "\n"))
}

func first(broken []Breach) string {
	if len(broken) == 0 {
		return ""
	}
	return broken[0].String()
}

// now returns the present world, after every change has arrived.
func (w *RolloutWatch) now(t *testing.T) world {
	t.Helper()
	w.catchUp(t)
	w.mu.Lock()
	defer w.mu.Unlock()
	var last world
	replay(w.first, w.changes, func(_ uint64, _ string, now world) { last = now })
	return last
}

// Count returns the present number of pods of the workload and of its extra workload, whose pods count as new.
func (w *RolloutWatch) Count(t *testing.T) Count {
	t.Helper()
	now := w.now(t)
	c, extra := now.count(w.spec.Workload, w.stable), now.count(w.spec.extraWorkload(), "")
	c.New, c.NewReady = c.New+extra.New, c.NewReady+extra.NewReady
	return c
}

// TrafficShares returns the shares of ordinary requests to the first routing's Service that reach the new version and
// that reach no endpoint now, in percent.
func (w *RolloutWatch) TrafficShares(t *testing.T) (toNew, nowhere float64) {
	t.Helper()
	now, err := newTrafficEvaluator().split(w.now(t), w.stable, w.spec.Routings[0], strategy.Match{})
	require.NoError(t, err)
	return now.New, now.Unreachable
}

// PodsCreated returns the number of pods of the workload itself that were created since the observer began.
func (w *RolloutWatch) PodsCreated(t *testing.T) int {
	t.Helper()
	return len(w.Timeline(t).Created[w.spec.Workload])
}

// WaitCount returns when the pods have these numbers.
func (w *RolloutWatch) WaitCount(t *testing.T, want Count) {
	t.Helper()
	until := time.Now().Add(time.Minute)
	for {
		last := w.Count(t)
		if last == want {
			return
		}
		require.True(t, time.Now().Before(until), "%s never had %+v, but %+v", w.spec.Workload, want, last)
		time.Sleep(150 * time.Millisecond) // until the next check
	}
}

// revisions returns the sorted revisions of a workload's pods that are not being deleted.
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

// ForeignChange declares that another client is about to change the workload or its routes. The workload's own limits
// still hold, and requests may be without an endpoint only as long as a worker needs to react (protectWithin). The
// number of pods per version is not checked. This holds until MarkPaused.
func (w *RolloutWatch) ForeignChange(t *testing.T) {
	t.Helper()
	w.mark(t, mark{reach: len(w.spec.Steps) + 1, foreign: true})
}

// ForeignChanges is ForeignChange for a client that keeps changing things. A live engine sees a change within a second,
// so that a pinned Service may have had no endpoint for that long when its pods were deleted, and for a few seconds on
// two cores shared by a dozen tests. A real Deployment takes minutes where the stack's takes milliseconds.
func (w *RolloutWatch) ForeignChanges(t *testing.T) {
	t.Helper()
	w.mark(t, mark{reach: len(w.spec.Steps) + 1, foreign: true, grace: 4 * time.Second})
}

// ForeignPodDeletion declares that another client is about to delete a pod: one pod less may be ready until the rollout
// ends.
func (w *RolloutWatch) ForeignPodDeletion(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	w.deletedPods++
	w.mu.Unlock()
	w.ForeignChanges(t)
}

// WorkerKilled declares that the worker is about to be killed.
func (w *RolloutWatch) WorkerKilled() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kills = append(w.kills, time.Now())
}

// TrafficProtected requires that the Services serve again after another client's change, and ends the grace of
// ForeignChanges.
func (w *RolloutWatch) TrafficProtected(t *testing.T) {
	t.Helper()
	now := w.now(t)
	for _, routing := range w.spec.Routings {
		require.True(t, now.serves(routing.Service), "Service %s has no ready pod", routing.Service)
	}
	w.mark(t, mark{reach: len(w.spec.Steps) + 1, foreign: true})
}

// WaitSettled returns when nothing has changed in the namespace for two seconds, which is longer than the native
// controllers and the stack's nodes need to react.
func (w *RolloutWatch) WaitSettled(t *testing.T) {
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
	}, time.Minute, 50*time.Millisecond, "the namespace does not settle")
}
