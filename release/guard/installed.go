package guard

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	admission "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"slipway.io/slipway/release/gate/hold"
	"slipway.io/slipway/release/rollout/traffic"
)

// Installed is an installation of the guard as it was found on a cluster.
type Installed struct {
	Name       string
	Identities []string
	// Version is the version of admissionregistration.k8s.io in which the policies were read, by the kind that is guarded
	// ("deployments.apps") or Marks.
	Version map[string]string
	// Outdated are the guarded kinds whose policies are not those that this program would write; Unbound those without a binding.
	Outdated, Unbound []string
	// Namespaces are the namespaces that it holds for.
	Namespaces *metav1.LabelSelector
}

// Marks stands for Slipway's own labels and annotations among the kinds that are guarded.
const Marks = "slipway.io/* labels and annotations"

// StatusBy and StatusCommands stand for the status of Rollouts: who sends a command is noted, and anything else is refused. SpecBy stands for
// their spec: who edits it is noted.
const (
	SpecBy         = "spec of Rollouts: edits have a name"
	StatusBy       = "status of Rollouts: commands have a name"
	StatusCommands = "status of Rollouts: nothing but commands"
)

// Find tells installations from the policies and bindings with LabelGuard that are on a cluster, in order of their names.
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
	for _, o := range objects {
		if !strings.HasSuffix(o.GetKind(), "Binding") {
			continue
		}
		policy, _, _ := unstructured.NestedString(o.Object, "spec", "policyName")
		bound[policy] = true
		raw, _, _ := unstructured.NestedMap(o.Object, "spec", "matchResources")
		var match admission.MatchResources
		if runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &match) == nil {
			i.Namespaces = match.NamespaceSelector
		}
	}
	var policies []unstructured.Unstructured
	for _, o := range objects {
		if strings.HasSuffix(o.GetKind(), "Binding") {
			continue
		}
		policies = append(policies, o)
		guarded := guardedBy(name, o)
		i.Version[guarded] = o.GroupVersionKind().Version
		if !bound[o.GetName()] {
			i.Unbound = append(i.Unbound, guarded)
		}
		if json.Unmarshal([]byte(o.GetAnnotations()[AnnotationIdentities]), &i.Identities) != nil {
			i.Identities = nil
		}
	}
	i.Outdated = i.outdated(policies)
	slices.Sort(i.Unbound)
	return i
}

// outdated are the kinds whose policies differ from what this program would write.
func (i Installed) outdated(policies []unstructured.Unstructured) []string {
	want := map[string]*unstructured.Unstructured{}
	for _, w := range Policies(i.Options(), "v1", "v1") {
		want[w.GetKind()+w.GetName()] = w
	}
	var out []string
	for _, p := range policies {
		if w, known := want[p.GetKind()+p.GetName()]; !known || !within(w.Object["spec"], p.Object["spec"]) {
			out = append(out, guardedBy(i.Name, p))
		}
	}
	return out
}

// guardedBy is what a policy of an installation guards.
func guardedBy(name string, policy unstructured.Unstructured) string {
	guarded := strings.TrimPrefix(policy.GetName(), name+"-")
	switch guarded {
	case marksName:
		return Marks
	case notedName:
		return StatusBy
	case commandsName:
		return StatusCommands
	case editorName:
		return SpecBy
	}
	if gated, is := strings.CutPrefix(guarded, gatePrefix); is {
		return gatedKind + gated
	}
	if named, is := strings.CutPrefix(guarded, namedPrefix); is {
		return namedKind + named
	}
	return guarded
}

// within says that everything that one value says stands in another one too, which may have defaults besides.
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

// Options are those with which the installation can be repeated.
func (i Installed) Options() Options {
	o := Options{Name: i.Name, Identities: slices.Clone(i.Identities), Namespaces: i.Namespaces.DeepCopy()}
	o.NoGate = !i.Gates()
	for name := range i.Version {
		if !slices.Contains(Kinds(), name) && !slices.Contains(Gated(true), name) {
			resource, group, _ := strings.Cut(name, ".")
			o.Custom = append(o.Custom, traffic.CustomKind(group, resource))
		}
	}
	return o
}

// Guards says that an installation guards objects of a namespace with these labels.
func (i Installed) Guards(namespace map[string]string) bool {
	if i.Namespaces == nil {
		return true
	}
	selector, err := metav1.LabelSelectorAsSelector(i.Namespaces)
	return err == nil && selector.Matches(labels.Set(namespace))
}

// Passes says that an installation lets the edits of a user pass, in a namespace.
func (i Installed) Passes(user, namespace string) bool {
	return slices.ContainsFunc(i.Identities, func(identity string) bool {
		return strings.ReplaceAll(identity, InNamespace, namespace) == user
	})
}

// Gates says that the installation has a gate.
func (i Installed) Gates() bool {
	return slices.ContainsFunc(Gated(true), func(name string) bool { return i.Version[name] != "" })
}

// Names of what the gate holds among what is guarded begin with these: by the label, and by the Rollouts themselves.
const (
	gatedKind = "gate: "
	namedKind = "gate by Rollouts: "
)

// Gated are the names of what the gate holds, on a cluster that knows Rollouts or one that doesn't.
func Gated(rollouts bool) []string {
	var out []string
	for _, h := range hold.Kinds() {
		out = append(out, gatedKind+kindOf(h).name())
		if rollouts {
			out = append(out, namedKind+kindOf(h).name())
		}
	}
	slices.Sort(out)
	if rollouts {
		out = append(out, StatusBy, StatusCommands, SpecBy)
	}
	return out
}

// Kinds are the names of what is guarded by default, Marks the last.
func Kinds() []string {
	var out []string
	for _, k := range kinds(nil) {
		out = append(out, k.name())
	}
	return append(out, Marks)
}

// Fields are the fields of a kind that are guarded, in words.
func Fields(name string, o Options) string {
	for _, h := range hold.Kinds() {
		if name == gatedKind+kindOf(h).name() || name == namedKind+kindOf(h).name() {
			return words(h.Pointer)
		}
	}
	for _, k := range kinds(o.Custom) {
		if k.name() != name {
			continue
		}
		var fields []string
		for _, pointer := range k.Pointers {
			fields = append(fields, words(pointer))
		}
		if k.Metadata {
			fields = append(fields, "labels and annotations that a script sets")
		}
		return strings.Join(fields, ", ")
	}
	return ""
}

// words is a JSON Pointer as people write it.
func words(pointer string) string {
	return strings.ReplaceAll(strings.TrimPrefix(pointer, "/"), "/", ".")
}
