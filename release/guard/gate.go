package guard

import (
	"cmp"

	admission "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/gate/hold"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout/traffic"
)

const (
	// gatePrefix starts the names, after the installation's name, of the policies that hold by the label gate.Label.
	gatePrefix = "gate-"
	// namedPrefix starts the names of the policies that have Rollouts as parameters.
	namedPrefix = "rollouts-"
	// statusByName and commandsName are the names of the policies for the status of Rollouts.
	statusByName = "status-by"
	commandsName = "status"
	// editorName is the name of the policy that records who edits a Rollout.
	editorName = "rollout-by"
)

// gatePolicies returns the policies that hold changes of template of workloads with the label gate.Label. They have no
// parameters and fail closed: only the API server needs to run.
func (o Options) gatePolicies(version string) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, k := range workloads() {
		match := matching(k)
		match.ObjectSelector = labelledBy(metav1.LabelSelectorOpExists)
		out = append(out, o.mutating(version, gatePrefix+k.name(), &admission.MutatingAdmissionPolicySpec{
			FailurePolicy: new(admission.Fail), MatchConstraints: match, MatchConditions: o.otherClients(),
			Variables: k.workload.GateVariables(),
			Mutations: []admission.Mutation{jsonPatch(k.workload.GatePatch())},
		}, nil)...)
	}
	return out
}

// namedPolicies returns the policies that label a workload that a Rollout names, and hold an edit that comes before the
// label. Each Rollout of the namespace is a parameter. They fail open: an API server without the definition of Rollouts
// would otherwise reject every edit.
func (o Options) namedPolicies(version string) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, k := range workloads() {
		match := matching(k)
		match.ResourceRules[0].Operations = []admission.OperationType{admission.Create, admission.Update}
		// Conditions are evaluated once for each Rollout of the namespace; the selector avoids that cost for workloads
		// that have the label.
		match.ObjectSelector = labelledBy(metav1.LabelSelectorOpDoesNotExist)
		conditions := []admission.MatchCondition{{Name: "named", Expression: k.workload.Named()},
			{Name: "not-labelled", Expression: hold.Unlabelled}}
		for _, c := range o.otherClients() {
			conditions = append(conditions, admission.MatchCondition{Name: c.Name,
				Expression: hold.OrCreated(c.Expression)})
		}
		spec := &admission.MutatingAdmissionPolicySpec{FailurePolicy: new(admission.Ignore), MatchConstraints: match,
			MatchConditions: conditions,
			ParamKind:       &admission.ParamKind{APIVersion: v1beta1.GroupVersion.String(), Kind: v1beta1.Kind},
			Variables:       k.workload.GateVariables()}
		for _, expression := range k.workload.NamedPatches() {
			spec.Mutations = append(spec.Mutations, jsonPatch(expression))
		}
		out = append(out, o.mutating(version, namedPrefix+k.name(), spec,
			&admission.ParamRef{Selector: &metav1.LabelSelector{},
				ParameterNotFoundAction: new(admission.AllowAction)})...)
	}
	return out
}

// statusMatch matches edits of the status of Rollouts in every version; the policies see them in the stored one.
func statusMatch() *admission.MatchResources {
	status := traffic.Kind{Group: v1beta1.GroupVersion.Group, Resource: v1beta1.Resource.Resource + "/status"}
	match := matching(kind{Kind: status})
	match.ResourceRules[0].APIVersions = []string{v1beta1.GroupVersion.Version}
	return match
}

// statusByPolicy returns the policy that records in the status of a Rollout who sends a command.
func (o Options) statusByPolicy(version string) []*unstructured.Unstructured {
	return o.mutating(version, statusByName, &admission.MutatingAdmissionPolicySpec{
		FailurePolicy: new(admission.Fail), MatchConstraints: statusMatch(),
		MatchConditions: []admission.MatchCondition{o.notTheEngine()},
		Variables:       hold.StatusVariables(), Mutations: []admission.Mutation{jsonPatch(hold.StatusPatch())},
	}, nil)
}

// editorPolicy returns the policy that records on a Rollout who edits its spec, because an edit is a command too. It
// fails open: without it only the name is missing.
func (o Options) editorPolicy(version string) []*unstructured.Unstructured {
	match := matching(kind{Kind: traffic.Kind{Group: v1beta1.GroupVersion.Group, Resource: v1beta1.Resource.Resource}})
	match.ResourceRules[0].APIVersions = []string{v1beta1.GroupVersion.Version}
	return o.mutating(version, editorName, &admission.MutatingAdmissionPolicySpec{
		FailurePolicy: new(admission.Ignore), MatchConstraints: match,
		MatchConditions: []admission.MatchCondition{o.notTheEngine()},
		Variables:       hold.EditorVariables(), Mutations: []admission.Mutation{jsonPatch(hold.EditorPatch())},
	}, nil)
}

