package store

import (
	"context"
	"encoding/json"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"slipway.io/slipway/release/author"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/fieldmanager"
	"slipway.io/slipway/release/kruise"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/trafficrouting"
	"slipway.io/slipway/release/v1alpha1"
)

// RolloutObject is a Rollout object's name in errors.
func RolloutObject(namespace, name string) string { return "Rollout " + namespace + "/" + name }

// GetRollout reads a Rollout object.
func (s *Store) GetRollout(ctx context.Context, namespace, name string) (*v1beta1.Rollout, error) {
	found, err := s.rollouts.Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, asFailure(err, RolloutObject(namespace, name))
	}
	return ReadRollout(found)
}

// rolloutsPage is how many Rollouts RolloutsIn reads at once.
const rolloutsPage = 250

// RolloutsIn returns the Rollouts of a namespace that can be decoded, with what names a workload: without their
// strategies and statuses, which can be large. It reads them page by page.
func (s *Store) RolloutsIn(ctx context.Context, namespace string) ([]v1beta1.Rollout, error) {
	var out []v1beta1.Rollout
	for cursor := ""; ; {
		found, err := listPage(ctx, s.rollouts.Namespace(namespace),
			metav1.ListOptions{Limit: rolloutsPage, Continue: cursor})
		if err != nil {
			return nil, asFailure(err, "the Rollouts of namespace "+namespace)
		}
		for i := range found.Items {
			if r, err := ReadRollout(&found.Items[i]); err == nil {
				out = append(out, naming(r))
			}
		}
		if cursor = found.GetContinue(); cursor == "" {
			return out, nil
		}
	}
}

// naming returns a Rollout with only what says which workload it names, and whether it counts.
func naming(r *v1beta1.Rollout) (n v1beta1.Rollout) {
	n.Name, n.Namespace, n.DeletionTimestamp = r.Name, r.Namespace, r.DeletionTimestamp
	n.Spec.WorkloadRef, n.Spec.Disabled = r.Spec.WorkloadRef, r.Spec.Disabled
	return n
}

// ReadRollout decodes a Rollout from the API server.
func ReadRollout(object *unstructured.Unstructured) (*v1beta1.Rollout, error) {
	raw, err := json.Marshal(object.Object)
	if err != nil {
		return nil, err
	}
	var r v1beta1.Rollout
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, failure.New(failure.Refused, "%s cannot be read: %v",
			RolloutObject(object.GetNamespace(), object.GetName()), err)
	}
	return &r, nil
}

// SetRolloutStatus replaces the status of a Rollout and returns the stored Rollout; a change since it was read is a
// Conflict. Each status gets a new sequence number.
func (s *Store) SetRolloutStatus(ctx context.Context, read *v1beta1.Rollout,
	status v1beta1.RolloutStatus) (*v1beta1.Rollout, error) {
	engine := ptr.Deref(status.Slipway, v1beta1.EngineStatus{})
	if was := read.Status.Slipway; was != nil {
		engine.Seq = was.Seq
	}
	engine.Seq++
	status.Slipway = &engine
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&status)
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{Object: map[string]any{"status": content}}
	object.SetGroupVersionKind(v1beta1.GroupVersion.WithKind(v1beta1.Kind))
	object.SetName(read.Name)
	object.SetResourceVersion(read.ResourceVersion)
	written, err := s.rollouts.Namespace(read.Namespace).UpdateStatus(ctx, object,
		metav1.UpdateOptions{FieldManager: fieldmanager.Slipway})
	if err != nil {
		return nil, asFailure(err, RolloutObject(read.Namespace, read.Name))
	}
	unstructured.RemoveNestedField(written.Object, "metadata", "managedFields")
	return ReadRollout(written)
}

// GuardRollout adds the finalizer to a Rollout and the name of the engine that manages it; without an engine it removes
// the finalizer. A change since it was read is a Conflict.
func (s *Store) GuardRollout(ctx context.Context, read *v1beta1.Rollout, engine string) error {
	metadata := map[string]any{"resourceVersion": read.ResourceVersion,
		"finalizers": guard(read.Finalizers, v1beta1.Finalizer, engine != "")}
	if engine != "" {
		metadata["annotations"] = map[string]any{kruise.KeyEngine: engine}
	}
	return s.patchRollout(ctx, read, metadata)
}

