package guard

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	admission "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/rollout/traffic"
)

// Installed is an installation of the guard found on a cluster.
type Installed struct {
	Name       string
	Identities []string
	// Written says who wrote the identities; the zero value: unknown.
	Written Written
	// Version is the version of admissionregistration.k8s.io in which the policies were read, by guarded kind
	// ("deployments.apps") or Marks.
	Version map[string]string
	// Outdated are the guarded kinds whose policies or bindings differ from what this program would write; Unbound those
	// without a binding.
	Outdated, Unbound []string
	// Namespaces are the namespaces that it applies to.
	Namespaces *metav1.LabelSelector
}

// Marks is the name of Slipway's own labels and annotations among the guarded kinds.
const Marks = "slipway.io/* labels and annotations"

// SpecBy, StatusBy, TemplateBy, StatusCommands and NewRollouts are the names of the guards for Rollouts: SpecBy records
// who edits a spec, StatusBy who sends a command in the status; StatusCommands rejects all other changes of the status.
// TemplateBy keeps clients from writing another user's name on a workload. NewRollouts refuses Rollouts until the API
// server can hold their workloads.
const (
	NewRollouts    = "new Rollouts: not before the gate applies"
	TemplateBy     = "workloads: changes have a name"
	SpecBy         = "spec of Rollouts: edits have a name"
	StatusBy       = "status of Rollouts: commands have a name"
	StatusCommands = "status of Rollouts: nothing but commands"
)

// Find groups the policies and bindings with LabelGuard that are on a cluster into installations, ordered by name.
func Find(objects []unstructured.Unstructured) []Installed {
	byName := map[string][]unstructured.Unstructured{}
	for _, o := range objects {
		name := o.GetLabels()[LabelGuard]
		byName[name] = append(byName[name], o)
	}
	var out []Installed
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		out = append(out, installed(name, byName[name]))
	}
	return out
}

func installed(name string, objects []unstructured.Unstructured) Installed {
	i := Installed{Name: name, Version: map[string]string{}}
	bound := map[string]bool{}
	var policies []unstructured.Unstructured
	for _, o := range objects {
		if !strings.HasSuffix(o.GetKind(), "Binding") {
			policies = append(policies, o)
			continue
		}
		bound[jsonpatch.DigString(o.Object, "spec", "policyName")] = true
		var match admission.MatchResources
		if runtime.DefaultUnstructuredConverter.FromUnstructured(jsonpatch.DigObject(o.Object, "spec", "matchResources"),
			&match) == nil {
			i.Namespaces = match.NamespaceSelector
		}
	}
	for _, o := range policies {
		guarded := guardedBy(name, o)
		i.Version[guarded] = o.GroupVersionKind().Version
		if !bound[o.GetName()] {
			i.Unbound = append(i.Unbound, guarded)
		}
		i.Identities, i.Written = readIdentities(o.GetAnnotations())
	}
	i.Outdated = i.outdated(objects)
	slices.Sort(i.Unbound)
	return i
}