// commandsSpec rejects changes of a Rollout's status that are not commands.
func (o Options) commandsSpec() *admission.ValidatingAdmissionPolicySpec {
	return &admission.ValidatingAdmissionPolicySpec{FailurePolicy: new(admission.Fail), MatchConstraints: statusMatch(),
		MatchConditions: []admission.MatchCondition{o.notTheEngine()}, Variables: hold.StatusVariables(),
		Validations: hold.StatusRefusals()}
}

// mutating returns a mutating policy and its binding.
func (o Options) mutating(version, name string, spec *admission.MutatingAdmissionPolicySpec,
	params *admission.ParamRef) []*unstructured.Unstructured {
	spec.ReinvocationPolicy = admission.IfNeededReinvocationPolicy
	return []*unstructured.Unstructured{o.object(version, "MutatingAdmissionPolicy", name, spec),
		o.object(version, "MutatingAdmissionPolicyBinding", name, &admission.MutatingAdmissionPolicyBindingSpec{
			PolicyName: o.Name + "-" + name, ParamRef: params, MatchResources: o.namespaces()})}
}

func jsonPatch(expression string) admission.Mutation {
	return admission.Mutation{PatchType: admission.PatchTypeJSONPatch,
		JSONPatch: &admission.JSONPatch{Expression: expression}}
}

// The timeouts of the gate's webhooks in seconds: where they fail closed, and where they fail open.
const (
	waitClosed = 10
	waitOpen   = 3
)

// Webhooks returns the gate for a cluster without mutating policies: the same conditions, and a server that decides.
// The webhooks match no edit that cannot move a pod, so that workloads can be scaled and edited otherwise while no
// server runs.
func Webhooks(o Options, client admission.WebhookClientConfig) *admission.MutatingWebhookConfiguration {
	o = o.withDefaults()
	out := &admission.MutatingWebhookConfiguration{}
	out.APIVersion, out.Kind = admission.SchemeGroupVersion.String(), "MutatingWebhookConfiguration"
	out.Name, out.Labels = o.Name, map[string]string{LabelGuard: o.Name}
	hook := func(name string, match *admission.MatchResources,
		conditions []admission.MatchCondition) *admission.MutatingWebhook {
		w := admission.MutatingWebhook{Name: name + ".gate.slipway.io", ClientConfig: client,
			AdmissionReviewVersions: []string{"v1"},
			NamespaceSelector:       o.namespaces().NamespaceSelector, ObjectSelector: match.ObjectSelector,
			MatchConditions: conditions,
			MatchPolicy:     new(admission.Equivalent), FailurePolicy: new(admission.Fail),
			TimeoutSeconds:     new(int32(waitClosed)),
			SideEffects:        new(admission.SideEffectClassNone),
			ReinvocationPolicy: new(admission.IfNeededReinvocationPolicy)}
		for _, rule := range match.ResourceRules {
			w.Rules = append(w.Rules, rule.RuleWithOperations)
		}
		out.Webhooks = append(out.Webhooks, w)
		return &out.Webhooks[len(out.Webhooks)-1]
	}
	for _, k := range workloads() {
		match := matching(k)
		match.ObjectSelector = labelledBy(metav1.LabelSelectorOpExists)
		hook(k.name(), match, append(o.otherClients(),
			admission.MatchCondition{Name: "touched", Expression: k.workload.Touched()}))
		if o.NoRollouts {
			continue
		}
		match = matching(k)
		match.ResourceRules[0].Operations = []admission.OperationType{admission.Create, admission.Update}
		match.ObjectSelector = labelledBy(metav1.LabelSelectorOpDoesNotExist)
		conditions := []admission.MatchCondition{{Name: "templated", Expression: hold.OrCreated(hold.TemplateTouched)}}
		for _, c := range o.otherClients() {
			conditions = append(conditions, admission.MatchCondition{Name: c.Name,
				Expression: hold.OrCreated(c.Expression)})
		}
		named := hook(namedPrefix+k.name(), match, conditions)
		named.FailurePolicy, named.TimeoutSeconds = new(admission.Ignore), new(int32(waitOpen))
	}
	if !o.NoRollouts {
		hook(commandsName+".rollouts", statusMatch(), []admission.MatchCondition{o.notTheEngine()})
	}
	return out
}

func labelledBy(operator metav1.LabelSelectorOperator) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: gate.Label,
		Operator: operator}}}
}

// withDefaults returns the options with the defaults filled in.
func (o Options) withDefaults() Options {
	o.Name = cmp.Or(o.Name, DefaultName)
	if len(o.Identities) == 0 {
		o.Identities = DefaultIdentities()
	}
	return o
}
