package guard

import (
	"slices"
	"time"

	admission "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/release/author"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout/traffic"
	"slipway.io/slipway/release/v1alpha1"
)

const (
	// authorsName is the name of the policy, and of the webhook, that checks whether authors of Rollouts and
	// TrafficRoutings may change what they refer to.
	authorsName = "authors"
	// AuthorsChecked is the name of that guard.
	AuthorsChecked = "spec of Rollouts and TrafficRoutings: authors may patch what they refer to"
)

// AuthorsOf returns the name of the configuration of the webhook that checks authors, for the engine of a namespace. It
// is apart from the gate's: its age decides which objects it has checked.
func AuthorsOf(namespace string) string { return "slipway-authors-" + namespace }

// authored matches creations and edits of Rollouts and TrafficRoutings.
func authored() *admission.MatchResources {
	match := rolloutMatch("")
	shared := matching(kind{Kind: traffic.Kind{Group: v1alpha1.TrafficRoutingResource.Group,
		Resource: v1alpha1.TrafficRoutingResource.Resource}})
	match.ResourceRules = append(match.ResourceRules, shared.ResourceRules...)
	for i := range match.ResourceRules {
		match.ResourceRules[i].Operations = []admission.OperationType{admission.Create, admission.Update}
	}
	return match
}

// authorConditions select the edits whose references are checked.
func (o Options) authorConditions() []admission.MatchCondition {
	return []admission.MatchCondition{o.notTheEngine(), {Name: "refers", Expression: author.Changed}}
}

// authorsSpec refuses references to objects that the user may not change. It fails closed: an object that it lets pass
// counts as checked.
func (o Options) authorsSpec() *admission.ValidatingAdmissionPolicySpec {
	return &admission.ValidatingAdmissionPolicySpec{FailurePolicy: new(admission.Fail), MatchConstraints: authored(),
		MatchConditions: append(o.authorConditions(),
			admission.MatchCondition{Name: "may-not-refer", Expression: author.MayNotRefer}),
		Variables: author.Variables(), Validations: author.Validations()}
}

// AuthorWebhooks returns the webhook that checks authors, for a cluster without validating policies.
func AuthorWebhooks(o Options, client admission.WebhookClientConfig) *admission.MutatingWebhookConfiguration {
	o = o.withDefaults()
	out := o.configuration()
	out.Webhooks = []admission.MutatingWebhook{o.hook(client, authorsName, authored(), o.authorConditions())}
	return out
}

// ChecksAuthors reports whether a configuration is one of AuthorWebhooks.
func ChecksAuthors(configuration *admission.MutatingWebhookConfiguration) bool {
	return slices.ContainsFunc(configuration.Webhooks, func(w admission.MutatingWebhook) bool {
		return w.Name == authorsName+hookSuffix
	})
}

// AuthorChecks returns what checks authors on a cluster, of the policies and bindings, and of the webhook
// configurations, with LabelGuard. A policy without a binding checks nothing.
func AuthorChecks(policies []unstructured.Unstructured,
	webhooks []admission.MutatingWebhookConfiguration) (all []author.Check) {
	for _, p := range policies {
		if p.GetKind() != validatingPolicy || p.GetName() != p.GetLabels()[LabelGuard]+"-"+authorsName {
			continue
		}
		for _, b := range policies {
			if b.GetKind() == validatingPolicy+"Binding" && jsonpatch.DigString(b.Object, "spec", "policyName") ==
				p.GetName() {
				var match admission.MatchResources
				if runtime.DefaultUnstructuredConverter.FromUnstructured(jsonpatch.DigObject(b.Object, "spec",
					"matchResources"), &match) == nil {
					all = append(all, author.Check{Since: later(&p, &b), Token: author.Token(p.GetUID(), b.GetUID()),
						Namespaces: match.NamespaceSelector})
				}
			}
		}
	}
	for i := range webhooks {
		if w := &webhooks[i]; ChecksAuthors(w) {
			all = append(all, author.Check{Since: w.CreationTimestamp.Time,
				Token: author.Token(types.UID(w.Name), w.UID), Namespaces: w.Webhooks[0].NamespaceSelector})
		}
	}
	return all
}

// later returns when the younger of two objects was created.
func later(a, b metav1.Object) time.Time {
	if a.GetCreationTimestamp().After(b.GetCreationTimestamp().Time) {
		return a.GetCreationTimestamp().Time
	}
	return b.GetCreationTimestamp().Time
}
