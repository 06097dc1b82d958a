package workload

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/workloadops"
)

// objects is where a look takes its objects from: from the server, or from what the watches have told.
type objects interface {
	// workload is the workload, or the one beside it, by its name.
	workload(ctx context.Context, name string) (*unstructured.Unstructured, error)
	// revisions are the revisions of one of them, oldest first.
	revisions(ctx context.Context, k kind, of *unstructured.Unstructured) ([]keptRevision, error)
}

// server asks the API server.
type server struct{ *job }

func (s server) workload(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	if name == s.job.workload.WorkloadRef.Name {
		return s.get(ctx)
	}
	return s.a.cluster.Get(ctx, s.ref(s.kind.resource, name))
}

func (s server) revisions(ctx context.Context, _ kind, of *unstructured.Unstructured) ([]keptRevision, error) {
	selector, err := selectorOf(of)
	if err != nil {
		return nil, err
	}
	return s.keptRevisions(ctx, of, selector)
}

// watches takes what the watches have told.
type watches struct{ *job }

// moment takes what was looked at a moment ago, before our own write to the workload.
type moment struct{ *job }

func (m moment) workload(_ context.Context, name string) (*unstructured.Unstructured, error) {
	if name != m.job.workload.WorkloadRef.Name {
		return nil, errNotTold
	}
	return m.last.known, nil
}

func (m moment) revisions(context.Context, kind, *unstructured.Unstructured) ([]keptRevision, error) {
	kept := m.last.revisions
	m.last.revisions = nil
	return kept, nil
}

// live is a look at the server, unless it has just been looked at.
func (t *rolloutJob) live(ctx context.Context) (*snapshot, error) {
	if t.last.revisions != nil && !t.outrun() {
		l, err := t.observe(ctx, moment{&t.job})
		t.last.revisions = nil
		if !errors.Is(err, errNotTold) {
			return l, err
		}
	}
	t.last.revisions = nil
	return t.observe(ctx, server{&t.job})
}

// errNotTold says that the watches have not told it, or cannot be relied on.
var errNotTold = errors.New("the watches have not told")

func (t watches) workload(_ context.Context, name string) (*unstructured.Unstructured, error) {
	known := t.last.known
	if name != t.job.workload.WorkloadRef.Name {
		known = nil
	}
	seen, left := t.a.notifier.followed.get(target{pods.Key(t.job.workload.WorkloadRef), t.job.workload.Namespace, name})
	if o, ok := newer(seen, known); ok && !left {
		return o, nil
	}
	return nil, errNotTold
}

func (t watches) revisions(_ context.Context, k kind, of *unstructured.Unstructured) ([]keptRevision, error) {
	if kept, live := t.a.notifier.revisions.of(k, of, t.Now()); live {
		return kept, nil
	}
	return nil, errNotTold
}

// asTold decides by what the watches have told, if that is to wait, to hold the workload, or that a step has passed behind which nothing is written by what it
// found. Whatever else they seem to ask for, the server is asked: a watch may lag behind, and no write that moves pods goes by one. So does the first look of
// an attempt, one that is to ask the pods, and one behind a write that was refused.
func (t *rolloutJob) asTold(ctx context.Context) (l *snapshot, d pods.NextAction, told bool) {
	now := t.Now()
	if t.last.known == nil || t.tech.ByPods() || !now.Before(t.nextLook) || !t.sub.live(now) {
		return nil, d, false
	}
	l, err := t.observe(ctx, watches{&t.job})
	if err != nil || t.scaled(l) || t.expects(l) && !t.foresees(l) {
		return nil, d, false
	}
	if err := t.expect(ctx, l); err != nil {
		return nil, d, false
	}
	t.take(l)
	d = t.decide(l.seen)
	switch d.Action {
	case workloadops.ActWait:
		return l, d, d.LookAgain == 0
	case workloadops.ActDone:
		return l, d, t.passing
	}
	return l, d, d.Holds && t.rejected == ""
}
