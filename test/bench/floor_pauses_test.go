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

// pausedProbe is the name of the observed rollout. It occurs in the recorded writes and is replaced there.
const pausedProbe = "restedprobe"

// TestSoakPausesFloor measures the floor of TestSoakRolloutsWithPauses: what remains of a rollout with timed pauses
// when nothing is decided, checked or reported.
//
//   - «plain» is the update that all others are compared with.
//   - «pod by pod» is a plain update of Deployments that replace one pod after the other, without a pause.
//   - «writes» is a loop that writes to each Deployment what an observed rollout wrote, as soon as the Deployment has
//     made the same progress, and pauses where that rollout paused; also its record and its events. It reads nothing,
//     and waits through one watch.
//   - «checked» is the body of that loop as the only activity of a workflow, with the promises of
//     TestSoakRolloutsFloor. It reads what a move depends on first.
//   - «rollouts» are Slipway's.
func TestSoakPausesFloor(t *testing.T) {
	harness.Soak(t)
	s := setting{n: 100, pods: rolloutPods, pause: time.Second}
	e := harness.Start(t, harness.Options{SeparateWorker: true})
	seen, written := observeRollout(t, e), observeWrites(t, e, s.pause)
	fmt.Printf("\nthe floor of %d rollouts of %d steps with pauses of %s, of Deployments of %d pods, all at once; %d "+
		"writes to each of those\n", s.n, rolloutSteps, s.pause, s.pods, len(written))
	patch := func(context.Context) { each(s.n, func(i int) { setImage(t, e, deploymentName(i), ":v2") }) }
	replayed := func(ctx context.Context) *replay {
		return newReplay(ctx, t, newUnwatchedFloor(t, e, seen), written, s.pause)
	}
	measureWays(t, e, s, append([]way{
		{name: "plain", do: patch},
		{name: "pod by pod", do: patch, change: podByPod},
		{name: "writes", do: func(ctx context.Context) { replayed(ctx).releaseAll(t, s.n) }},
	}, alternate(
		way{name: "checked", do: func(ctx context.Context) {
			replayed(ctx).withPromises(ctx, t).withChecks().workflows(t, e, s.n)
		}},
		way{name: "rollouts", do: func(context.Context) {
			each(s.n, func(i int) { startRollout(t, e, deploymentName(i), ":v2", s.pause) })
		}},
	)...))
	harness.Covered(t, s.n, "rollouts with pauses, and their floor")
}

// probeWrite is one observed write to a Deployment: its JSON Merge Patch and the number of pods of the new version
// before it. endsPause and holdsPods are true for a write that ends a pause, or that holds the pods of a step.
type probeWrite struct {
	patch                []byte
	updated              int64
	endsPause, holdsPods bool
}

// observeWrites runs one rollout and returns its writes to the Deployment.
func observeWrites(t *testing.T, e *harness.Engine, pause time.Duration) (all []probeWrite) {
	e.Deployment(pausedProbe, rolloutPods, markCompared)
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
			startRollout(t, e, pausedProbe, ":v2", pause)
		case string(writable(t, d)) != string(writable(t, before)):
			patch, err := jsonmergepatch.CreateThreeWayJSONMergePatch(writable(t, before), writable(t, d),
				writable(t, before))
			require.NoError(t, err)
			updated := int64(before.Status.UpdatedReplicas)
			if last := len(all) - 1; last >= 0 && all[last].holdsPods { // the pods that it held are those found now
				all[last].updated = updated
			}
			all = append(all, probeWrite{patch: patch, updated: updated, endsPause: before.Spec.Paused &&
				!d.Spec.Paused, holdsPods: !before.Spec.Paused && d.Spec.Paused})
		}
		if before = d; len(all) > 0 && released(d, ":v2") {
			break
		}
	}
	e.WaitPhase(pausedProbe, rollout.PhaseHealthy)
	deleteCompared(t, e, e.Apps)
	return all
}

// writable returns the fields of a Deployment that a release writes, as JSON.
func writable(t *testing.T, d *appsv1.Deployment) []byte {
	annotations := annotationsOf(d)
	if annotations == nil {
		annotations = map[string]string{}
	}
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": d.Labels, "annotations": annotations},
		"spec": d.Spec})
	require.NoError(t, err)
	return raw
}

// replay repeats the recorded writes on other Deployments.
type replay struct {
	*floor
	written []probeWrite
	pause   time.Duration

	mu      sync.Mutex
	current map[string]*unstructured.Unstructured
	changed map[string]chan struct{}
}

// newReplay returns a replay that watches the Deployments until the context ends.
func newReplay(ctx context.Context, t *testing.T, f *floor, written []probeWrite, pause time.Duration) *replay {
	r := &replay{floor: f, written: written, pause: pause, current: map[string]*unstructured.Unstructured{},
		changed: map[string]chan struct{}{}}
	f.body = r.steps
	f.watchObjects(ctx, t, deploymentsResource, f.apps, r.update)
	return r
}

func (r *replay) update(d *unstructured.Unstructured) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current[d.GetName()] = d
	if changed := r.changed[d.GetName()]; changed != nil {
		close(changed)
		delete(r.changed, d.GetName())
	}
}

// releaseAll releases n Deployments at once.
func (r *replay) releaseAll(t *testing.T, n int) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if err := r.releaseOne(t.Context(), deploymentName(i)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func (r *replay) releaseOne(ctx context.Context, name string) error {
	if err := r.record(ctx, name); err != nil {
		return err
	}
	if err := r.steps(ctx, name); err != nil {
		return err
	}
	return r.complete(ctx, name)
}

// steps writes the recorded writes to one Deployment, and its events.
func (r *replay) steps(ctx context.Context, name string) error {
	if err := r.recordEvent(ctx, name); err != nil {
		return err
	}
	generation := int64(1)
	for i, w := range r.written {
		if err := r.awaitProgress(ctx, name, generation, w); err != nil {
			return err
		}
		if w.endsPause {
			select {
			case <-time.After(r.pause):
			case <-ctx.Done():
				return ctx.Err()
			}
			if r.promises {
				if err := r.read(ctx, name); err != nil {
					return err
				}
			}
		}
		patch := []byte(strings.ReplaceAll(string(w.patch), pausedProbe, name))
		d, err := r.objects.Resource(deploymentsResource).Namespace(r.apps).Patch(ctx, name, types.MergePatchType,
			patch, metav1.PatchOptions{})
		if err != nil {
			return fmt.Errorf("write %d of %d to %s: %w", i+1, len(r.written), name, err)
		}
		generation = d.GetGeneration()
	}
	return r.recordEvent(ctx, name)
}

// awaitProgress waits before a write until a Deployment has made the same progress as the observed one: its controller
// has observed the last write, which has this generation; as many pods are of the new version; and after a pause all
// pods are ready.
func (r *replay) awaitProgress(ctx context.Context, name string, generation int64, w probeWrite) error {
	for {
		r.mu.Lock()
		d := r.current[name]
		if r.changed[name] == nil {
			r.changed[name] = make(chan struct{})
		}
		changed := r.changed[name]
		r.mu.Unlock()
		if d != nil {
			number := func(field string) int64 {
				n, _, _ := unstructured.NestedInt64(d.Object, "status", field)
				return n
			}
			observed := d.GetGeneration() >= generation && number("observedGeneration") >= d.GetGeneration()
			if observed && number("updatedReplicas") >= w.updated &&
				(!w.endsPause || number("readyReplicas") == rolloutPods) {
				return nil
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%s has not reached %d pods of the new version: %w", name, w.updated, ctx.Err())
		}
	}
}
