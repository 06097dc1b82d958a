// Package conversion turns Rollouts of v1alpha1 into those of v1beta1 and back, without loss. What one version can't say of an object of
// the other rides in an annotation, together with a digest of what it was made from: an object that comes back as it went is restored exactly;
// of one that was edited meanwhile, what was edited is converted, and the rest restored. Labels and annotations are all that a conversion
// may change in metadata.
package conversion

import (
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/kruise/v1alpha1"
	"slipway.io/slipway/release/kruise/v1beta1"
)

// AnnotationBeta stands on an object of v1alpha1, AnnotationAlpha on one of v1beta1: what the object is in the other version, where that
// doesn't follow from what it is in its own.
const (
	AnnotationBeta  = "slipway.io/v1beta1"
	AnnotationAlpha = "slipway.io/v1alpha1"
)

// The annotations of a Rollout that say in one version what the other has a field for.
const (
	AnnotationStyle = "rollouts.kruise.io/rolling-style"
	// AnnotationStyleAlias is what the text of the API specification calls the one above.
	AnnotationStyleAlias = "rollouts.kruise.io/rolling-type"
	annotationRouting    = "rollouts.kruise.io/trafficrouting"
	annotationID         = "rollouts.kruise.io/rollout-id"
)

// form is the part of an object that a conversion changes: its spec, and the annotations that mean something for it. A conversion reads it
// and never changes it.
type form struct {
	Spec        any               `json:"spec,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Convert converts an object to a version of rollouts.kruise.io, in place. It refuses what would be a Rollout without a strategy.
func Convert(object *unstructured.Unstructured, to string) error {
	from := object.GetAPIVersion()
	if object.GetKind() != v1beta1.Kind {
		return fmt.Errorf("%s can't be converted to %s: only a Rollout can", named(object), to)
	}
	if from == to && (from == v1beta1.GroupVersion.String() || from == v1alpha1.GroupVersion.String()) {
		return nil
	}
	var own, other string
	var convert func(form, *string) (form, *string, error)
	switch {
	case from == v1alpha1.GroupVersion.String() && to == v1beta1.GroupVersion.String():
		own, other, convert = AnnotationBeta, AnnotationAlpha, toBeta
	case from == v1beta1.GroupVersion.String() && to == v1alpha1.GroupVersion.String():
		own, other, convert = AnnotationAlpha, AnnotationBeta, toAlpha
	default:
		return fmt.Errorf("%s can't be converted from %q to %q: those aren't two versions of Rollouts", named(object), from, to)
	}
	annotations := object.GetAnnotations()
	source, attached := extract(object, annotations, own)
	target, attach, err := convert(source, attached)
	if err != nil {
		return fmt.Errorf("%s: %w", named(object), err)
	}
	target.put(object, annotations, other, attach)
	object.SetAPIVersion(to)
	return nil
}

func named(object *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s/%s", object.GetKind(), object.GetNamespace(), object.GetName())
}

// meaningful are the annotations of a form, but for the one that an object of its version has attached.
var meaningful = []string{AnnotationStyle, AnnotationStyleAlias, annotationRouting, annotationID, AnnotationBeta, AnnotationAlpha}

// extract is the form of an object, and the annotation that is attached to one of its version.
func extract(object *unstructured.Unstructured, annotations map[string]string, own string) (f form, attached *string) {
	f.Spec = object.Object["spec"]
	for _, key := range meaningful {
		value, there := annotations[key]
		switch {
		case !there:
		case key == own:
			attached = &value
		default:
			f = f.with(key, value)
		}
	}
	return f, attached
}

// put gives an object this form, and what is attached in its version.
func (f form) put(object *unstructured.Unstructured, annotations map[string]string, own string, attach *string) {
	if f.Spec == nil {
		delete(object.Object, "spec")
	} else {
		object.Object["spec"] = f.Spec
	}
	annotations = maps.Clone(annotations)
	for _, key := range meaningful {
		delete(annotations, key)
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	maps.Copy(annotations, f.Annotations)
	if attach != nil {
		annotations[own] = *attach
	}
	if len(annotations) == 0 {
		unstructured.RemoveNestedField(object.Object, "metadata", "annotations")
		return
	}
	object.SetAnnotations(annotations)
}

// with is the form with an annotation, without the form without one.
func (f form) with(key, value string) form {
	f.Annotations = maps.Clone(f.Annotations)
	if f.Annotations == nil {
		f.Annotations = map[string]string{}
	}
	f.Annotations[key] = value
	return f
}

func (f form) without(keys ...string) form {
	f.Annotations = maps.Clone(f.Annotations)
	for _, key := range keys {
		delete(f.Annotations, key)
	}
	return f
}

// toBeta converts a form of v1alpha1 with what is attached to it.
func toBeta(alpha form, attached *string) (beta form, attach *string, err error) {
	if rest := readRemainder(attached); rest != nil {
		if rest.isOf(alpha) {
			return rest.form, rest.Attached, nil
		}
		beta, err = mergedBeta(alpha, rest.form)
	} else {
		beta, err = plainBeta(alpha)
	}
	if err != nil {
		return form{}, nil, err
	}
	if !equal(plainAlpha(beta), alpha) {
		attach = newRemainder(beta, alpha, nil)
	}
	return beta, attach, nil
}

// toAlpha converts a form of v1beta1 with what is attached to it.
func toAlpha(beta form, attached *string) (alpha form, attach *string, err error) {
	switch rest := readRemainder(attached); {
	case rest == nil:
		alpha = plainAlpha(beta)
	case rest.isOf(beta):
		alpha = rest.form
	default:
		alpha = mergedAlpha(beta, rest.form)
	}
	back, own, err := toBeta(alpha, nil)
	if err != nil || !equal(back, beta) || !same(own, attached) {
		attach = newRemainder(alpha, beta, attached)
	}
	return alpha, attach, nil
}

func same(a, b *string) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}
