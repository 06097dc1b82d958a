package guard

import (
	admission "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/gate/hold"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout/traffic"
)

const (
	// gatePrefix begins, behind the name of the installation, the names of the policies that hold by the label gate.Label.
	gatePrefix = "gate-"
	// namedPrefix begins those of the policies that have the Rollouts as parameters.
	namedPrefix = "rollouts-"
	// notedName and commandsName are those of the policies for the status of Rollouts.
	notedName    = "status-by"
	commandsName = "status"
	// editorName is that of the policy that notes who edits a Rollout.
	editorName = "rollout-by"
)

// gatePolicies are the policies that hold changes of template of workloads with the label gate.Label. They have no parameters and fail
// closed: nothing but the API server needs to be alive.
func (o Options) gatePolicies(version string) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, h := range hold.Kinds() {
		k := kindOf(h)
		match := matching(k)
		match.ObjectSelector = labelledBy(metav1.LabelSelectorOpExists)
		out = append(out, o.mutating(version, gatePrefix+k.name(), &admission.MutatingAdmissionPolicySpec{
			FailurePolicy: new(admission.Fail), MatchConstraints: match, MatchConditions: o.others(), Variables: h.GateVariables(),
			Mutations: []admission.Mutation{jsonPatch(h.GatePatch())},
		}, nil)...)
	}
	return out
}

// namedPolicies are the policies that label a workload that a Rollout names, and hold the edit that comes before the label. Each Rollout of
// the namespace is a parameter. They fail open: an API server that doesn't know Rollouts, or not yet, would refuse every edit otherwise.
func (o Options) namedPolicies(version string) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, h := range hold.Kinds() {
		k := kindOf(h)
		match := matching(k)
		match.ResourceRules[0].Operations = []admission.OperationType{admission.Create, admission.Update}
		// Conditions are evaluated once for each Rollout of the namespace: a workload that has the label costs nothing so.
		match.ObjectSelector = labelledBy(metav1.LabelSelectorOpDoesNotExist)
		conditions := []admission.MatchCondition{{Name: "named", Expression: h.Named()}, {Name: "not-labelled", Expression: hold.Unlabelled}}
		for _, c := range o.others() {
			conditions = append(conditions, admission.MatchCondition{Name: c.Name, Expression: hold.OrCreated(c.Expression)})
		}
		spec := &admission.MutatingAdmissionPolicySpec{FailurePolicy: new(admission.Ignore), MatchConstraints: match, MatchConditions: conditions,
			ParamKind: &admission.ParamKind{APIVersion: v1beta1.GroupVersion.String(), Kind: v1beta1.Kind}, Variables: h.GateVariables()}
		for _, expression := range h.NamedPatches() {
			spec.Mutations = append(spec.Mutations, jsonPatch(expression))
		}
		out = append(out, o.mutating(version, namedPrefix+k.name(), spec,
			&admission.ParamRef{Selector: &metav1.LabelSelector{}, ParameterNotFoundAction: new(admission.AllowAction)})...)
	}
	return out
}

// statusMatch is an edit of the status of a Rollout in any version, which the policies see in the stored one.
func statusMatch() *admission.MatchResources {
	status := traffic.Kind{Group: v1beta1.GroupVersion.Group, Resource: v1beta1.Resource.Resource + "/status"}
	match := matching(kind{Kind: status})
	match.ResourceRules[0].APIVersions = []string{v1beta1.GroupVersion.Version}
	return match
}

// byPolicy notes in the status of a Rollout who sends a command.
func (o Options) byPolicy(version string) []*unstructured.Unstructured {
	return o.mutating(version, notedName, &admission.MutatingAdmissionPolicySpec{
		FailurePolicy: new(admission.Fail), MatchConstraints: statusMatch(), MatchConditions: []admission.MatchCondition{o.notTheEngine()},
		Variables: hold.StatusVariables(), Mutations: []admission.Mutation{jsonPatch(hold.StatusPatch())},
	}, nil)
}

// editorPolicy notes on a Rollout who edits its spec: that is a command, too. Without it nobody is named, so that it fails open.
func (o Options) editorPolicy(version string) []*unstructured.Unstructured {
	match := matching(kind{Kind: traffic.Kind{Group: v1beta1.GroupVersion.Group, Resource: v1beta1.Resource.Resource}})
	match.ResourceRules[0].APIVersions = []string{v1beta1.GroupVersion.Version}
	return o.mutating(version, editorName, &admission.MutatingAdmissionPolicySpec{
		FailurePolicy: new(admission.Ignore), MatchConstraints: match, MatchConditions: []admission.MatchCondition{o.notTheEngine()},
		Variables: hold.EditorVariables(), Mutations: []admission.Mutation{jsonPatch(hold.EditorPatch())},
	}, nil)
}

// commandsSpec refuses what isn't a command in the status of a Rollout.
func (o Options) commandsSpec() *admission.ValidatingAdmissionPolicySpec {
	return &admission.ValidatingAdmissionPolicySpec{FailurePolicy: new(admission.Fail), MatchConstraints: statusMatch(),
		MatchConditions: []admission.MatchCondition{o.notTheEngine()}, Variables: hold.StatusVariables(), Validations: hold.StatusRefusals()}
}

// mutating is a mutating policy and its binding.
func (o Options) mutating(version, name string, spec *admission.MutatingAdmissionPolicySpec,
	params *admission.ParamRef) []*unstructured.Unstructured {
	spec.ReinvocationPolicy = admission.IfNeededReinvocationPolicy
	return []*unstructured.Unstructured{o.object(version, "MutatingAdmissionPolicy", name, spec),
		o.object(version, "MutatingAdmissionPolicyBinding", name, &admission.MutatingAdmissionPolicyBindingSpec{
			PolicyName: o.Name + "-" + name, ParamRef: params, MatchResources: o.namespaces()})}
}

// kindOf is a kind that the gate holds, as the guard names it.
func kindOf(h hold.Kind) kind {
	return kind{traffic.Kind{Group: h.Group, Resource: h.Resource}, true}
}

func jsonPatch(expression string) admission.Mutation {
	return admission.Mutation{PatchType: admission.PatchTypeJSONPatch, JSONPatch: &admission.JSONPatch{Expression: expression}}
}