// AnnotateRollout writes one annotation of a Rollout; a change since it was read is a Conflict.
func (s *Store) AnnotateRollout(ctx context.Context, read *v1beta1.Rollout, key, value string) error {
	return s.patchRollout(ctx, read, map[string]any{"resourceVersion": read.ResourceVersion,
		"annotations": map[string]any{key: value}})
}

func (s *Store) patchRollout(ctx context.Context, read *v1beta1.Rollout, metadata map[string]any) error {
	_, err := patch(ctx, s.rollouts.Namespace(read.Namespace), read.Name, map[string]any{"metadata": metadata})
	return asFailure(err, RolloutObject(read.Namespace, read.Name))
}

// TrafficObject is a TrafficRouting's name in errors.
func TrafficObject(namespace, name string) string { return "TrafficRouting " + namespace + "/" + name }

// ListTrafficRoutings reads one page of the TrafficRoutings of a namespace ("": of all), in order of namespace and
// name.
func (s *Store) ListTrafficRoutings(ctx context.Context, namespace string, limit int,
	cursor string) (items []v1alpha1.TrafficRouting, next string, err error) {
	list, err := listPage(ctx, s.traffic.Namespace(namespace),
		metav1.ListOptions{Limit: int64(limit), Continue: cursor})
	if err != nil {
		return nil, "", asFailure(err, "the list of TrafficRoutings")
	}
	for i := range list.Items {
		one, err := ReadTraffic(&list.Items[i])
		if err != nil {
			return nil, "", err
		}
		items = append(items, *one)
	}
	return items, list.GetContinue(), nil
}

// GetTrafficRouting reads a TrafficRouting.
func (s *Store) GetTrafficRouting(ctx context.Context, namespace, name string) (*v1alpha1.TrafficRouting, error) {
	found, err := s.traffic.Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, asFailure(err, TrafficObject(namespace, name))
	}
	return ReadTraffic(found)
}

// PutTrafficRouting creates a TrafficRouting with that spec, or replaces the one that was read as stored, in which case
// a change since is a Conflict. An equal spec writes nothing: changed is false then.
func (s *Store) PutTrafficRouting(ctx context.Context, namespace, name string, spec json.RawMessage,
	stored *v1alpha1.TrafficRouting) (changed bool, err error) {
	var content map[string]any
	if err := json.Unmarshal(spec, &content); err != nil {
		return false, failure.New(failure.Refused, "the spec of %s is no JSON object: %v",
			TrafficObject(namespace, name), err)
	}
	if stored == nil {
		object := &unstructured.Unstructured{Object: map[string]any{"spec": content}}
		object.SetAPIVersion(v1alpha1.TrafficRoutingResource.GroupVersion().String())
		object.SetKind(v1alpha1.TrafficRoutingKind)
		object.SetName(name)
		_, err = s.traffic.Namespace(namespace).Create(ctx, object, metav1.CreateOptions{FieldManager: fieldmanager.Slipway})
		if apierrors.IsNotFound(err) {
			return false, failure.New(failure.NotFound,
				"namespace %s does not exist in the home cluster: create it, then send %s again",
				namespace, TrafficObject(namespace, name))
		}
		return err == nil, asFailure(err, TrafficObject(namespace, name))
	}
	if sameJSON(stored.Spec, spec) {
		return false, nil
	}
	return true, s.replaceTrafficSpec(ctx, stored, content)
}

// replaceTrafficSpec updates the whole object, since a merge would keep fields that the new spec lacks.
func (s *Store) replaceTrafficSpec(ctx context.Context, stored *v1alpha1.TrafficRouting, spec map[string]any) error {
	client := s.traffic.Namespace(stored.Namespace)
	object, err := client.Get(ctx, stored.Name, metav1.GetOptions{})
	if err != nil {
		return asFailure(err, TrafficObject(stored.Namespace, stored.Name))
	}
	object.SetResourceVersion(stored.ResourceVersion)
	object.Object["spec"] = spec
	_, err = client.Update(ctx, object, metav1.UpdateOptions{FieldManager: fieldmanager.Slipway})
	return asFailure(err, TrafficObject(stored.Namespace, stored.Name))
}

