package serving

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/csaupgrade"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

// versionOfNone is a resourceVersion that no object has: the stores of API servers count from 1, which is their own beginning. An apply
// with it makes an object that is not there, and is a conflict for one that another attempt, or somebody else, has made in the meantime.
const versionOfNone = "1"

// applyBody is what is applied to an object: the fields that are to be Slipway's, and digest as theirs; "": the digest of what is sent. It is meant for
// that version of the object, and for no other one; without an object, for none.
func applyBody(wanted, is object, digest string) ([]byte, error) {
	deployment, isDeployment := wanted.(*appsv1.Deployment)
	if former, updates := is.(*appsv1.Deployment); isDeployment && updates {
		deployment = deployment.DeepCopy()
		serving.KeepSize(deployment, former)
		wanted = deployment
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(wanted)
	if err != nil {
		return nil, err
	}
	delete(fields, "status")
	unstructured.RemoveNestedField(fields, "metadata", "creationTimestamp")
	if isDeployment {
		unstructured.RemoveNestedField(fields, "spec", "template", "metadata", "creationTimestamp")
		// Whoever pauses a Deployment holds up the next version too.
		if err := unstructured.SetNestedField(fields, false, "spec", "paused"); err != nil {
			return nil, err
		}
	}
	if digest == "" {
		if digest, err = serving.AppliedDigest(fields); err != nil {
			return nil, err
		}
	}
	if err := unstructured.SetNestedField(fields, digest, "metadata", "annotations", serving.AnnotationApplied); err != nil {
		return nil, err
	}
	meta := fields["metadata"].(map[string]any)
	meta["resourceVersion"] = versionOfNone
	if is != nil {
		meta["uid"], meta["resourceVersion"] = string(is.GetUID()), is.GetResourceVersion()
	}
	return json.Marshal(fields)
}

// adopt takes over what was written under Slipway's name without an apply, so that what is not wanted any more goes.
func adopt[T object](ctx context.Context, w *writer, c kindClient[T], is object) error {
	if !slices.ContainsFunc(is.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == serving.FieldManager && e.Operation == metav1.ManagedFieldsOperationUpdate && e.Subresource == ""
	}) {
		return nil
	}
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(is, sets.New(serving.FieldManager), serving.FieldManager)
	if err != nil || patch == nil {
		return err
	}
	adopted, err := c.patch(ctx, is.GetName(), types.JSONPatchType, patch,
		metav1.PatchOptions{FieldManager: serving.FieldManager, DryRun: w.dryRun()})
	if err != nil {
		return err
	}
	is.SetManagedFields(adopted.GetManagedFields())
	if !w.dry {
		is.SetResourceVersion(adopted.GetResourceVersion())
	}
	return nil
}

// merged are the kinds of a serving's objects as the API server merges them: an empty object of each, with its schema.
var merged = sync.OnceValues(func() (map[schema.GroupVersionKind]*typed.TypedValue, error) {
	converter := applyconfigurations.NewTypeConverter(scheme.Scheme)
	kinds := map[schema.GroupVersionKind]*typed.TypedValue{}
	for _, empty := range []object{&appsv1.Deployment{}, &corev1.Service{}, &corev1.ConfigMap{}} {
		kind, err := schemeKind(empty)
		if err != nil {
			return nil, err
		}
		empty.GetObjectKind().SetGroupVersionKind(kind)
		if kinds[kind], err = converter.ObjectToTyped(empty); err != nil {
			return nil, err
		}
	}
	return kinds, nil
})

// schemeKind is the kind of an object, which clients of Kubernetes' own kinds leave out of what they read.
func schemeKind(is object) (schema.GroupVersionKind, error) {
	kinds, _, err := scheme.Scheme.ObjectKinds(is)
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	return kinds[0], nil
}

// appliedDigest is the digest of the fields of an object that are Slipway's, as they are.
func appliedDigest(is object) (string, error) {
	fields, err := appliedFields(is)
	if err != nil {
		return "", err
	}
	return serving.AppliedDigest(fields)
}

// appliedFields are the fields of an object that are Slipway's, with its kind and its name. It answers what client-go's Extract functions answer, without the
// detours by which these make a typed value of it.
func appliedFields(is object) (map[string]any, error) {
	kind, err := schemeKind(is)
	if err != nil {
		return nil, err
	}
	kinds, err := merged()
	if err != nil {
		return nil, err
	}
	like, known := kinds[kind]
	if !known {
		return nil, fmt.Errorf("a %s is no object of a serving", kind.Kind)
	}
	fields := map[string]any{}
	if raw := serving.OwnedFields(is); raw != nil {
		var owned fieldpath.Set
		if err := owned.FromJSON(bytes.NewReader(raw)); err != nil {
			return nil, fmt.Errorf("what Slipway owns of %s %s/%s cannot be read: %w", kind.Kind, is.GetNamespace(), is.GetName(), err)
		}
		all, err := value.NewValueReflect(is)
		if err != nil {
			return nil, err
		}
		whole := typed.AsTypedUnvalidated(all, like.Schema(), like.TypeRef()) //nolint:staticcheck // the API server has validated it, and to do so again takes a third of the time
		if found, some := whole.ExtractItems(owned.Leaves()).AsValue().Unstructured().(map[string]any); some {
			fields = found
		}
	}
	fields["apiVersion"], fields["kind"] = kind.GroupVersion().String(), kind.Kind
	meta, _ := fields["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
		fields["metadata"] = meta
	}
	meta["name"], meta["namespace"] = is.GetName(), is.GetNamespace()
	return fields, nil
}

func kindOf(is object) string {
	switch is.(type) {
	case *appsv1.Deployment:
		return "Deployment"
	case *corev1.Service:
		return "Service"
	default:
		return "ConfigMap"
	}
}

// part is what the watch keeps of a Service or a ConfigMap: their content is of no interest beyond whether somebody else has changed it.
type part struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	drift []kuscia.Drift
	// token is the fencing token that it was written with last.
	token serving.FencingToken
}

// DeepCopyObject copies it.
func (b *part) DeepCopyObject() runtime.Object {
	return &part{TypeMeta: b.TypeMeta, ObjectMeta: *b.DeepCopy(), drift: b.drift, token: b.token}
}

// toPart keeps of one what the watch needs.
func (w *Watch) toPart(from any) (any, error) {
	is, ok := from.(object)
	if _, done := from.(*part); done || !ok {
		return from, nil
	}
	return &part{TypeMeta: metav1.TypeMeta{Kind: kindOf(is)}, drift: w.digests.drift(is), token: serving.TokenOf(is), ObjectMeta: metav1.ObjectMeta{
		Name: is.GetName(), Namespace: is.GetNamespace(), UID: is.GetUID(), ResourceVersion: is.GetResourceVersion(),
		Labels: is.GetLabels(),
	}}, nil
}
