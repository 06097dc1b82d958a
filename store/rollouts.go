package store

import (
	"context"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/fieldmanager"
	"slipway.io/slipway/release/kruise"
	"slipway.io/slipway/release/kruise/v1beta1"
)

// RolloutObject is a Rollout object's name in errors.
func RolloutObject(namespace, name string) string { return "Rollout " + namespace + "/" + name }

// GetRollout reads a Rollout object.
func (s *Store) GetRollout(ctx context.Context, namespace, name string) (*v1beta1.Rollout, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	found, err := s.rollouts.Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, asFailure(err, RolloutObject(namespace, name))
	}
	return ReadRollout(found)
}

// RolloutsIn returns the Rollouts of a namespace that can be decoded.
func (s *Store) RolloutsIn(ctx context.Context, namespace string) ([]v1beta1.Rollout, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	found, err := s.rollouts.Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, asFailure(err, "the Rollouts of namespace "+namespace)
	}
	var out []v1beta1.Rollout
	for i := range found.Items {
		if r, err := ReadRollout(&found.Items[i]); err == nil {
			out = append(out, *r)
		}
	}
	return out, nil
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
	engine := v1beta1.EngineStatus{}
	if status.Slipway != nil {
		engine = *status.Slipway
	}
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
	ctx, cancel := bounded(ctx)
	defer cancel()
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