// outdated returns the kinds whose policies or bindings differ from what this program would write.
func (i Installed) outdated(objects []unstructured.Unstructured) []string {
	want := map[string]*unstructured.Unstructured{}
	for _, w := range Policies(i.Options(), "v1", "v1") {
		want[w.GetKind()+w.GetName()] = w
	}
	var out []string
	for _, o := range objects {
		if w, known := want[o.GetKind()+o.GetName()]; !known || !within(w.Object["spec"], o.Object["spec"]) {
			out = append(out, guardedBy(i.Name, o))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// guardedBy returns what a policy of an installation guards.
func guardedBy(name string, policy unstructured.Unstructured) string {
	guarded := strings.TrimPrefix(policy.GetName(), name+"-")
	if part, is := strings.CutPrefix(guarded, lockPrefix); is {
		return cmp.Or(lockedPart(part), guarded)
	}
	for prefix, title := range map[string]string{gatePrefix: gatedKind, namedPrefix: namedKind} {
		if kind, is := strings.CutPrefix(guarded, prefix); is {
			return title + kind
		}
	}
	return cmp.Or(map[string]string{marksName: Marks, statusByName: StatusBy, commandsName: StatusCommands,
		editorName: SpecBy, changerName: TemplateBy, startingName: NewRollouts, authorsName: AuthorsChecked}[guarded],
		guarded)
}

// within reports whether have contains everything in want; have may contain more, such as defaults.
func within(want, have any) bool {
	switch want := want.(type) {
	case map[string]any:
		have, ok := have.(map[string]any)
		for key := range want {
			ok = ok && within(want[key], have[key])
		}
		return ok
	case []any:
		have, ok := have.([]any)
		ok = ok && len(have) == len(want)
		for i := range want {
			ok = ok && within(want[i], have[i])
		}
		return ok
	}
	return want == have
}

// Options returns the options with which to install the installation again.
func (i Installed) Options() Options {
	o := Options{Name: i.Name, Identities: slices.Clone(i.Identities), Namespaces: i.Namespaces.DeepCopy()}
	o.NoGate, o.Lock = !i.Gates(), i.Locked()
	known := slices.Concat(Kinds(), Gated(true), LockParts())
	for name := range i.Version {
		if name != AuthorsChecked && !slices.Contains(known, name) {
			resource, group, _ := strings.Cut(name, ".")
			o.Custom = append(o.Custom, traffic.CustomKind(group, resource))
		}
	}
	return o
}

// Guards reports whether an installation guards objects in a namespace with these labels. Policies without bindings, as
// at the beginning of an installation, do nothing.
func (i Installed) Guards(namespace map[string]string) bool {
	return len(i.Unbound) < len(i.Version) && selects(i.Namespaces, namespace)
}

// Passes reports whether an installation lets the edits of a user pass.
func (i Installed) Passes(user string) bool { return slices.Contains(i.Identities, user) }

// Gates reports whether the installation includes the gate.
func (i Installed) Gates() bool {
	return slices.ContainsFunc(Gated(true), func(name string) bool { return i.Version[name] != "" })
}

// WebhookIdentities returns the users whose edits are not sent to the gate's webhooks, and who wrote that.
func WebhookIdentities(have *admission.MutatingWebhookConfiguration) ([]string, Written) {
	return readIdentities(have.Annotations)
}

// WebhookProblems returns how a configuration of the gate's webhooks on a cluster differs from the wanted one, except
// in what an administrator decides: the namespaces, the users whose edits pass, and the CA.
func WebhookProblems(have, want *admission.MutatingWebhookConfiguration) (problems []string) {
	found := map[string]admission.MutatingWebhook{}
	for _, w := range have.Webhooks {
		found[w.Name] = w
	}
	for _, w := range want.Webhooks {
		h, is := found[w.Name]
		switch {
		case !is:
			problems = append(problems, "it lacks the webhook "+w.Name)
		case !sameWebhook(h, w):
			problems = append(problems, "its webhook "+w.Name+" is of another version of Slipway")
		case !sameClient(h.ClientConfig, w.ClientConfig):
			problems = append(problems, "its webhook "+w.Name+" calls another server: "+ClientText(h.ClientConfig))
		}
	}
	return problems
}

// sameWebhook compares what a webhook is called for, and what happens if it does not answer.
func sameWebhook(have, want admission.MutatingWebhook) bool {
	decided := func(w admission.MutatingWebhook) admission.MutatingWebhook {
		others := slices.DeleteFunc(slices.Clone(w.MatchConditions), func(c admission.MatchCondition) bool {
			return c.Name == conditionNotTheEngine
		})
		return admission.MutatingWebhook{Rules: w.Rules, ObjectSelector: w.ObjectSelector, MatchConditions: others,
			FailurePolicy: w.FailurePolicy}
	}
	return equality.Semantic.DeepEqual(decided(withDefaults(have)), decided(withDefaults(want)))
}

// withDefaults returns a webhook as API servers store it.
func withDefaults(w admission.MutatingWebhook) admission.MutatingWebhook {
	if w.ObjectSelector == nil {
		w.ObjectSelector = &metav1.LabelSelector{}
	}
	return w
}

// sameClient reports whether two webhooks call the same address.
func sameClient(have, want admission.WebhookClientConfig) bool {
	have.CABundle, want.CABundle = nil, nil
	return equality.Semantic.DeepEqual(have, want)
}

// ClientText names the address of a webhook.
func ClientText(c admission.WebhookClientConfig) string {
	if c.Service != nil {
		return "Service " + c.Service.Namespace + "/" + c.Service.Name
	}
	return ptr.Deref(c.URL, "none")
}

// gatedKind and namedKind are prefixes of the names of what the gate holds: by the label, and by the Rollouts
// themselves.
const (
	gatedKind = "gate: "
	namedKind = "gate by Rollouts: "
)

// Gated returns the names of what the gate holds, on a cluster with or without Rollouts.
func Gated(rollouts bool) []string {
	var out []string
	for _, k := range workloads() {
		out = append(out, gatedKind+k.name())
		if rollouts {
			out = append(out, namedKind+k.name())
		}
	}
	slices.Sort(out)
	if rollouts {
		out = append(out, StatusBy, StatusCommands, SpecBy, TemplateBy, NewRollouts)
	}
	return out
}

// Kinds returns the names of what is guarded by default, Marks last.
func Kinds() []string {
	return append(phrase.Each(kinds(nil), kind.name), Marks)
}

// Fields returns the guarded fields of a kind as text.
func Fields(name string, o Options) string {
	for _, k := range workloads() {
		if name == gatedKind+k.name() || name == namedKind+k.name() {
			return dottedPath(k.workload.Pointer)
		}
	}
	for _, k := range kinds(o.Custom) {
		if k.name() != name {
			continue
		}
		fields := phrase.Each(k.Pointers, dottedPath)
		if k.Metadata {
			fields = append(fields, "labels and annotations that a script sets")
		}
		return strings.Join(fields, ", ")
	}
	return lockedFields(name)
}

// dottedPath returns a JSON Pointer as a dotted path.
func dottedPath(pointer string) string {
	return strings.ReplaceAll(strings.TrimPrefix(pointer, "/"), "/", ".")
}
