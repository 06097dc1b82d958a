package kube

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// reads are the objects that a check has read.
type reads struct {
	mu      sync.Mutex
	objects map[Ref]read
}

type read struct {
	object *unstructured.Unstructured
	err    error
}

type readsKey struct{}

// Once has each object be read once within a context. It is for a check, which writes nothing: its parts look at the same objects, and are to judge by one
// state of them.
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
