package store

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// pageSize is how many objects are asked for at once where all of them are wanted.
const pageSize = 500

// lister is what a typed client and the lists of this package have in common.
type lister[L runtime.Object] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
}

// listPage reads one page in order of name. A cursor that the API server has forgotten (it remembers them for some minutes) goes on
// from the same name in the present state of things.
func listPage[L runtime.Object](ctx context.Context, from lister[L], limit int, cursor string) (L, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	list, err := from.List(ctx, metav1.ListOptions{Limit: int64(limit), Continue: cursor})
	if fresh := freshCursor(err); fresh != "" {
		list, err = from.List(ctx, metav1.ListOptions{Limit: int64(limit), Continue: fresh})
	}
	return list, err
}

// freshCursor is the cursor that the API server offers in place of one that it has forgotten; "" when it offers none.
func freshCursor(err error) string {
	var status apierrors.APIStatus
	if apierrors.IsResourceExpired(err) && errors.As(err, &status) {
		return status.Status().Continue
	}
	return ""
}
