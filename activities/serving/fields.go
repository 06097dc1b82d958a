package serving

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	appsapply "k8s.io/client-go/applyconfigurations/apps/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/util/csaupgrade"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

// versionOfNone is a resourceVersion that no object has: the stores of API servers count from 1, which is their own beginning. An apply
// with it makes an object that is not there, and is a conflict for one that another attempt, or somebody else, has made in the meantime.
const versionOfNone = "1"

// applyBody is what is applied to an object: the fields that are to be Slipway's. It is meant for that version of it, and for no other one;
// without an object, for none.
func applyBody(wanted, is object) ([]byte, error) {
	wanted = wanted.DeepCopyObject().(object)
	deployment, isDeployment := wanted.(*appsv1.Deployment)
	if former, updates := is.(*appsv1.Deployment); isDeployment && updates {
		serving.KeepSize(deployment, former)
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

// appliedDigest is the digest of the fields of an object that are Slipway's, as they are.
func appliedDigest(is object) (string, error) {
	var fields any
	var err error
	switch o := is.(type) {
	case *appsv1.Deployment:
		fields, err = appsapply.ExtractDeployment(o, serving.FieldManager)
	case *corev1.Service:
		fields, err = coreapply.ExtractService(o, serving.FieldManager)
	case *corev1.ConfigMap:
		fields, err = coreapply.ExtractConfigMap(o, serving.FieldManager)
	default:
		return "", fmt.Errorf("a %T is no object of a serving", is)
	}
	if err != nil {
		return "", err
	}
	return serving.AppliedDigest(fields)
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
