package strategy

import (
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/strictyaml"
)

// AnnotationPolicy is the annotation of a Rollout object that holds its policy, as YAML or JSON, with the keys of
// policy in a start request.
const AnnotationPolicy = "slipway.io/policy"

// DecodeObject reads a Rollout object of either version from the cluster, as JSON. The API server has accepted it, so
// what other controllers of the kind ignore causes warnings, not errors. The Spec has no change. spec.disabled and
// spec.strategy.paused are commands of their own; the strategy keeps the second.
func DecodeObject(object []byte) (Spec, []string, Errors) {
	root, found, ok := strictyaml.Parse(object)
	if !ok {
		return Spec{}, nil, found.Sorted()
	}
	r := NewReader(found)
	r.stored = true
	d := r.document(root)
	d.deployment = kindOf(d.ref).Supports(StyleCanary)
	r.check(&d.draft)
	r.checkStyle(&d.draft, d.ref)
	policy, wrong := r.objectPolicy(&d)
	if len(wrong) > 0 {
		return Spec{}, nil, wrong
	}
	return Spec{Party: catalog.DefaultParty, Namespace: d.namespace, Name: d.name, WorkloadRef: d.ref,
		Strategy: d.Strategy, Policy: policy,
		RolloutID: d.rolloutID}, r.Warnings(), found.Sorted()
}

// objectPolicy reads the policy of an object from its annotation. The fields of its errors begin with the annotation's
// path.
func (r *Reader) objectPolicy(d *document) (Policy, Errors) {
	field := strictyaml.Join("metadata.annotations", AnnotationPolicy)
	text := d.annotations.values[AnnotationPolicy]
	if text == "" {
		text = "{}"
	}
	inner, found, ok := strictyaml.Parse([]byte(text))
	var policy Policy
	if ok {
		reader := NewReader(found)
		reader.stored = true
		policy = reader.policyOf(d, inner)
	}
	wrong := found.Sorted()
	for i := range wrong {
		wrong[i].Field, wrong[i].Line = strictyaml.Join(field, wrong[i].Field), 0
	}
	return policy, wrong
}
