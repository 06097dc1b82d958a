package guard

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admission "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Names count only where the policies that record them are installed, bound and unchanged, for that namespace.
func TestProtection_RecordsNames_OnlyWherePoliciesAreInForce(t *testing.T) {
	t.Parallel()
	const engine = "system:serviceaccount:slipway:slipway"
	all := map[string]bool{"commands": true, "edits": true, "templates": true}
	without := func(parts ...string) map[string]bool {
		rest := map[string]bool{"commands": true, "edits": true, "templates": true}
		for _, part := range parts {
			rest[part] = false
		}
		return rest
	}
	remove := func(kind, name string) func([]*unstructured.Unstructured) []*unstructured.Unstructured {
		return func(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
			return slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
				return o.GetKind() == kind && o.GetName() == name
			})
		}
	}
	set := func(kind, name string, value any, path ...string) func(
		[]*unstructured.Unstructured) []*unstructured.Unstructured {
		return func(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
			for _, o := range objects {
				if o.GetKind() == kind && o.GetName() == name {
					require.NoError(t, unstructured.SetNestedField(o.Object, value, path...))
				}
			}
			return objects
		}
	}
	const policy, binding = "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"
	for name, c := range map[string]struct {
		reason    string
		options   Options
		change    func([]*unstructured.Unstructured) []*unstructured.Unstructured
		namespace map[string]string
		want      map[string]bool
	}{
		"Installed":  {"everything is recorded", Options{}, nil, nil, all},
		"OptedOut":   {"the guard is off here", Options{}, nil, map[string]string{LabelGuard: NamespaceOff}, nil},
		"NoGate":     {"the guard alone records nothing", Options{NoGate: true}, nil, nil, nil},
		"NoRollouts": {"the policies for Rollouts are missing", Options{NoRollouts: true}, nil, nil, nil},
		"Unbound": {"a policy without a binding does nothing", Options{}, remove(binding, "slipway-guard-status-by"), nil,
			without("commands")},
		"Removed": {"a binding without its policy does nothing", Options{}, remove(policy, "slipway-guard-rollout-by"), nil,
			without("edits")},
		"OtherPolicy": {"the policy is of another version", Options{}, set(policy, "slipway-guard-gate-deployments.apps",
			"Ignore", "spec", "failurePolicy"), nil, without("templates")},
		"Unlabelled": {"an edit before the label is not recorded", Options{}, remove(binding,
			"slipway-guard-rollouts-deployments.apps"), nil, without("templates")},
		"Forgeable": {"a new workload can have any name", Options{}, remove(binding, "slipway-guard-workload-by"), nil,
			without("templates")},
		"NarrowBinding": {"a binding for fewer namespaces", Options{}, set(binding, "slipway-guard-status-by",
			map[string]any{"matchLabels": map[string]any{"team": "pay"}}, "spec", "matchResources", "namespaceSelector"),
			map[string]string{"team": "shop"}, without("commands")},
		"OtherUser": {"the policy lets another user write names", Options{}, set(policy, "slipway-guard-status-by",
			[]any{map[string]any{"name": conditionNotTheEngine, "expression": notOneOf([]string{engine, "mallory"})}},
			"spec", "matchConditions"), nil, without("commands")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.options.Identities = []string{engine}
			objects := Policies(c.options, "v1", "v1")
			if c.change != nil {
				objects = c.change(objects)
			}
			p := Protection{Installed: Find(unstructureds(objects))}
			requireNames(t, c.want, p, c.namespace, c.reason)
		})
	}
	requireNames(t, nil, Protection{}, nil, "no guard is installed, even if the API server serves policies")
}

func requireNames(t *testing.T, want map[string]bool, p Protection, namespace map[string]string, reason string) {
	t.Helper()
	require.Equal(t, want["commands"], p.NamesCommands(namespace), "commands: %s", reason)
	require.Equal(t, want["edits"], p.NamesEdits(namespace), "edits: %s", reason)
	require.Equal(t, want["templates"], p.NamesTemplates("deployments.apps", namespace), "templates: %s", reason)
}

// A webhook records names as policies do, except those of editors.
func TestProtection_RecordsNames_WhereWebhookIsInForce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason    string
		options   Options
		change    func(w *admission.MutatingWebhook)
		namespace map[string]string
		want      map[string]bool
	}{
		"Registered": {"it is what this program writes", Options{}, func(*admission.MutatingWebhook) {}, nil,
			map[string]bool{"commands": true, "templates": true}},
		"OtherNamespaces": {"the chart selects the watched namespaces", Options{}, func(w *admission.MutatingWebhook) {
			w.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "pay"}}
		}, map[string]string{"team": "shop"}, nil},
		"FailsOpen": {"edits pass while no server answers", Options{}, func(w *admission.MutatingWebhook) {
			w.FailurePolicy = new(admission.Ignore)
		}, nil, nil},
		"OfOlderCluster": {"nothing is called for Rollouts", Options{NoRollouts: true},
			func(*admission.MutatingWebhook) {}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.options.Name = GateOf("slipway")
			hooks := Webhooks(c.options, admission.WebhookClientConfig{URL: new("https://server/mutate")})
			for i := range hooks.Webhooks {
				if !strings.HasPrefix(hooks.Webhooks[i].Name, namedPrefix) {
					c.change(&hooks.Webhooks[i])
				}
			}
			requireNames(t, c.want, Protection{Webhooks: []admission.MutatingWebhookConfiguration{*hooks}}, c.namespace,
				c.reason)
		})
	}
}

// An account that is not on a list is another client for that guard, in the namespaces that it guards.
func TestProtection_NamesWhatDoesNotKnowAnAccount(t *testing.T) {
	t.Parallel()
	const worker = "system:serviceaccount:bank:worker"
	listed := Options{Name: "ours", Identities: []string{"system:serviceaccount:slipway:slipway", worker}}
	other := Options{Name: "theirs", Identities: []string{"system:serviceaccount:slipway:slipway"}}
	find := func(options ...Options) (p Protection) {
		for _, o := range options {
			p.Installed = append(p.Installed, Find(unstructureds(Policies(o, "v1", "v1")))...)
		}
		return p
	}
	off := map[string]string{LabelGuard: NamespaceOff}
	require.Empty(t, find(listed).Unlisted(worker, nil))
	require.Equal(t, []string{"the guard theirs"}, find(listed, other).Unlisted(worker, nil))
	require.Empty(t, find(other).Unlisted(worker, off), "a namespace that opts out")
	hooks := Webhooks(Options{Name: "gate", Identities: other.Identities}, admission.WebhookClientConfig{})
	gated := Protection{Webhooks: []admission.MutatingWebhookConfiguration{*hooks}}
	require.Equal(t, []string{"the gate's webhook gate"}, gated.Unlisted(worker, nil))
	require.Empty(t, gated.Unlisted(other.Identities[0], nil))
	require.Empty(t, UnlistedReason(worker, nil))
	require.Contains(t, UnlistedReason(worker, []string{"the guard theirs"}), "the guard theirs of this cluster doesn't "+
		"know this worker's account "+worker+" and would undo what it writes: run `slipway guard install` with "+
		"--engine-identity "+worker)
}
