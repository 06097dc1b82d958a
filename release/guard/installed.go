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
	if guarded == marksName {
		return Marks
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
	for name := range i.Version {
		if !slices.Contains(Kinds(), name) {
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
	for _, k := range kinds(o.Custom) {
		if k.name() != name {
			continue
		}
		var fields []string
		for _, pointer := range k.Pointers {
			fields = append(fields, strings.ReplaceAll(strings.TrimPrefix(pointer, "/"), "/", "."))
		}
		if k.Metadata {
			fields = append(fields, "labels and annotations that a script sets")
		}
		return strings.Join(fields, ", ")
	}
	return ""
}
