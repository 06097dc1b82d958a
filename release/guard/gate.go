package guard

import (
	"cmp"

	admission "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/hold"
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
	// editorName is the name of the policy that records who edits a Rollout, changerName that of the one that keeps
	// clients from writing another user's name on a workload.
	editorName  = "rollout-by"
	changerName = "workload-by"
	// startingName is the name of the policy that refuses new Rollouts for now. It is part of the API server's message.
	startingName = "starting-try-again"
)

// gatePolicies returns the policies that hold changes of template of workloads with the label gate.Label. They have no
// parameters and fail closed: only the API server needs to run.
func (o Options) gatePolicies(version string) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, k := range workloads() {
		out = append(out, o.mutating(version, gatePrefix+k.name(), &admission.MutatingAdmissionPolicySpec{
			FailurePolicy: new(admission.Fail), MatchConstraints: k.labelled(), MatchConditions: o.otherClients(),
			Variables: k.workload.GateVariables(),
		}, nil, k.workload.GatePatch())...)
	}
	return out
}

// namedPolicies returns the policies that label a workload that a Rollout names, and hold an edit that comes before the
// label. Each Rollout of the namespace is a parameter. They fail open: an API server without the definition of Rollouts
// would otherwise reject every edit.
func (o Options) namedPolicies(version string) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, k := range workloads() {
		spec := &admission.MutatingAdmissionPolicySpec{FailurePolicy: new(admission.Ignore),
			MatchConstraints: k.unlabelled(),
			MatchConditions: o.otherCreators(admission.MatchCondition{Name: "named", Expression: k.workload.Named()},
				admission.MatchCondition{Name: "not-labelled", Expression: hold.Unlabelled}),
			ParamKind: &admission.ParamKind{APIVersion: v1beta1.GroupVersion.String(), Kind: v1beta1.Kind},
			Variables: k.workload.GateVariables()}
		out = append(out, o.mutating(version, namedPrefix+k.name(), spec,
			&admission.ParamRef{Selector: &metav1.LabelSelector{},
				ParameterNotFoundAction: new(admission.AllowAction)}, k.workload.NamedPatches()...)...)
	}
	return out
}

// startingPolicy returns the policy that refuses a new Rollout while the API server can't evaluate namedPolicies yet:
// for up to 30 seconds after its start, it may not find the kind of their parameters. A change of the Rollout's workload
// would then move pods at once. Only those who create Rollouts are refused, for any other edit may belong to a workload
// that no Rollout names. Otherwise it passes without an evaluation: the named parameter can't exist.
func (o Options) startingPolicy(version string) []*unstructured.Unstructured {
	match := rolloutMatch("")
	match.ResourceRules[0].Operations = []admission.OperationType{admission.Create}
	// the binding's doesn't count while the kind is not found
	match.NamespaceSelector = o.namespaces().NamespaceSelector
	return o.mutating(version, startingName, &admission.MutatingAdmissionPolicySpec{
		FailurePolicy: new(admission.Fail), MatchConstraints: match,
		ParamKind: &admission.ParamKind{APIVersion: v1beta1.GroupVersion.String(), Kind: v1beta1.Kind},
	}, &admission.ParamRef{Name: "-", ParameterNotFoundAction: new(admission.AllowAction)}, hold.NoPatch)
}

// labelled matches updates of workloads with the label of the gate.
func (k kind) labelled() *admission.MatchResources {
	match := matching(k)
	match.ObjectSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: gate.Label, Operator: metav1.LabelSelectorOpExists}}}
	return match
}

// unlabelled matches creations and updates of workloads without that label. Conditions are evaluated once for each
// Rollout of the namespace; the selector avoids that cost for workloads that have the label.
func (k kind) unlabelled() *admission.MatchResources {
	match := k.labelled()
	match.ResourceRules[0].Operations = []admission.OperationType{admission.Create, admission.Update}
	match.ObjectSelector.MatchExpressions[0].Operator = metav1.LabelSelectorOpDoesNotExist
	return match
}

