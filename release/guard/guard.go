// Package guard writes the admission policies by which the API server itself keeps what a release has borrowed: somebody else's edit of a
// borrowed field is put back to what stands, the rest of that edit goes through, and Slipway's own marks can't be edited. They are made
// from the same tables as the code that borrows, so that no borrowed field is left out. It touches nothing.
package guard

import (
	"encoding/json"
	"slices"

	admission "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"slipway.io/slipway/release/gate/hold"
	"slipway.io/slipway/release/rollout/traffic"
)

//go:generate go run ./generate ../../deploy/guard/policies.yaml

const (
	// DefaultName is what the names of the policies begin with.
	DefaultName = "slipway-guard"
	// LabelGuard stands on the policies and their bindings: the name of the installation that they belong to. A namespace with it is guarded
	// only by an installation that selects namespaces by it.
	LabelGuard = "slipway.io/guard"
	// AnnotationIdentities holds, as a JSON list, the identities that the guard lets through.
	AnnotationIdentities = "slipway.io/engine-identities"
	// InNamespace stands in an identity for the namespace of the object that is edited.
	InNamespace = "{namespace}"
	// NamespaceOff is the value of LabelGuard on a namespace that wants no guard.
	NamespaceOff = "off"
)

// DefaultIdentities are the service accounts of deploy/rbac: the engine's, and that of a party's worker in the namespace of the object.
func DefaultIdentities() []string {
	return []string{"system:serviceaccount:slipway:slipway", "system:serviceaccount:" + InNamespace + ":slipway-party"}
}

// Options say what is guarded, and against whom. The zero value is usable.
type Options struct {
	// Name is what the names of the policies begin with; default: DefaultName. Two installations on one cluster need different ones.
	Name string
	// Identities are the users whose edits pass: the engine's; default: DefaultIdentities.
	Identities []string
	// Namespaces selects the namespaces that are guarded; nil: all. One with LabelGuard is only if this selects by that label.
	Namespaces *metav1.LabelSelector
	// Custom are more kinds that scripts change, beside Istio's.
	Custom []traffic.Kind
	// NoGate leaves out the gate: what holds changes of the workloads that Rollouts name.
	NoGate bool
	// NoRollouts leaves out the policies that refer to Rollouts: the cluster doesn't know them, or they are another product's.
	NoRollouts bool
}

// Policies are the policies and their bindings, in the version of admissionregistration.k8s.io that the cluster serves of each kind. A
// version "" leaves the kind out.
func Policies(o Options, mutating, validating string) []*unstructured.Unstructured {
	o = o.withDefaults()
	var out []*unstructured.Unstructured
	all := kinds(o.Custom)
	if mutating != "" {
		if !o.NoGate {
			out = append(out, o.gatePolicies(mutating)...)
		}
		if !o.NoGate && !o.NoRollouts {
			out = slices.Concat(out, o.namedPolicies(mutating), o.byPolicy(mutating), o.editorPolicy(mutating))
		}
		for _, k := range all {
			out = append(out, o.mutating(mutating, k.name(), o.mutatingSpec(k), nil)...)
		}
	}
	if validating != "" {
		out = append(out, o.validating(validating, marksName, o.validatingSpec(all))...)
		if !o.NoGate && !o.NoRollouts {
			out = append(out, o.validating(validating, commandsName, o.commandsSpec())...)
		}
	}
	return out
}

// marksName is the name of the policy that keeps the marks, behind that of the installation.
const marksName = "marks"

