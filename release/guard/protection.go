package guard

import (
	"fmt"
	"slices"

	admission "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"slipway.io/slipway/release/phrase"
)

// Protection is what an API server does to edits by clients other than engines: by installations of the guard, and by
// the webhooks of gates.
type Protection struct {
	Installed []Installed
	Webhooks  []admission.MutatingWebhookConfiguration
}

// Unlisted describes everything that treats a user as another client than the engine, in a namespace with
// these labels.
func (p Protection) Unlisted(user string, of map[string]string) (by []string) {
	for _, i := range p.Installed {
		if i.Guards(of) && !i.Passes(user) {
			by = append(by, "the guard "+i.Name)
		}
	}
	for i := range p.Webhooks {
		hooks := &p.Webhooks[i]
		identities, _ := WebhookIdentities(hooks)
		// an older version wrote it, without this list; or it looks at no edit of a worker
		if len(identities) == 0 || ChecksAuthors(hooks) {
			continue
		}
		listed := Installed{Identities: identities}.Passes(user)
		if !listed && slices.ContainsFunc(hooks.Webhooks, func(w admission.MutatingWebhook) bool {
			return selects(w.NamespaceSelector, of)
		}) {
			by = append(by, "the gate's webhook "+hooks.Name)
		}
	}
	return by
}

// UnlistedReason says why a user's edits are undone by these guards and gates, and what to do; "" without any.
func UnlistedReason(user string, by []string) string {
	if len(by) == 0 {
		return ""
	}
	return fmt.Sprintf("%s of this cluster doesn't know this worker's account %s and would undo what it writes: run "+
		"`slipway guard install` with --engine-identity %s, and with those of the cluster's other engines and parties",
		phrase.List(by, 3), user, user)
}

// NamesCommands reports whether the API server records who sends a command in the status of a Rollout, in a namespace
// with these labels. Otherwise the name there is whatever the client has written.
func (p Protection) NamesCommands(of map[string]string) bool {
	return p.enforces(of, []string{StatusBy}, commandsName+".rollouts")
}

// NamesEdits reports the same for edits of a Rollout. No webhook records them.
func (p Protection) NamesEdits(of map[string]string) bool {
	return p.enforces(of, []string{SpecBy})
}

// NamesTemplates reports the same for changes of the pod template of a workload of a kind, "deployments.apps".
func (p Protection) NamesTemplates(kind string, of map[string]string) bool {
	return p.enforces(of, []string{gatedKind + kind, namedKind + kind, TemplateBy}, kind, namedPrefix+kind)
}

// enforces reports whether one installation has all of these parts, or one configuration all of these webhooks.
func (p Protection) enforces(of map[string]string, parts []string, hooks ...string) bool {
	return slices.ContainsFunc(p.Installed, func(i Installed) bool { return i.enforces(of, parts) }) ||
		len(hooks) > 0 && slices.ContainsFunc(p.Webhooks, func(c admission.MutatingWebhookConfiguration) bool {
			return calls(&c, of, hooks)
		})
}

// enforces reports whether all of these parts are installed, as this program would write them, and bound.
func (i Installed) enforces(of map[string]string, parts []string) bool {
	return i.Guards(of) && !slices.ContainsFunc(parts, func(part string) bool {
		return i.Version[part] == "" || slices.Contains(i.Unbound, part) || slices.Contains(i.Outdated, part)
	})
}

// calls reports whether a configuration has all of these webhooks, as this program would write them, for a namespace
// with these labels.
func calls(have *admission.MutatingWebhookConfiguration, of map[string]string, hooks []string) bool {
	want := map[string]admission.MutatingWebhook{}
	identities, _ := WebhookIdentities(have)
	for _, w := range Webhooks(Options{Name: have.Name, Identities: identities},
		admission.WebhookClientConfig{}).Webhooks {
		want[w.Name] = w
	}
	return !slices.ContainsFunc(hooks, func(name string) bool {
		return !slices.ContainsFunc(have.Webhooks, func(w admission.MutatingWebhook) bool {
			return w.Name == name+hookSuffix && sameWebhook(w, want[w.Name]) && selects(w.NamespaceSelector, of)
		})
	})
}

// selects reports whether a selector, of which none selects everything, selects a namespace with these labels.
func selects(selector *metav1.LabelSelector, namespace map[string]string) bool {
	if selector == nil {
		return true
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(labels.Set(namespace))
}