// otherCreators returns conditions, and those of otherClients, which every creation meets.
func (o Options) otherCreators(conditions ...admission.MatchCondition) []admission.MatchCondition {
	for _, c := range o.otherClients() {
		conditions = append(conditions, admission.MatchCondition{Name: c.Name,
			Expression: hold.OrCreated(c.Expression)})
	}
	return conditions
}

// rolloutMatch matches edits of Rollouts, or of a subresource, in every version; the policies see them in the stored
// one.
func rolloutMatch(subresource string) *admission.MatchResources {
	match := matching(kind{Kind: traffic.Kind{Group: v1beta1.GroupVersion.Group,
		Resource: v1beta1.Resource.Resource + subresource}})
	match.ResourceRules[0].APIVersions = []string{v1beta1.GroupVersion.Version}
	return match
}

// statusByPolicy returns the policy that records in the status of a Rollout who sends a command.
func (o Options) statusByPolicy(version string) []*unstructured.Unstructured {
	return o.mutating(version, statusByName, &admission.MutatingAdmissionPolicySpec{
		FailurePolicy: new(admission.Fail), MatchConstraints: rolloutMatch("/status"),
		MatchConditions: []admission.MatchCondition{o.notTheEngine()},
		Variables:       hold.StatusVariables(),
	}, nil, hold.StatusPatch())
}

// editorPolicy returns the policy that records on a Rollout who edits its spec, because an edit is a command too. It
// fails open: without it only the name is missing.
func (o Options) editorPolicy(version string) []*unstructured.Unstructured {
	return o.mutating(version, editorName, &admission.MutatingAdmissionPolicySpec{
		FailurePolicy: new(admission.Ignore), MatchConstraints: rolloutMatch(""),
		MatchConditions: []admission.MatchCondition{o.notTheEngine()},
		Variables:       hold.EditorVariables(),
	}, nil, hold.EditorPatch())
}

// changerPolicy returns the policy that replaces another user's name on a workload, as the one who changed its
// template, by that of the client that writes it: also on a new workload, and on one that no Rollout names yet.
func (o Options) changerPolicy(version string) []*unstructured.Unstructured {
	match := matching(workloads()...)
	for i := range match.ResourceRules {
		match.ResourceRules[i].Operations = []admission.OperationType{admission.Create, admission.Update}
	}
	return o.mutating(version, changerName, &admission.MutatingAdmissionPolicySpec{
		FailurePolicy: new(admission.Ignore), MatchConstraints: match,
		MatchConditions: []admission.MatchCondition{{Name: "another-name", Expression: hold.OtherChanger},
			o.notTheEngine()},
	}, nil, hold.ChangerPatch)
}

// commandsSpec rejects changes of a Rollout's status that are not commands.
func (o Options) commandsSpec() *admission.ValidatingAdmissionPolicySpec {
	return &admission.ValidatingAdmissionPolicySpec{FailurePolicy: new(admission.Fail),
		MatchConstraints: rolloutMatch("/status"), MatchConditions: []admission.MatchCondition{o.notTheEngine()},
		Variables: hold.StatusVariables(), Validations: hold.StatusRefusals()}
}

// mutating returns a mutating policy that makes these patches, and its binding.
func (o Options) mutating(version, name string, spec *admission.MutatingAdmissionPolicySpec,
	params *admission.ParamRef, patches ...string) []*unstructured.Unstructured {
	spec.ReinvocationPolicy = admission.IfNeededReinvocationPolicy
	for _, patch := range patches {
		spec.Mutations = append(spec.Mutations, admission.Mutation{PatchType: admission.PatchTypeJSONPatch,
			JSONPatch: &admission.JSONPatch{Expression: patch}})
	}
	return []*unstructured.Unstructured{o.object(version, "MutatingAdmissionPolicy", name, spec),
		o.object(version, "MutatingAdmissionPolicyBinding", name, &admission.MutatingAdmissionPolicyBindingSpec{
			PolicyName: o.Name + "-" + name, ParamRef: params, MatchResources: o.namespaces()})}
}

