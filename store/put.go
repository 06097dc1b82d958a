package store

import (
	"context"
	"encoding/json"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/v1alpha1"
)

// object is what put writes.
type object interface {
	runtime.Object
	metav1.Object
}

// putter is how one kind of object is created or replaced.
type putter[T object] struct {
	client interface {
		Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
		Create(ctx context.Context, obj T, opts metav1.CreateOptions) (T, error)
		Update(ctx context.Context, obj T, opts metav1.UpdateOptions) (T, error)
	}
	id    string
	empty func() T
	// equal says whether the stored object is already as asked, fill makes an object so.
	equal func(stored T) bool
	fill  func(object T)
}

// put brings one object to what is asked: read, compare, write only what differs, with the read version as precondition.
func put[T object](ctx context.Context, what string, p putter[T]) (created, changed bool, err error) {
	for range maxAttempts {
		var stored T
		stored, err = p.client.Get(ctx, v1alpha1.ObjectName(p.id), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			if _, err = p.client.Create(ctx, p.fresh(), metav1.CreateOptions{}); err == nil {
				return true, true, nil
			}
		case err != nil:
			return false, false, failed(err, what)
		case v1alpha1.IDOf(stored) != p.id:
			return false, false, failure.New(failure.Conflict,
				"%s cannot be kept: the object of its name belongs to %s; choose another name", what, v1alpha1.IDOf(stored))
		case p.equal(stored):
			return false, false, nil
		default:
			p.fill(stored)
			if _, err = p.client.Update(ctx, stored, metav1.UpdateOptions{}); err == nil {
				return false, true, nil
			}
		}
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) {
			break
		}
	}
	return false, false, failed(err, what)
}

// fresh is the object as it is created. An ID that cannot be a name is kept beside it.
func (p putter[T]) fresh() T {
	object := p.empty()
	object.SetName(v1alpha1.ObjectName(p.id))
	if object.GetName() != p.id {
		object.SetAnnotations(map[string]string{v1alpha1.AnnotationID: p.id})
	}
	p.fill(object)
	return object
}

// sameJSON says whether two values are the same document: raw JSON inside them may come back from the API server with its keys in another
// order.
func sameJSON(a, b any) bool {
	left, errLeft := generic(a)
	right, errRight := generic(b)
	return errLeft == nil && errRight == nil && reflect.DeepEqual(left, right)
}

func generic(value any) (any, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var plain any
	return plain, json.Unmarshal(text, &plain)
}
