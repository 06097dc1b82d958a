package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/tools/pager"

	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/fieldmanager"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/v1alpha1"
)

// object is a pointer to E, an object of the home cluster.
type object[E any] interface {
	*E
	runtime.Object
	metav1.Object
	DeepCopyInto(to *E)
}

// list is a list of objects as returned by the API server.
type list[E any, T object[E]] struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []E `json:"items"`
}

// DeepCopyObject makes the list a runtime.Object.
func (l *list[E, T]) DeepCopyObject() runtime.Object {
	meta := l.ListMeta
	copied := &list[E, T]{TypeMeta: l.TypeMeta, ListMeta: *meta.DeepCopy(), Items: make([]E, len(l.Items))}
	for i := range l.Items {
		T(&l.Items[i]).DeepCopyInto(&copied.Items[i])
	}
	return copied
}

// kind reads and writes objects of one kind; T is a pointer to one of them.
type kind[E any, T object[E]] struct {
	*gentype.ClientWithList[T, *list[E, T]]
	// name is the kind; noun and plural name one and several objects of it in errors.
	name, noun, plural string
}

// newKind returns the client of a kind, which the API server serves as that resource.
func newKind[E any, T object[E]](g group, resource, name, noun, plural string) kind[E, T] {
	g.scheme.AddKnownTypeWithName(g.WithKind(name), T(new(E)))
	g.scheme.AddKnownTypeWithName(g.WithKind(name+"List"), &list[E, T]{})
	return kind[E, T]{name: name, noun: noun, plural: plural,
		ClientWithList: gentype.NewClientWithList(resource, g.Interface,
			g.ParameterCodec, g.namespace, func() T { return new(E) }, func() *list[E, T] { return &list[E, T]{} })}
}

func (k kind[E, T]) objectName(id string) string { return k.noun + " " + id }

// check returns an error if objects of the kind cannot be read.
func (k kind[E, T]) check(ctx context.Context) error {
	_, err := k.List(ctx, metav1.ListOptions{Limit: 1})
	return asFailure(err, "kind "+k.name)
}

// page reads one page in order of name; next is the cursor of the next page, "" on the last one.
func (k kind[E, T]) page(ctx context.Context, limit int, cursor string) (items []E, next string, err error) {
	list, err := listPage(ctx, k, metav1.ListOptions{Limit: int64(limit), Continue: cursor})
	if err != nil {
		return nil, "", asFailure(err, "the list of "+k.plural)
	}
	return list.Items, list.Continue, nil
}

// all reads all objects that a label selector matches ("": all), page by page, and passes each to take.
func (k kind[E, T]) all(ctx context.Context, selector string, take func(T)) error {
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return listPage(ctx, k, o)
	})
	pages.PageBufferSize = 0 // records are large
	err := pages.EachListItem(ctx, metav1.ListOptions{LabelSelector: selector}, func(o runtime.Object) error {
		take(o.(T))
		return nil
	})
	return asFailure(err, "the list of "+k.plural)
}

// get reads one object. It is not found if the object of that name has another ID.
func (k kind[E, T]) get(ctx context.Context, id string) (T, error) {
	found, err := k.Get(ctx, v1alpha1.ObjectName(id), metav1.GetOptions{})
	if err != nil {
		return nil, asFailure(err, k.objectName(id))
	}
	if v1alpha1.IDOf(found) != id {
		return nil, failure.New(failure.NotFound, "%s does not exist", k.objectName(id))
	}
	return found, nil
}

// create creates an object; an existing one of its name is a Conflict.
func (k kind[E, T]) create(ctx context.Context, object T) error {
	return write(ctx, k, object, k.Create, metav1.CreateOptions{})
}

// update replaces the object that was read; a change since is a Conflict.
func (k kind[E, T]) update(ctx context.Context, object T) error {
	return write(ctx, k, object, k.Update, metav1.UpdateOptions{})
}

// write makes a write of an object. Afterwards object holds the stored state.
func write[E any, T object[E], O any](ctx context.Context, k kind[E, T], object T,
	call func(context.Context, T, O) (T, error), options O) error {
	written, err := call(ctx, object, options)
	if err == nil {
		*object = *written
	}
	return asFailure(err, k.objectName(object.GetName()))
}

// patcher is a client that patches objects of one kind.
type patcher[T any] interface {
	Patch(ctx context.Context, name string, form types.PatchType, patch []byte, o metav1.PatchOptions,
		subresources ...string) (T, error)
}