// The timeouts of the gate's webhooks in seconds: where they fail closed, and where they fail open.
const (
	waitClosed = 10
	waitOpen   = 3
)

// hookSuffix ends the names of the webhooks.
const hookSuffix = ".gate.slipway.io"

// GateOf returns the name of the configuration of the gate's webhooks for the engine of a namespace.
func GateOf(namespace string) string { return "slipway-gate-" + namespace }

// Webhooks returns the gate for a cluster without mutating policies: the same conditions, and a server that decides.
// The webhooks match no edit that cannot move a pod, so that workloads can be scaled and edited otherwise while no
// server runs.
func Webhooks(o Options, client admission.WebhookClientConfig) *admission.MutatingWebhookConfiguration {
	o = o.withDefaults()
	out := o.configuration()
	hook := func(name string, match *admission.MatchResources,
		conditions []admission.MatchCondition) *admission.MutatingWebhook {
		out.Webhooks = append(out.Webhooks, o.hook(client, name, match, conditions))
		return &out.Webhooks[len(out.Webhooks)-1]
	}
	for _, k := range workloads() {
		hook(k.name(), k.labelled(), append(o.otherClients(),
			admission.MatchCondition{Name: "touched", Expression: k.workload.Touched()}))
		if o.NoRollouts {
			continue
		}
		named := hook(namedPrefix+k.name(), k.unlabelled(), o.otherCreators(
			admission.MatchCondition{Name: "templated", Expression: hold.OrCreated(hold.TemplateTouched)}))
		named.FailurePolicy, named.TimeoutSeconds = new(admission.Ignore), new(int32(waitOpen))
	}
	if !o.NoRollouts {
		hook(commandsName+".rollouts", rolloutMatch("/status"), []admission.MatchCondition{o.notTheEngine()})
	}
	return out
}

// configuration returns a configuration without webhooks.
func (o Options) configuration() *admission.MutatingWebhookConfiguration {
	out := &admission.MutatingWebhookConfiguration{}
	out.APIVersion, out.Kind = admission.SchemeGroupVersion.String(), "MutatingWebhookConfiguration"
	out.Name, out.Labels = o.Name, map[string]string{LabelGuard: o.Name}
	out.Annotations = o.annotations()
	return out
}

// hook returns a webhook that fails closed.
func (o Options) hook(client admission.WebhookClientConfig, name string, match *admission.MatchResources,
	conditions []admission.MatchCondition) admission.MutatingWebhook {
	w := admission.MutatingWebhook{Name: name + hookSuffix, ClientConfig: client,
		AdmissionReviewVersions: []string{"v1"}, NamespaceSelector: o.namespaces().NamespaceSelector,
		ObjectSelector: match.ObjectSelector, MatchConditions: conditions, MatchPolicy: new(admission.Equivalent),
		FailurePolicy: new(admission.Fail), TimeoutSeconds: new(int32(waitClosed)),
		SideEffects:        new(admission.SideEffectClassNone),
		ReinvocationPolicy: new(admission.IfNeededReinvocationPolicy)}
	for _, rule := range match.ResourceRules {
		w.Rules = append(w.Rules, rule.RuleWithOperations)
	}
	return w
}

// Object returns a configuration of webhooks as it is applied.
func Object(configuration *admission.MutatingWebhookConfiguration) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(configuration)
	if err != nil {
		return nil, err
	}
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	return &unstructured.Unstructured{Object: content}, nil
}

// withDefaults returns the options with the defaults filled in.
func (o Options) withDefaults() Options {
	o.Name = cmp.Or(o.Name, DefaultName)
	if len(o.Identities) == 0 {
		o.Identities = DefaultIdentities()
	}
	return o
}
