package kube

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// reads are the objects that a look has read, or left by a write.
type reads struct {
	mu      sync.Mutex
	objects map[Ref]read
}

type read struct {
	object *unstructured.Unstructured
	err    error
}

type readsKey struct{}

// Once has each object be read once within a context. It is for one look at the cluster: its parts look at the same objects, and are to judge by one state of
// them. A write that this Cluster makes within the context is seen by what comes after it; one that failed has its object read anew.
func Once(ctx context.Context) context.Context {
	return context.WithValue(ctx, readsKey{}, &reads{objects: map[Ref]read{}})
}

// once reads an object, unless it was read within this context before. That it is not there is remembered as well, any other error is not. Each caller has a
// copy of its own.
func once(ctx context.Context, ref Ref, get func() (*unstructured.Unstructured, error)) (*unstructured.Unstructured, error) {
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

// noted notes what a write within this context has come to. Each caller has a copy of its own.
func noted(ctx context.Context, ref Ref, after *unstructured.Unstructured, err error) (*unstructured.Unstructured, error) {
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