// patch changes an object by a merge patch, or by a JSON Patch if change is a list of operations, and returns the
// stored object.
func patch[T any](ctx context.Context, client patcher[T], name string, change any, subresources ...string) (T, error) {
	form := types.MergePatchType
	if _, is := change.([]jsonpatch.Op); is {
		form = types.JSONPatchType
	}
	body, err := json.Marshal(change)
	if err != nil {
		var none T
		return none, err
	}
	return client.Patch(ctx, name, form, body, metav1.PatchOptions{FieldManager: fieldmanager.Slipway}, subresources...)
}

// delete deletes an object; if it does not meet the preconditions, it is a Conflict. nil: no preconditions.
func (k kind[E, T]) delete(ctx context.Context, id string, only *metav1.Preconditions) error {
	return asFailure(k.Delete(ctx, v1alpha1.ObjectName(id), metav1.DeleteOptions{Preconditions: only}),
		k.objectName(id))
}

// put creates or updates an object so that it has this spec, which specOf returns a pointer to. It reads, compares, and
// writes only a difference, with the read version as precondition. If nothing differs, changed is false.
func put[E any, T object[E], S any](ctx context.Context, k kind[E, T], id string, spec S,
	specOf func(T) *S) (created, changed bool, err error) {
	for range failure.MaxConflictAttempts {
		var stored T
		stored, err = k.Get(ctx, v1alpha1.ObjectName(id), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			fresh := newObject[E, T](id)
			*specOf(fresh) = spec
			if _, err = k.Create(ctx, fresh, metav1.CreateOptions{}); err == nil {
				return true, true, nil
			}
		case err != nil:
			return false, false, asFailure(err, k.objectName(id))
		case v1alpha1.IDOf(stored) != id:
			return false, false, failure.New(failure.Conflict,
				"%s cannot be stored: the object of its name belongs to %s; choose another name", k.objectName(id),
				v1alpha1.IDOf(stored))
		case sameJSON(*specOf(stored), spec):
			return false, false, nil
		default:
			*specOf(stored) = spec
			if _, err = k.Update(ctx, stored, metav1.UpdateOptions{}); err == nil {
				return false, true, nil
			}
		}
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) {
			break
		}
	}
	return false, false, asFailure(err, k.objectName(id))
}

// newObject returns an object to create. An ID that is not a valid name is kept in an annotation.
func newObject[E any, T object[E]](id string) T {
	var fresh T = new(E)
	fresh.SetName(v1alpha1.ObjectName(id))
	if fresh.GetName() != id {
		fresh.SetAnnotations(map[string]string{v1alpha1.AnnotationID: id})
	}
	return fresh
}

// sameJSON reports whether two values are the same document: the API server may return raw JSON inside them with
// another order of keys.
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

// listPage reads one page in order of name. A cursor that the API server has forgotten (after some minutes) continues
// from the same name in the current state.
func listPage[L runtime.Object](ctx context.Context, from interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
}, options metav1.ListOptions) (L, error) {
	list, err := from.List(ctx, options)
	var status apierrors.APIStatus
	if apierrors.IsResourceExpired(err) && errors.As(err, &status) && status.Status().Continue != "" {
		options.Continue = status.Status().Continue
		list, err = from.List(ctx, options)
	}
	return list, err
}

// asFailure turns the API server's error about one object ("plan shop") into a typed failure. An error that is not
// about the home cluster stays untyped.
func asFailure(err error, object string) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	if tooLarge(err) {
		return failure.New(failure.Refused, "%s is too large for the home cluster to store: split it up", object)
	}
	switch kube.Classify(err) {
	case kube.Missing:
		return failure.New(failure.NotFound, "%s does not exist", object)
	case kube.Changed:
		return failure.New(failure.Conflict, "another client has changed %s in the meantime: read it again and retry",
			object)
	case kube.Forbidden:
		return failure.New(failure.Forbidden, "%s: the home cluster does not permit it: %s", object, kube.Text(err))
	case kube.Rejected, kube.Refused:
		return failure.New(failure.Refused, "%s: the home cluster refuses it: %s", object, kube.Text(err))
	case kube.Unreachable:
		return failure.New(failure.Unreachable, "%s: the home cluster cannot do it now: %s", object, kube.Text(err))
	case kube.Internal:
	}
	return fmt.Errorf("%s: %w", object, err)
}

// AsFailure returns an error of the home cluster as a failure about an object.
func AsFailure(err error, object string) error { return asFailure(err, object) }

// tooLarge reports whether an error is about a size limit: the API server's on a request body, or etcd's on an object
// or a message, which are returned as internal errors.
func tooLarge(err error) bool {
	return apierrors.IsRequestEntityTooLargeError(err) || strings.Contains(err.Error(),
		"etcdserver: request is too large") || strings.Contains(err.Error(), "trying to send message larger than max")
}
