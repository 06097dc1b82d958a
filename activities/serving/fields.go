package serving

import (
	"bytes"
	"context"
	"crypto/sha256"
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
	"k8s.io/utils/lru"
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
	kind, _ := schemeKind(is) // the scheme has all kinds of a serving's objects
	return kind.Kind
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

// maxDigests is the maximum number of cached digests: enough for a burst of a thousand servings of a party, in less
// than 1 MiB.
const maxDigests = 4096

// digests caches the digests of objects (appliedDigest), whose computation is the most expensive operation on them. The
// same object is seen several times: in the response of a write, in the watch, and again with each change of a
// Deployment's status. It is safe for concurrent use.
type digests struct{ known *lru.Cache }

func newDigests() *digests { return &digests{known: lru.New(maxDigests)} }

// knownDigest is the cached digest of an object.
type knownDigest struct {
	digest string
	// state determines whether the digest is still valid (stateOf).
	state [sha256.Size]byte
}

// of returns the digest of the fields of an object that Slipway owns.
func (d *digests) of(is object) (string, error) {
	state, err := stateOf(is)
	if err != nil {
		return "", err
	}
	key := is.GetUID()
	found, _ := d.known.Get(key)
	if last, met := found.(knownDigest); met && last.state == state {
		return last.digest, nil
	}
	digest, err := appliedDigest(is)
	if err == nil && key != "" {
		d.known.Add(key, knownDigest{digest: digest, state: state})
	}
	return digest, err
}

// stateOf returns a value that changes whenever a field that Slipway owns, or the set of these fields, changes. The
// spec of a Deployment is represented by its generation, which a change of the status does not increase
// (https://github.com/kubernetes/kubernetes/blob/v1.36.0/pkg/registry/apps/deployment/strategy.go); of other kinds, any
// change counts.
func stateOf(is object) (state [sha256.Size]byte, err error) {
	owned := serving.OwnedFields(is)
	meta := metav1.ObjectMeta{Generation: is.GetGeneration(), Labels: ownedEntries(owned, is.GetLabels()),
		Annotations:     ownedEntries(owned, is.GetAnnotations()),
		OwnerReferences: is.GetOwnerReferences(), Finalizers: is.GetFinalizers()}
	if _, counts := is.(*appsv1.Deployment); !counts || meta.Generation == 0 {
		meta.ResourceVersion = is.GetResourceVersion()
	}
	raw, err := json.Marshal(meta)
	return sha256.Sum256(append(raw, owned...)), err
}

// ownedEntries returns the entries of a map whose keys are among the owned fields. There may be others: a Deployment's
// own controller, for example, records a revision.
func ownedEntries(owned []byte, entries map[string]string) map[string]string {
	found := make(map[string]string, len(entries))
	for key, value := range entries {
		if bytes.Contains(owned, []byte(`"f:`+key+`"`)) {
			found[key] = value
		}
	}
	return found
}

// intact reports whether no other client has changed a field of an object that Slipway owns.
func (d *digests) intact(is object) (bool, error) {
	digest, err := d.of(is)
	return err == nil && digest == is.GetAnnotations()[serving.AnnotationApplied], err
}

// drift returns the changes by other clients to an object; nil if there are none. An object that cannot be evaluated
// counts as unchanged.
func (d *digests) drift(is object) []kuscia.Drift {
	if intact, err := d.intact(is); err != nil || intact {
		return nil
	}
	return serving.DriftOf(kindOf(is), is)
}
