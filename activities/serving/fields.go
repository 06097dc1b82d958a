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

// createResourceVersion is a resourceVersion that no object has: the stores of API servers start at 1 themselves. An
// apply with it creates a missing object, and conflicts with one that another attempt or client has created in the
// meantime.
const createResourceVersion = "1"

// applyBody returns the body of an apply: the fields that Slipway is to own, with digest as their digest; if that is
// "", it is computed from the body. The apply is valid only for the given version of the object; if is is nil, only as
// long as the object does not exist.
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
		// A Deployment that another client has paused would never roll out the next version.
		if err := unstructured.SetNestedField(fields, false, "spec", "paused"); err != nil {
			return nil, err
		}
	}
	if digest == "" {
		if digest, err = serving.AppliedDigest(fields); err != nil {
			return nil, err
		}
	}
	if err := unstructured.SetNestedField(fields, digest, "metadata", "annotations",
		serving.AnnotationApplied); err != nil {
		return nil, err
	}
	meta := fields["metadata"].(map[string]any)
	meta["resourceVersion"] = createResourceVersion
	if is != nil {
		meta["uid"], meta["resourceVersion"] = string(is.GetUID()), is.GetResourceVersion()
	}
	return json.Marshal(fields)
}

// adopt converts fields that were written under Slipway's name without an apply (by an earlier build), so that an apply
// removes those that are not wanted any more.
func adopt[T object](ctx context.Context, w *writer, c kindClient[T], is object) error {
	if !slices.ContainsFunc(is.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == serving.FieldManager && e.Operation == metav1.ManagedFieldsOperationUpdate &&
			e.Subresource == ""
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

// mergeSchemas are empty objects of the kinds of a serving's objects, with the schemas by which the API server merges
// them.
var mergeSchemas = sync.OnceValues(func() (map[schema.GroupVersionKind]*typed.TypedValue, error) {
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

// schemeKind returns the kind of an object, because typed clients leave it empty in what they read.
func schemeKind(is object) (schema.GroupVersionKind, error) {
	kinds, _, err := scheme.Scheme.ObjectKinds(is)
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	return kinds[0], nil
}

// appliedDigest returns the digest of the current values of the fields of an object that Slipway owns.
func appliedDigest(is object) (string, error) {
	fields, err := appliedFields(is)
	if err != nil {
		return "", err
	}
	return serving.AppliedDigest(fields)
}

// appliedFields returns the fields of an object that Slipway owns, with its kind and name. The result is that of
// client-go's Extract functions, without their costly conversion to a typed value.
func appliedFields(is object) (map[string]any, error) {
	kind, err := schemeKind(is)
	if err != nil {
		return nil, err
	}
	kinds, err := mergeSchemas()
	if err != nil {
		return nil, err
	}
	like, known := kinds[kind]
	if !known {
		return nil, fmt.Errorf("a %s is not an object of a serving", kind.Kind)
	}
	fields := map[string]any{}
	if raw := serving.OwnedFields(is); raw != nil {
		var owned fieldpath.Set
		if err := owned.FromJSON(bytes.NewReader(raw)); err != nil {
			return nil, fmt.Errorf("the fields of %s %s/%s that Slipway owns cannot be read: %w", kind.Kind,
				is.GetNamespace(), is.GetName(), err)
		}
		all, err := value.NewValueReflect(is)
		if err != nil {
			return nil, err
		}
		//nolint:staticcheck // the API server has validated it; validating again would take a third of the time
		typedValue := typed.AsTypedUnvalidated(all, like.Schema(), like.TypeRef())
		if found, some := typedValue.ExtractItems(owned.Leaves()).AsValue().Unstructured().(map[string]any); some {
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

// dependent is what the watch keeps of a Service or a ConfigMap: of its content, only whether another client has
// changed it.
type dependent struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	drift []kuscia.Drift
	// token is the fencing token of the step that last wrote it.
	token serving.FencingToken
}

// DeepCopyObject implements runtime.Object.
func (b *dependent) DeepCopyObject() runtime.Object {
	return &dependent{TypeMeta: b.TypeMeta, ObjectMeta: *b.DeepCopy(), drift: b.drift, token: b.token}
}

// toDependent reduces an object to what the watch needs.
func toDependent[O object](d *digests) func(O) (*dependent, error) {
	return func(is O) (*dependent, error) {
		return &dependent{TypeMeta: metav1.TypeMeta{Kind: kindOf(is)}, drift: d.drift(is),
			token: serving.TokenOf(is), ObjectMeta: metav1.ObjectMeta{
				Name: is.GetName(), Namespace: is.GetNamespace(), UID: is.GetUID(),
				ResourceVersion: is.GetResourceVersion(),
				Labels:          is.GetLabels(),
			}}, nil
	}
}
