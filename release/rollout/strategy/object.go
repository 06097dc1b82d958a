package strategy

import (
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/strictyaml"
)

// AnnotationPolicy is, on a Rollout object, the policy beside its strategy, as YAML or JSON: what a start over HTTP says under policy.
const AnnotationPolicy = "slipway.io/policy"

// DecodeObject reads what a Rollout object that stands in a cluster asks, of either version, as JSON. What a document that is sent should not
// say, and other controllers of the kind pass over, is warned of: the API server has taken it. The Spec has no change. spec.disabled and
// spec.strategy.paused are commands of their own; the second is kept in the strategy.
func DecodeObject(object []byte) (Spec, []string, Errors) {
	root, found, ok := strictyaml.Parse(object)
	if !ok {
		return Spec{}, nil, found.Sorted()
	}
	r := NewReader(found)
	r.object = true
	d := r.document(root)
	d.deployment = isDeployment(d.ref)
	r.check(&d.draft)
	r.checkStyle(&d.draft, d.ref)
	policy, wrong := r.objectPolicy(&d)
	if len(wrong) > 0 {
		return Spec{}, nil, wrong
	}
	return Spec{Party: catalog.DefaultParty, Namespace: d.namespace, Name: d.name, WorkloadRef: d.ref, Strategy: d.Strategy, Policy: policy,
		RolloutID: d.rolloutID}, r.Warnings(), found.Sorted()
}

// objectPolicy reads the policy of an object from its annotation. What is wrong within it has the annotation's path before its own.
func (r *Reader) objectPolicy(d *document) (Policy, Errors) {
	field := strictyaml.Join("metadata.annotations", AnnotationPolicy)
	text := d.annotations.texts[AnnotationPolicy]
	if text == "" {
		text = "{}"
	}
	inner, found, ok := strictyaml.Parse([]byte(text))
	var policy Policy
	if ok {
		reader := NewReader(found)
		reader.object = true
		policy = reader.policyOf(d, inner)
	}
	wrong := found.Sorted()
	for i := range wrong {
		wrong[i].Field, wrong[i].Line = strictyaml.Join(field, wrong[i].Field), 0
	}
	return policy, wrong
}
