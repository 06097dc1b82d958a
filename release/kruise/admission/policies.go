// Package admission builds the admission policies for Rollouts. They check what the rules of the definition cannot
// because it needs another object or an annotation, and warn of what is legal but probably not meant. The API server
// enforces them without any Slipway process.
package admission

import (
	admission "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"slipway.io/slipway/release/kruise/v1alpha1"
	"slipway.io/slipway/release/kruise/v1beta1"
)

// The names of the policies and of their bindings. Install them after the definition of Rollouts and remove them before
// it.
const (
	NameWorkload = "slipway-rollouts-workload"
	NameWarnings = "slipway-rollouts-warnings"
	NameStyle    = "slipway-rollouts-style"
)

// Policies returns the policies with their bindings, in version v1 of admissionregistration.k8s.io.
func Policies() []*unstructured.Unstructured {
	everywhere := &admission.ParamRef{Selector: &metav1.LabelSelector{},
		ParameterNotFoundAction: new(admission.AllowAction)}
	var out []*unstructured.Unstructured
	out = append(out, policy(NameWorkload, workloadSpec(), admission.Deny, everywhere)...)
	out = append(out, policy(NameWarnings, warningsSpec(), admission.Warn, nil)...)
	return append(out, policy(NameStyle, styleSpec(), admission.Deny, nil)...)
}

// policy returns a policy with its binding, for all namespaces.
func policy(name string, spec *admission.ValidatingAdmissionPolicySpec, action admission.ValidationAction,
	params *admission.ParamRef) []*unstructured.Unstructured {
	return []*unstructured.Unstructured{object("ValidatingAdmissionPolicy", name, spec),
		object("ValidatingAdmissionPolicyBinding", name,
			&admission.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ParamRef: params,
				ValidationActions: []admission.ValidationAction{action}})}
}

func object(kind, name string, spec any) *unstructured.Unstructured {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(spec)
	if err != nil {
		panic(err) // unreachable: a Kubernetes type always converts
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": admission.SchemeGroupVersion.String(),
		"kind": kind, "spec": content}}
	u.SetName(name)
	u.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "slipway"})
	return u
}

// matching matches creations and changes of Rollouts, but not of their status: in one version only (Exact), or in every
// version converted to that one (Equivalent).
func matching(version string, match admission.MatchPolicyType) *admission.MatchResources {
	rule := admission.NamedRuleWithOperations{}
	rule.Operations = []admission.OperationType{admission.Create, admission.Update}
	rule.APIGroups, rule.APIVersions = []string{v1beta1.GroupVersion.Group}, []string{version}
	rule.Resources, rule.Scope = []string{v1beta1.Resource.Resource}, new(admission.NamespacedScope)
	return &admission.MatchResources{ResourceRules: []admission.NamedRuleWithOperations{rule}, MatchPolicy: &match}
}

// workloadSpec rejects a second Rollout of a workload. It fails open on a cluster that cannot look up Rollouts.
func workloadSpec() *admission.ValidatingAdmissionPolicySpec {
	return &admission.ValidatingAdmissionPolicySpec{
		FailurePolicy: new(admission.Ignore), MatchConstraints: matching(v1beta1.GroupVersion.Version,
			admission.Equivalent),
		ParamKind: &admission.ParamKind{APIVersion: v1beta1.GroupVersion.String(), Kind: v1beta1.Kind},
		MatchConditions: []admission.MatchCondition{{Name: "another-workload",
			Expression: "request.operation == 'CREATE' || object.?spec.?workloadRef != oldObject.?spec.?workloadRef"}},
		Validations: []admission.Validation{{
			Expression: "params.metadata.name == object.metadata.name || params.?spec.?workloadRef != " +
				"object.?spec.?workloadRef",
			MessageExpression: "'the Rollout ' + params.metadata.name + ' of this namespace names the same workload, " +
				"which counts also while it is disabled: a workload has one Rollout. Change that one, or delete it " +
				"first'",
			Message: "another Rollout of this namespace names the same workload",
			Reason:  new(metav1.StatusReasonInvalid)}},
	}
}

// styleSpec checks the rules that depend on the style in v1alpha1, where the style is an annotation.
func styleSpec() *admission.ValidatingAdmissionPolicySpec {
	return &admission.ValidatingAdmissionPolicySpec{
		FailurePolicy: new(admission.Fail), MatchConstraints: matching(v1alpha1.GroupVersion.Version, admission.Exact),
		MatchConditions: []admission.MatchCondition{{Name: "changed", Expression: changedAlpha}},
		Variables:       styleVariables,
		Validations:     styleValidations,
	}
}

// warningsSpec warns of what Kruise Rollouts accepts silently.
func warningsSpec() *admission.ValidatingAdmissionPolicySpec {
	return &admission.ValidatingAdmissionPolicySpec{
		FailurePolicy: new(admission.Ignore), MatchConstraints: matching(v1beta1.GroupVersion.Version,
			admission.Equivalent),
		MatchConditions: []admission.MatchCondition{{Name: "changed",
			Expression: "request.operation == 'CREATE' || object.?spec != oldObject.?spec"}},
		Variables:   warningVariables,
		Validations: warnings,
	}
}
