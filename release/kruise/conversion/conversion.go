// Package conversion converts Rollouts between v1alpha1 and v1beta1 without loss. What one version cannot express of an
// object of the other is kept in an annotation, together with a digest of the form it was made from. An object that was
// not edited in between is restored exactly; if it was edited, the edited parts are converted and the rest is restored.
// In metadata a conversion may change only labels and annotations.
package conversion

import (
	"bytes"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/utils/ptr"

	"slipway.io/slipway/release/digest"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/kruise/v1alpha1"
	"slipway.io/slipway/release/kruise/v1beta1"
)

// AnnotationBeta is set on objects of v1alpha1, AnnotationAlpha on objects of v1beta1: the object's form in the other
// version, if converting the object alone would not produce it.
const (
	AnnotationBeta  = "slipway.io/v1beta1"
	AnnotationAlpha = "slipway.io/v1alpha1"
)

// The annotations by which one version expresses what the other has a field for.
const (
	AnnotationStyle = "rollouts.kruise.io/rolling-style"
	// AnnotationStyleAlias is the name that the text of the API specification uses for AnnotationStyle.
	AnnotationStyleAlias = "rollouts.kruise.io/rolling-type"
	annotationRouting    = "rollouts.kruise.io/trafficrouting"
	annotationID         = "rollouts.kruise.io/rollout-id"
)

// form is the part of an object that a conversion changes: its spec, and the annotations that have a meaning for it. A
// conversion reads a form and never modifies it.
type form struct {
	Spec        any               `json:"spec,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Convert converts an object to a version of rollouts.kruise.io, in place. It rejects objects that would become a
// Rollout without a strategy.
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
		return fmt.Errorf("%s can't be converted from %q to %q: those aren't two versions of Rollouts", named(object),
			from, to)
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

// formAnnotations are the annotations of a form, including both annotations that conversions attach.
var formAnnotations = []string{AnnotationStyle, AnnotationStyleAlias, annotationRouting, annotationID, AnnotationBeta,
	AnnotationAlpha}

// extract returns the form of an object, and the annotation attached to it in its own version.
func extract(object *unstructured.Unstructured, annotations map[string]string, own string) (f form, attached *string) {
	f.Spec = object.Object["spec"]
	for _, key := range formAnnotations {
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

// put sets an object's form and its attached annotation.
func (f form) put(object *unstructured.Unstructured, annotations map[string]string, own string, attach *string) {
	if f.Spec == nil {
		delete(object.Object, "spec")
	} else {
		object.Object["spec"] = f.Spec
	}
	kept := form{Annotations: annotations}.without(formAnnotations...)
	annotations = labels.Merge(kept.Annotations, f.Annotations)
	if attach != nil {
		annotations[own] = *attach
	}
	if len(annotations) == 0 {
		unstructured.RemoveNestedField(object.Object, "metadata", "annotations")
		return
	}
	object.SetAnnotations(annotations)
}

// with returns the form with an annotation; without returns it without some.
func (f form) with(key, value string) form {
	f.Annotations = labels.Merge(f.Annotations, labels.Set{key: value})
	return f
}

func (f form) without(keys ...string) form {
	f.Annotations = maps.Clone(f.Annotations)
	for _, key := range keys {
		delete(f.Annotations, key)
	}
	return f
}

// toBeta converts a form of v1alpha1 and its attached annotation.
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

// toAlpha converts a form of v1beta1 and its attached annotation.
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
	if err != nil || !equal(back, beta) || !ptr.Equal(own, attached) {
		attach = newRemainder(alpha, beta, attached)
	}
	return alpha, attach, nil
}

// remainder is the attached annotation: the object's form in the other version.
type remainder struct {
	// Digest covers both forms and Attached. It matches only if the object has not been edited since the remainder was
	// made.
	Digest string `json:"digest"`
	form
	// Attached is the annotation that was attached to the form in the other version.
	Attached *string `json:"attached,omitempty"`
}

// newRemainder encodes a form in the other version, to attach it to the form to.
func newRemainder(to, other form, attached *string) *string {
	return new(string(jsonpatch.Encode(remainder{Digest: digestOf(to, other, attached), form: other, Attached: attached})))
}

// readRemainder decodes an attached annotation; nil if there is none or Slipway did not write it.
func readRemainder(text *string) *remainder {
	if text == nil {
		return nil
	}
	var r remainder
	// The values of the spec are those of an unstructured object: whole numbers are int64.
	if utiljson.Unmarshal([]byte(*text), &r) != nil || r.Digest == "" {
		return nil
	}
	return &r
}

// isOf reports whether the remainder was made for the current state of a form.
func (r *remainder) isOf(f form) bool { return r.Digest == digestOf(f, r.form, r.Attached) }

func digestOf(to, other form, attached *string) string {
	return digest.Of(string(jsonpatch.Encode([]any{to, other, attached})))
}

// equal reports whether two values have the same JSON.
func equal(a, b any) bool { return bytes.Equal(jsonpatch.Encode(a), jsonpatch.Encode(b)) }
