// Package admission builds the admission policies for Rollouts. They check what the rules of the definition cannot
// because it needs another object or an annotation, and warn of what is legal but probably not meant. The API server
// enforces them without any Slipway process.
package admission

import (
	admission "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"slipway.io/slipway/release/cel"
	"slipway.io/slipway/release/kruise/conversion"
	"slipway.io/slipway/release/kruise/v1alpha1"
	"slipway.io/slipway/release/kruise/v1beta1"
)

//go:generate go run ../../generate rollouts ../../../deploy/rollouts/policies.yaml

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

// Object builds a policy or a binding.
func Object(version, kind, name string, spec any) *unstructured.Unstructured {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(spec)
	if err != nil {
		panic(err) // unreachable: a Kubernetes type always converts
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": admission.GroupName + "/" + version,
		"kind": kind, "spec": content}}
	u.SetName(name)
	return u
}

func object(kind, name string, spec any) *unstructured.Unstructured {
	u := Object("v1", kind, name, spec)
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

// style returns an expression for the style that an object of v1alpha1 names, in lower case; "" if it names none.
func style(object string) string {
	text := func(name string) string { return cel.Annotation(object, name) + ".orValue('').lowerAscii()" }
	named, alias := text(conversion.AnnotationStyle), text(conversion.AnnotationStyleAlias)
	return "(" + named + " != '' ? " + named + " : " + alias + ")"
}

var (
	changedAlpha = "request.operation == 'CREATE' || object.?spec != oldObject.?spec || " + style("object") + " != " +
		style("oldObject")

	styleVariables = []admission.Variable{
		{Name: "style", Expression: style("object")},
		{Name: "was", Expression: "oldObject == null ? '' : " + style("oldObject")},
		{Name: "workload", Expression: "object.?spec.?objectRef.?workloadRef.orValue({})"},
		// A blue-green is shown as a canary in this version, but stays a blue-green.
		{Name: "inPlace", Expression: "!(" + cel.Annotation("object", conversion.AnnotationBeta) +
			`.orValue('').contains('"blueGreen":')) && ` +
			"(variables.style == 'partition' || variables.workload.?kind.orValue('') != 'Deployment' || " +
			"!variables.workload.?apiVersion.orValue('').startsWith('apps/'))"},
		{Name: "steps", Expression: "object.?spec.?strategy.?canary.?steps.orValue([])"},
	}

	styleValidations = []admission.Validation{
		{Expression: "variables.style in ['', 'canary', 'partition']",
			MessageExpression: "'the annotation " + conversion.AnnotationStyle +
				" is ' + variables.style + ': it must be canary or partition'",
			Message: "the style must be canary or partition"},
		{Expression: "!variables.inPlace || variables.steps.all(s, has(s.replicas) ? !(has(s.weight) || " +
			"has(s.matches)) || type(s.replicas) != string || int(s.replicas.replace('%', '')) <= 50 : " +
			"s.?weight.orValue(0) <= 50)",
			Message: "a step in style partition with weight or matches takes at most 50% of the pods: lower its " +
				"replicas (or weight, where they are absent), or leave weight and matches out of it"},
		{Expression: "request.operation == 'CREATE' || !(oldObject.?status.?phase.orValue('') in ['Progressing', " +
			"'Terminating']) || variables.style == variables.was",
			Message: "the annotation " + conversion.AnnotationStyle +
				" can't change while a release is under way: wait for its end, roll it back, or set disabled to true " +
				"first"},
	}
)

// annotationRouting names a TrafficRouting, in both versions.
const annotationRouting = "rollouts.kruise.io/trafficrouting"

// warningVariables are the parts of a v1beta1 Rollout that the warnings check.
var warningVariables = []admission.Variable{
	{Name: "strategy", Expression: "object.?spec.?strategy.orValue({})"},
	{Name: "body", Expression: "variables.strategy.?canary.orValue(variables.strategy.?blueGreen.orValue({}))"},
	{Name: "steps", Expression: "variables.body.?steps.orValue([])"},
	{Name: "routings", Expression: "variables.body.?trafficRoutings.orValue([])"},
	{Name: "routed",
		Expression: "size(variables.routings) > 0 || variables.body.?trafficRoutingRef.orValue('') != '' || " +
			"variables.strategy.?trafficRoutingRef.orValue('') != '' || " +
			cel.Annotation("object", annotationRouting) +
			".orValue('') != ''"},
	{Name: "shares", Expression: "variables.steps.map(s, has(s.traffic) ? int(s.traffic.replace('%', '')) : -1)"},
}

// warnings are the validations; each one that fails results in a warning.
var warnings = []admission.Validation{
	{Expression: "variables.routed || !variables.steps.exists(s, has(s.traffic) || size(s.?matches.orValue([])) > 0)",
		Message: "steps have traffic or matches, but nothing says what routes to the workload: they move pods only. " +
			"Give trafficRoutings or trafficRoutingRef"},
	{Expression: "!variables.routings.exists(r, [has(r.ingress), has(r.gateway), has(r.customNetworkRefs)].filter(b, " +
		"b).size() > 1)",
		Message: "an entry of trafficRoutings names several of ingress, gateway and customNetworkRefs: all of them apply"},
	{Expression: shrinkingTraffic,
		Message: "traffic shrinks from one step to the next: that step takes requests away from the new version"},
	{Expression: "!variables.steps.exists(s, has(s.traffic) && size(s.?matches.orValue([])) > 0)",
		Message: "a step has both traffic and matches: matches decide alone which requests go to the new version"},
	{Expression: "!variables.steps.exists(s, type(s.?pause.?duration.orValue(0)) == int && " +
		"s.?pause.?duration.orValue(0) < 0)",
		Message: "a pause has a negative duration: it counts as over, and the next step begins at once"},
}

// shrinkingTraffic is true if no step has less traffic than the step before.
var shrinkingTraffic = cel.Pairs("variables.shares", "variables.shares[i + 1] < 0 || variables.shares[i + 1] >= "+
	"variables.shares[i]")