// object is one object of the installation.
func (o Options) object(version, kind, name string, spec any) *unstructured.Unstructured {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(spec)
	if err != nil {
		panic(err) // a type of Kubernetes' own: it always converts
	}
	identities, err := json.Marshal(o.Identities)
	if err != nil {
		panic(err) // texts: they always marshal
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": admission.GroupName + "/" + version, "kind": kind, "spec": content}}
	u.SetName(o.Name + "-" + name)
	u.SetLabels(map[string]string{LabelGuard: o.Name})
	u.SetAnnotations(map[string]string{AnnotationIdentities: string(identities)})
	return u
}

func (o Options) mutatingSpec(k kind) *admission.MutatingAdmissionPolicySpec {
	spec := &admission.MutatingAdmissionPolicySpec{
		FailurePolicy: new(admission.Ignore), MatchConstraints: matching(k), MatchConditions: o.conditions(k.marked()),
		Variables: []admission.Variable{{Name: "borrowed", Expression: k.borrowed()}},
	}
	if h, gated := hold.Of(k.Group, k.Resource); gated {
		spec.Variables = append(spec.Variables, h.Variables()...)
	}
	for _, expression := range k.patches() {
		spec.Mutations = append(spec.Mutations, jsonPatch(expression))
	}
	return spec
}

func (o Options) validatingSpec(all []kind) *admission.ValidatingAdmissionPolicySpec {
	return &admission.ValidatingAdmissionPolicySpec{
		FailurePolicy: new(admission.Ignore), MatchConstraints: matching(all...), MatchConditions: o.conditions(anyMark),
		Variables: markVariables,
		Validations: []admission.Validation{{Expression: "variables.edited.size() == 0", MessageExpression: markMessage,
			Message: "labels and annotations of slipway.io belong to a running release", Reason: new(metav1.StatusReasonForbidden)}},
	}
}

// validating is a validating policy and its binding.
func (o Options) validating(version, name string, spec *admission.ValidatingAdmissionPolicySpec) []*unstructured.Unstructured {
	return []*unstructured.Unstructured{o.object(version, "ValidatingAdmissionPolicy", name, spec),
		o.object(version, "ValidatingAdmissionPolicyBinding", name, &admission.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: o.Name + "-" + name, ValidationActions: []admission.ValidationAction{admission.Deny}, MatchResources: o.namespaces()})}
}

// namespaces are the namespaces that a binding holds for.
func (o Options) namespaces() *admission.MatchResources {
	selector := &metav1.LabelSelector{}
	if o.Namespaces != nil {
		selector = o.Namespaces.DeepCopy()
	}
	own := func(r metav1.LabelSelectorRequirement) bool { return r.Key == LabelGuard }
	if _, chosen := selector.MatchLabels[LabelGuard]; !chosen && !slices.ContainsFunc(selector.MatchExpressions, own) {
		selector.MatchExpressions = append(selector.MatchExpressions,
			metav1.LabelSelectorRequirement{Key: LabelGuard, Operator: metav1.LabelSelectorOpDoesNotExist})
	}
	return &admission.MatchResources{NamespaceSelector: selector}
}

// matching are edits of objects of these kinds: not their deletion, nor their status or scale.
func matching(kinds ...kind) *admission.MatchResources {
	var rules []admission.NamedRuleWithOperations
	for _, k := range kinds {
		rule := admission.NamedRuleWithOperations{}
		rule.Operations = []admission.OperationType{admission.Update}
		rule.APIGroups, rule.APIVersions, rule.Resources = []string{k.Group}, []string{"*"}, []string{k.Resource}
		rule.Scope = new(admission.NamespacedScope)
		rules = append(rules, rule)
	}
	return &admission.MatchResources{ResourceRules: rules, MatchPolicy: new(admission.Equivalent)}
}

// conditions say which edits are looked at: of objects with a mark, by somebody else than the engine, unless somebody repairs the object.
func (o Options) conditions(marked string) []admission.MatchCondition {
	return append([]admission.MatchCondition{{Name: "borrowed", Expression: marked}}, o.others()...)
}

// others are the conditions of an edit by somebody else than the engine, of an object that nobody repairs.
func (o Options) others() []admission.MatchCondition {
	return []admission.MatchCondition{{Name: "not-repaired", Expression: hold.NotRepaired}, o.notTheEngine()}
}

func (o Options) notTheEngine() admission.MatchCondition {
	return admission.MatchCondition{Name: "not-the-engine", Expression: notOneOf(slices.Compact(slices.Sorted(slices.Values(o.Identities))))}
}
