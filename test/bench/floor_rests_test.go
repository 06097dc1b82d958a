package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/test/harness"
)

// restedProbe is the name of the rollout that is watched: it stands in what was written, and is replaced there.
const restedProbe = "restedprobe"

// The floor of TestSoakRolloutsThatRest: what of a rollout whose steps rest is left when nothing is decided, checked or told.
//
//   - «plain» is the update that everything is compared with.
//   - «pod by pod» is a plain update of Deployments that bring one pod after the other, without a rest.
//   - «writes» is a loop that writes to each Deployment what a rollout that rests was seen to write, as soon as the Deployment has come as far as that one had, and
//     rests where that one rested; its record and its events, too. It reads nothing, and waits by one watch.
//   - «checked» is the body of that loop as the only activity of a workflow, with the promises of TestSoakRolloutsFloor's; what pods move by is read before they do.
//   - «rollouts» are Slipway's.
func TestSoakRestsFloor(t *testing.T) {
	harness.Soak(t)
	s := setting{n: 100, pods: rolloutPods, rest: time.Second}
	e := harness.Start(t, harness.Options{Apart: true})
	seen, written := seenOf(t, e), writtenOf(t, e, s.rest)
	fmt.Printf("\nthe floor of %d rollouts of %d steps that rest %s, of Deployments of %d pods, all at once; %d writes to each of those\n", s.n, rolloutSteps, s.rest, s.pods, len(written))
	patch := func(context.Context) { each(s.n, func(i int) { setImage(t, e, deploymentName(i), ":v2") }) }
	replayed := func(ctx context.Context) *replay { return newReplay(ctx, t, unwatched(t, e, seen), written, s.rest) }
	measureWays(t, e, s, append([]way{
		{name: "plain", do: patch},
		{name: "pod by pod", do: patch, shaped: podByPod},
		{name: "writes", do: func(ctx context.Context) { replayed(ctx).all(t, s.n) }},
	}, inTurns(
		way{name: "checked", do: func(ctx context.Context) { replayed(ctx).promising(ctx, t).checking().workflows(t, e, s.n) }},
		way{name: "rollouts", do: func(context.Context) { each(s.n, func(i int) { startRollout(t, e, deploymentName(i), ":v2", s.rest) }) }},
	)...))
	harness.Covered(t, s.n, "rollouts that rest, and their floor")
}

// writtenOnce is one write to a Deployment: the JSON Merge Patch that makes it, and how many pods are of the new version before it. It ends a rest, or holds the
// pods of a step as they are.
type writtenOnce struct {
	patch         []byte
	updated       int64
	rested, holds bool
}

// writtenOf has one rollout go, and tells what it has written to its Deployment.
func writtenOf(t *testing.T, e *harness.Engine, rest time.Duration) (all []writtenOnce) {
	e.Deployment(restedProbe, rolloutPods, markCompared)
	watched, err := e.Kube.AppsV1().Deployments(e.Apps).Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	defer watched.Stop()
	var before *appsv1.Deployment
	for event := range watched.ResultChan() {
		d, is := event.Object.(*appsv1.Deployment)
		if !is {
			continue
		}
		switch {
		case before == nil:
			startRollout(t, e, restedProbe, ":v2", rest)
		case string(writable(t, d)) != string(writable(t, before)):
			patch, err := jsonmergepatch.CreateThreeWayJSONMergePatch(writable(t, before), writable(t, d), writable(t, before))
			require.NoError(t, err)
			updated := int64(before.Status.UpdatedReplicas)
			if last := len(all) - 1; last >= 0 && all[last].holds { // it holds the pods that this one has found
				all[last].updated = updated
			}
			all = append(all, writtenOnce{patch: patch, updated: updated, rested: before.Spec.Paused && !d.Spec.Paused, holds: !before.Spec.Paused && d.Spec.Paused})
		}
		if before = d; len(all) > 0 && released(d, ":v2") {
			break
		}
	}
	e.WaitPhase(restedProbe, rollout.PhaseHealthy)
	clearAway(t, e, e.Apps)
	return all
}

// writable is what a release writes of a Deployment, as JSON.
func writable(t *testing.T, d *appsv1.Deployment) []byte {
	annotations := annotationsOf(d)
	if annotations == nil {
		annotations = map[string]string{}
	}
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": d.Labels, "annotations": annotations}, "spec": d.Spec})
	require.NoError(t, err)
	return raw
}

// replay writes to each Deployment what was written to one.
type replay struct {
	*floor
	written []writtenOnce
	rest    time.Duration

	mu   sync.Mutex
	now  map[string]*unstructured.Unstructured
	told map[string]chan struct{}
}

// newReplay begins to watch the Deployments, until its context ends.
func newReplay(ctx context.Context, t *testing.T, f *floor, written []writtenOnce, rest time.Duration) *replay {
	r := &replay{floor: f, written: written, rest: rest, now: map[string]*unstructured.Unstructured{}, told: map[string]chan struct{}{}}
	f.body = r.steps
	f.follow(ctx, t, deploymentsResource, f.apps, r.keep)
	return r
}

func (r *replay) keep(d *unstructured.Unstructured) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now[d.GetName()] = d
	if told := r.told[d.GetName()]; told != nil {
		close(told)
		delete(r.told, d.GetName())
	}
}

// all releases n at once.
func (r *replay) all(t *testing.T, n int) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if err := r.one(t.Context(), deploymentName(i)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func (r *replay) one(ctx context.Context, name string) error {
	if err := r.record(ctx, name); err != nil {
		return err
	}
	if err := r.steps(ctx, name); err != nil {
		return err
	}
	return r.complete(ctx, name)
}

// steps writes to one Deployment what was written to that one, and its events.
func (r *replay) steps(ctx context.Context, name string) error {
	if err := r.tell(ctx, name); err != nil {
		return err
	}
	generation := int64(1)
	for i, w := range r.written {
		if err := r.reaches(ctx, name, generation, w); err != nil {
			return err
		}
		if w.rested {
			select {
			case <-time.After(r.rest):
			case <-ctx.Done():
				return ctx.Err()
			}
			if r.promises {
				if err := r.read(ctx, name); err != nil {
					return err
				}
			}
		}
		patch := []byte(strings.ReplaceAll(string(w.patch), restedProbe, name))
		d, err := r.objects.Resource(deploymentsResource).Namespace(r.apps).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			return fmt.Errorf("write %d of %d to %s: %w", i+1, len(r.written), name, err)
		}
		generation = d.GetGeneration()
	}
	return r.tell(ctx, name)
}

// reaches waits until a Deployment has come as far as the one had that was watched, before a write: its controller knows of the last one, which is of generation, as
// many pods are of the new version, and behind a rest all serve.
func (r *replay) reaches(ctx context.Context, name string, generation int64, w writtenOnce) error {
	for {
		r.mu.Lock()
		d := r.now[name]
		if r.told[name] == nil {
			r.told[name] = make(chan struct{})
		}
		told := r.told[name]
		r.mu.Unlock()
		if d != nil {
			number := func(field string) int64 { n, _, _ := unstructured.NestedInt64(d.Object, "status", field); return n }
			knows := d.GetGeneration() >= generation && number("observedGeneration") >= d.GetGeneration()
			if knows && number("updatedReplicas") >= w.updated && (!w.rested || number("readyReplicas") == rolloutPods) {
				return nil
			}
		}
		select {
		case <-told:
		case <-ctx.Done():
			return fmt.Errorf("%s has not come as far as %d pods of the new version: %w", name, w.updated, ctx.Err())
		}
	}
}
