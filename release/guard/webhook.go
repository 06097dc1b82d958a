package guard

import (
	"cmp"

	admission "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/hold"
)

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