// DeleteTrafficRouting deletes a TrafficRouting; a change since it was read is a Conflict. It first removes Slipway's
// finalizer, which is no longer needed.
func (s *Store) DeleteTrafficRouting(ctx context.Context, stored *v1alpha1.TrafficRouting) error {
	if err := s.GuardTraffic(ctx, stored, false); err != nil {
		return err
	}
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &stored.ResourceVersion}}
	err := s.traffic.Namespace(stored.Namespace).Delete(ctx, stored.Name, options)
	if apierrors.IsNotFound(err) && stored.Deleting {
		return nil // it only waited for the finalizer
	}
	return asFailure(err, TrafficObject(stored.Namespace, stored.Name))
}

// GuardTraffic adds or removes the finalizer of a TrafficRouting, and stores the new version in t. A change since it
// was read is a Conflict.
func (s *Store) GuardTraffic(ctx context.Context, t *v1alpha1.TrafficRouting, guarded bool) error {
	if slices.Contains(t.Finalizers, v1alpha1.FinalizerTrafficRouting) == guarded {
		return nil
	}
	return s.setTrafficFinalizers(ctx, t, guard(t.Finalizers, v1alpha1.FinalizerTrafficRouting, guarded))
}

// FreeTraffic removes the finalizers of a deleted TrafficRouting: Slipway's, and those that the controller of Kruise
// Rollouts left. A change since it was read is a Conflict.
func (s *Store) FreeTraffic(ctx context.Context, t *v1alpha1.TrafficRouting) error {
	return s.setTrafficFinalizers(ctx, t, slices.DeleteFunc(
		guard(t.Finalizers, v1alpha1.FinalizerTrafficRouting, false), trafficrouting.IsLeftover))
}

func (s *Store) setTrafficFinalizers(ctx context.Context, t *v1alpha1.TrafficRouting, finalizers []string) error {
	return s.patchTraffic(ctx, t,
		map[string]any{"metadata": map[string]any{"finalizers": finalizers, "resourceVersion": t.ResourceVersion}})
}

// SetTrafficStatus writes the status of a TrafficRouting; a change since it was read is a Conflict. A definition that
// drops the holders, like another controller's, is Refused: without them the owner of the routes is unknown.
func (s *Store) SetTrafficStatus(ctx context.Context, t *v1alpha1.TrafficRouting) error {
	t.Status.ObservedGeneration = t.Generation
	want := slices.Clone(t.Status.Holders)
	err := s.patchTraffic(ctx, t,
		map[string]any{"metadata": map[string]any{"resourceVersion": t.ResourceVersion}, "status": t.Status}, "status")
	if err == nil && !slices.Equal(want, t.Status.Holders) {
		return failure.New(failure.Refused,
			"%s cannot be held: its definition in the home cluster is another product's, which keeps no holders; "+
				"apply Slipway's definition of TrafficRouting", TrafficObject(t.Namespace, t.Name))
	}
	return err
}

// patchTraffic merges a change into a TrafficRouting that is still at the version that was read, and stores the result
// in t.
func (s *Store) patchTraffic(ctx context.Context, t *v1alpha1.TrafficRouting, change map[string]any,
	subresources ...string) error {
	written, err := patch(ctx, s.traffic.Namespace(t.Namespace), t.Name, change, subresources...)
	if err != nil {
		return asFailure(err, TrafficObject(t.Namespace, t.Name))
	}
	read, err := ReadTraffic(written)
	if err != nil {
		return err
	}
	*t = *read
	return nil
}

// ReadTraffic decodes a TrafficRouting from the API server.
func ReadTraffic(object *unstructured.Unstructured) (*v1alpha1.TrafficRouting, error) {
	t := &v1alpha1.TrafficRouting{
		Namespace: object.GetNamespace(), Name: object.GetName(), ResourceVersion: object.GetResourceVersion(),
		UID: object.GetUID(), Generation: object.GetGeneration(),
		Checked:   object.GetAnnotations()[author.AnnotationChecked],
		CreatedAt: object.GetCreationTimestamp().UTC(), Deleting: object.GetDeletionTimestamp() != nil,
		Finalizers: object.GetFinalizers(),
	}
	var err error
	if t.Spec, err = json.Marshal(object.Object["spec"]); err != nil {
		return nil, asFailure(err, TrafficObject(t.Namespace, t.Name))
	}
	if status, ok := object.Object["status"].(map[string]any); ok {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(status, &t.Status); err != nil {
			return nil, failure.New(failure.Refused, "the status of %s cannot be read: %v",
				TrafficObject(t.Namespace, t.Name), err)
		}
	}
	if t.Status.Phase == "" {
		t.Status.Phase = v1alpha1.TrafficInitial
	}
	return t, nil
}
