package workload

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/workload"
)

// objectSource is where a round reads its objects: from the API server, or from the watch cache.
type objectSource interface {
	// workload is the workload, or its extra workload, by name.
	workload(ctx context.Context, name string) (*unstructured.Unstructured, error)
	// revisions are the revisions of one of them, oldest first.
	revisions(ctx context.Context, k kind, of *unstructured.Unstructured) ([]keptRevision, error)
}

// server reads from the API server.
type server struct{ *job }

func (s server) workload(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	if name == s.job.workload.WorkloadRef.Name {
		return s.get(ctx)
	}
	return s.a.cluster.Get(ctx, s.ref(s.kind.Resource, name))
}

func (s server) revisions(ctx context.Context, _ kind, of *unstructured.Unstructured) ([]keptRevision, error) {
	selector, err := selectorOf(of)
	if err != nil {
		return nil, err
	}
	return s.keptRevisions(ctx, of, selector)
}

// watchCache reads from the watch cache.
type watchCache struct{ *job }

// recentRead returns what was read just before our own write to the workload.
type recentRead struct{ *job }

func (m recentRead) workload(_ context.Context, name string) (*unstructured.Unstructured, error) {
	if name != m.job.workload.WorkloadRef.Name {
		return nil, errNotCached
	}
	return m.lastRead.known, nil
}

func (m recentRead) revisions(context.Context, kind, *unstructured.Unstructured) ([]keptRevision, error) {
	kept := m.lastRead.revisions
	m.lastRead.revisions = nil
	return kept, nil
}

// readLive reads from the API server, unless the workload has just been read.
func (t *rolloutJob) readLive(ctx context.Context) (*snapshot, error) {
	if t.lastRead.revisions != nil && !t.changedSinceRead() {
		l, err := t.observe(ctx, recentRead{&t.job})
		t.lastRead.revisions = nil
		if !errors.Is(err, errNotCached) {
			return l, err
		}
	}
	t.lastRead.revisions = nil
	return t.observe(ctx, server{&t.job})
}

// errNotCached means that the watches have not shown the object, or are unreliable.
var errNotCached = errors.New("not in the watch cache")

func (t watchCache) workload(_ context.Context, name string) (*unstructured.Unstructured, error) {
	known := t.lastRead.known
	if name != t.job.workload.WorkloadRef.Name {
		known = nil
	}
	seen, left := t.a.notifier.followed.get(target{t.job.workload.WorkloadRef.Lookup().Key(), t.job.workload.Namespace,
		name})
	if o, ok := newer(seen, known); ok && !left {
		return o, nil
	}
	return nil, errNotCached
}

func (t watchCache) revisions(_ context.Context, k kind, of *unstructured.Unstructured) ([]keptRevision, error) {
	if kept, live := t.a.notifier.revisions.of(k, of); live {
		return kept, nil
	}
	return nil, errNotCached
}

// decideFromCache decides from the watch cache if the result is to wait, to hold the workload, or to end a step after
// which the next action reads again. Every other decision reads from the API server, because a watch may lag, and no
// write that moves pods is based on one. The API server is also read in the first round of an attempt, when the pods
// are to be checked, and after a refused write.
func (t *rolloutJob) decideFromCache(ctx context.Context) (l *snapshot, d pods.NextAction, decided bool) {
	now := t.Now()
	if t.lastRead.known == nil || t.tech.CountsPods() || !now.Before(t.nextPodCheck) || !t.sub.live() {
		return nil, d, false
	}
	l, err := t.observe(ctx, watchCache{&t.job})
	if err != nil || t.usesAutoscalers(l) || t.needsDigest(l) && !t.digestForeseen(l) {
		return nil, d, false
	}
	if err := t.determineDigest(ctx, l); err != nil {
		return nil, d, false
	}
	t.addProgress(l)
	d = t.decide(l.seen)
	switch d.Action {
	case workload.ActWait:
		return l, d, d.RecheckAfter == 0
	case workload.ActDone:
		return l, d, t.endsOnCache
	}
	return l, d, d.RemovesNoPod && t.rejected == ""
}
