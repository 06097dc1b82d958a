package kube

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// reads are the objects that were read, or written, within a context.
type reads struct {
	mu      sync.Mutex
	objects map[Ref]read
}

type read struct {
	object *unstructured.Unstructured
	err    error
}

type readsKey struct{}

// WithReadCache returns a context in which each object is read at most once. It is for one round of decisions, whose
// parts have to see the same state. A write by this Cluster within the context is visible afterwards; a failed write
// makes the object be read again.
func WithReadCache(ctx context.Context) context.Context {
	return context.WithValue(ctx, readsKey{}, &reads{objects: map[Ref]read{}})
}

// readOnce reads an object, unless it was read in this context before. "Not found" is cached too, other errors are not.
// Each caller gets its own copy.
func readOnce(ctx context.Context, ref Ref, get func() (*unstructured.Unstructured, error)) (*unstructured.Unstructured,
	error) {
	r, is := ctx.Value(readsKey{}).(*reads)
	if !is {
		return get()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	known, was := r.objects[ref]
	if !was {
		known.object, known.err = get()
		if known.err == nil || apierrors.IsNotFound(known.err) {
			r.objects[ref] = known
		}
	}
	if known.err != nil {
		return nil, known.err
	}
	return known.object.DeepCopy(), nil
}

// recordWrite records the result of a write in this context. Each caller gets its own copy.
func recordWrite(ctx context.Context, ref Ref, after *unstructured.Unstructured, err error) (*unstructured.Unstructured,
	error) {
	r, is := ctx.Value(readsKey{}).(*reads)
	if !is {
		return after, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.objects, ref)
	if err == nil && after != nil {
		r.objects[ref] = read{object: after.DeepCopy()}
	}
	return after, err
}
