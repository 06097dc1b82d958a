// Package guard builds the admission policies by which the API server protects what a release has borrowed. A change of
// a borrowed field by another client is reverted to the stored value, the rest of that edit is applied, and Slipway's
// own marks cannot be edited. The policies are made from the same tables as the code that borrows, so that no borrowed
// field is left out. The package does no I/O.
package guard

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	admission "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"slipway.io/slipway/release/account"
	"slipway.io/slipway/release/cel"
	"slipway.io/slipway/release/hold"
	rollouts "slipway.io/slipway/release/kruise/admission"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/rollout/traffic"
	"slipway.io/slipway/release/workload"
)

//go:generate go run ../generate guard ../../deploy/guard/policies.yaml
//go:generate go run ../generate lock ../../deploy/guard/lock.yaml
//go:generate go run ../generate gate ../../deploy/guard/webhooks.yaml

const (
	// DefaultName is the default prefix of the policies' names.
	DefaultName = "slipway-guard"
	// LabelGuard is set on the policies and their bindings: the name of the installation that they belong to. A
	// namespace with this label is guarded only by an installation that selects namespaces by it.
	LabelGuard = "slipway.io/guard"
	// AnnotationIdentities lists, as JSON, the identities whose edits pass.
	AnnotationIdentities = "slipway.io/engine-identities"
	// AnnotationWritten says, as JSON, who wrote that list, and when (Written).
	AnnotationWritten = "slipway.io/engine-identities-written"
	// NamespaceOff is the value of LabelGuard on a namespace that opts out.
	NamespaceOff = "off"
)

// DefaultIdentities returns the service accounts of deploy/rbac: of workers of the engine, and of a party's worker. They
// are in namespaces of their own: the administrators of a namespace may act as its accounts.
func DefaultIdentities() []string {
	return []string{account.User("slipway", "slipway"), account.User("slipway-party", "slipway-party")}
}

// Options specify what is guarded, and whose edits pass. The zero value is usable.
type Options struct {
	// Name is the prefix of the policies' names; default: DefaultName. Two installations on one cluster need different
	// names.
	Name string
	// Identities are the users whose edits pass: the engine's; default: DefaultIdentities.
	Identities []string
	// Written says who writes the identities; the zero value: unknown.
	Written Written
	// Namespaces selects the namespaces that are guarded; nil: all. A namespace with LabelGuard is included only if
	// this selects by that label.
	Namespaces *metav1.LabelSelector
	// Custom are further kinds that scripts change, in addition to Istio's.
	Custom []traffic.Kind
	// Lock adds the lock: what would get past the guard and the gate needs the permission Override.
	Lock bool
	// NoGate omits the gate, which holds changes of the workloads that Rollouts name.
	NoGate bool
	// NoRollouts omits the policies that refer to Rollouts: the cluster has no definition of them, or it belongs to
	// another product.
	NoRollouts bool
}

// Policies returns the policies and their bindings, in the versions of admissionregistration.k8s.io that the cluster
// serves. An empty version omits that kind of policy.
func Policies(o Options, mutating, validating string) []*unstructured.Unstructured {
	o = o.withDefaults()
	var out []*unstructured.Unstructured
	all := kinds(o.Custom)
	if mutating != "" {
		if !o.NoGate {
			out = append(out, o.gatePolicies(mutating)...)
		}
		if !o.NoGate && !o.NoRollouts {
			out = slices.Concat(out, o.namedPolicies(mutating), o.startingPolicy(mutating), o.statusByPolicy(mutating),
				o.editorPolicy(mutating), o.changerPolicy(mutating))
		}
		for _, k := range all {
			out = append(out, o.mutating(mutating, k.name(), o.mutatingSpec(k), nil, k.patches()...)...)
		}
	}
	if validating != "" {
		out = append(out, o.validating(validating, marksName, o.validatingSpec(all))...)
		if !o.NoGate && !o.NoRollouts {
			out = append(out, o.validating(validating, commandsName, o.commandsSpec())...)
		}
		if !o.NoRollouts {
			out = append(out, o.validating(validating, authorsName, o.authorsSpec())...)
		}
		if o.Lock {
			out = append(out, LockPolicies(o, validating)...)
		}
	}
	return out
}

// object builds one object of the installation.
func (o Options) object(version, kind, name string, spec any) *unstructured.Unstructured {
	u := rollouts.Object(version, kind, o.Name+"-"+name, spec)
	u.SetLabels(map[string]string{LabelGuard: o.Name})
	u.SetAnnotations(o.annotations())
	return u
}

func (o Options) mutatingSpec(k kind) *admission.MutatingAdmissionPolicySpec {
	spec := &admission.MutatingAdmissionPolicySpec{
		FailurePolicy: new(admission.Ignore), MatchConstraints: matching(k), MatchConditions: o.conditions(k.marked()),
		Variables: append(otherChanges(), admission.Variable{Name: "borrowed", Expression: k.borrowed()}),
	}
	if k.workload != nil {
		spec.Variables = append(spec.Variables, k.workload.Variables()...)
	}
	return spec
}

func (o Options) validatingSpec(all []kind) *admission.ValidatingAdmissionPolicySpec {
	return &admission.ValidatingAdmissionPolicySpec{
		FailurePolicy: new(admission.Ignore), MatchConstraints: matching(all...),
		MatchConditions: o.conditions(anyMark),
		Variables:       markVariables,
		Validations: []admission.Validation{{Expression: "variables.edited.size() == 0", MessageExpression: markMessage,
			Message: "labels and annotations of slipway.io belong to a running release",
			Reason:  new(metav1.StatusReasonForbidden)}},
	}
}

// validatingPolicy is the kind of a policy that refuses edits.
const validatingPolicy = "ValidatingAdmissionPolicy"

// validating returns a validating policy and its binding.
func (o Options) validating(version, name string,
	spec *admission.ValidatingAdmissionPolicySpec) []*unstructured.Unstructured {
	return o.bound(version, name, spec, admission.ValidatingAdmissionPolicyBindingSpec{MatchResources: o.namespaces()})
}

// bound returns a validating policy that denies, and its binding.
func (o Options) bound(version, name string, spec *admission.ValidatingAdmissionPolicySpec,
	binding admission.ValidatingAdmissionPolicyBindingSpec) []*unstructured.Unstructured {
	binding.PolicyName = o.Name + "-" + name
	binding.ValidationActions = []admission.ValidationAction{admission.Deny}
	return []*unstructured.Unstructured{o.object(version, validatingPolicy, name, spec),
		o.object(version, validatingPolicy+"Binding", name, &binding)}
}

// namespaces returns the namespaces that a binding applies to.
func (o Options) namespaces() *admission.MatchResources {
	selector := &metav1.LabelSelector{}
	if o.Namespaces != nil {
		selector = o.Namespaces.DeepCopy()
	}
	own := func(r metav1.LabelSelectorRequirement) bool { return r.Key == LabelGuard }
	if _, chosen := selector.MatchLabels[LabelGuard]; !chosen && !slices.ContainsFunc(selector.MatchExpressions, own) {
		selector.MatchExpressions = append(selector.MatchExpressions,
			metav1.LabelSelectorRequirement{Key: LabelGuard, Operator: metav1.LabelSelectorOpDoesNotExist})
	}
	return &admission.MatchResources{NamespaceSelector: selector}
}

// matching matches edits of objects of these kinds: not their deletion, status or scale.
func matching(kinds ...kind) *admission.MatchResources {
	var rules []admission.NamedRuleWithOperations
	for _, k := range kinds {
		rule := admission.NamedRuleWithOperations{}
		rule.Operations = []admission.OperationType{admission.Update}
		rule.APIGroups, rule.APIVersions, rule.Resources = []string{k.Group}, []string{"*"}, []string{k.Resource}
		rule.Scope = new(admission.NamespacedScope)
		rules = append(rules, rule)
	}
	return &admission.MatchResources{ResourceRules: rules, MatchPolicy: new(admission.Equivalent)}
}

// conditions select edits of objects with a mark, by a client other than the engine, unless the object is under repair.
func (o Options) conditions(marked string) []admission.MatchCondition {
	return append([]admission.MatchCondition{{Name: "borrowed", Expression: marked}}, o.otherClients()...)
}

// otherClients returns the conditions for an edit by a client other than the engine, of an object that is not under
// repair.
func (o Options) otherClients() []admission.MatchCondition {
	return []admission.MatchCondition{{Name: "not-repaired", Expression: hold.NotRepaired}, o.notTheEngine()}
}

// conditionNotTheEngine is the name of the condition that lets the edits of identities pass.
const conditionNotTheEngine = "not-the-engine"

func (o Options) notTheEngine() admission.MatchCondition {
	return admission.MatchCondition{Name: conditionNotTheEngine,
		Expression: notOneOf(slices.Compact(slices.Sorted(slices.Values(o.Identities))))}
}

// kind is a kind of object that releases borrow.
type kind struct {
	traffic.Kind
	// workload is a workload's kind, whose mark is the claim; nil: the mark of the object is the name of the holder.
	workload *hold.Kind
}

// name returns the name of the kind as kubectl prints it: "deployments.apps".
func (k kind) name() string { return strings.TrimSuffix(k.Resource+"."+k.Group, ".") }

// workloads returns the kinds of workload.
func workloads() (all []kind) {
	for _, k := range workload.Kinds {
		all = append(all, kind{traffic.Kind{Group: k.Resource.Group, Resource: k.Resource.Resource,
			Pointers: pods.BorrowedFields(k)}, new(hold.Kind(k))})
	}
	return all
}

// kinds returns all kinds that releases borrow, ordered by name.
func kinds(custom []traffic.Kind) []kind {
	all := workloads()
	scaler := traffic.Kind{Group: "autoscaling", Resource: "horizontalpodautoscalers"}
	for _, field := range pods.AutoscalerLimits() {
		scaler.Pointers = append(scaler.Pointers, "/spec/"+field)
	}
	for _, k := range slices.Concat(traffic.Kinds(), []traffic.Kind{scaler}, custom) {
		name := kind{Kind: k}.name()
		if !slices.ContainsFunc(all, func(known kind) bool { return known.name() == name }) {
			all = append(all, kind{Kind: k})
		}
	}
	slices.SortFunc(all, func(a, b kind) int { return strings.Compare(a.name(), b.name()) })
	return all
}

// YAML returns objects as YAML documents.
func YAML(objects []*unstructured.Unstructured) ([]byte, error) {
	var out bytes.Buffer
	for _, o := range objects {
		raw, err := yaml.Marshal(o.Object)
		if err != nil {
			return nil, err
		}
		out.WriteString("---\n")
		out.Write(raw)
	}
	return out.Bytes(), nil
}

var (
	// held is true if a release has borrowed or created the object.
	held    = cel.Annotation("oldObject", rollout.AnnotationHeldBy) + ".hasValue()"
	anyMark = hold.Claimed + " || " + held
)

func (k kind) marked() string {
	if k.workload != nil {
		return hold.Claimed
	}
	return held
}

// notOneOf returns an expression that is true if the edit is by none of these users.
func notOneOf(identities []string) string {
	return "!(request.userInfo.username in [" + strings.Join(phrase.Each(identities, cel.Text), ", ") + "])"
}

// borrowed returns an expression for the texts in which the object lists its borrowed fields, by their JSON Pointers.
func (k kind) borrowed() string {
	names := []string{rollout.AnnotationRestore, traffic.AnnotationPlaces}
	if k.workload != nil {
		names = []string{workload.AnnotationRollout, workload.AnnotationOriginal}
	}
	text := func(name string) string { return cel.Annotation("oldObject", name) + ".orValue('')" }
	return strings.Join(phrase.Each(names, text), " + ")
}

// patches returns the expressions that restore Slipway's marks and the stored values of borrowed fields.
func (k kind) patches() []string {
	out := append([]string{restoreMarks()}, phrase.Each(k.Pointers, restoreField)...)
	// The stored field may be open for a template other than the edit's. The gate sets the same value, in whichever
	// order both policies run.
	if k.workload != nil {
		out = append(out, k.workload.ClaimedPatch())
	}
	if k.Metadata {
		out = append(out, restoreEntries("labels", listed("labels")), restoreEntries("annotations",
			listed("annotations")))
	}
	return out
}

// restoreField returns the expression that restores one field if the object lists it, or a field in it, as borrowed.
func restoreField(pointer string) string {
	return fmt.Sprintf(`!variables.borrowed.contains('"%[1]s') || %[3]s == %[2]s ? [] :
%[2]s.hasValue() ? [JSONPatch{op: "add", path: "%[1]s", value: %[2]s.value()}] :
[JSONPatch{op: "remove", path: "%[1]s"}]`, pointer, cel.Field("oldObject", pointer), cel.Field("object", pointer))
}

// listed returns a condition that is true if the object lists the label or annotation k as borrowed.
func listed(part string) func(was, is string) string {
	return func(string, string) string {
		return fmt.Sprintf(`variables.borrowed.contains('"/metadata/%s/' + jsonpatch.escapeKey(k) + '"')`, part)
	}
}

// restoreEntries returns the expression that restores the labels or annotations k that meet a condition, which is made
// from their maps before and after the edit. If an edit removed all of them, it first creates their map again.
func restoreEntries(part string, condition func(was, is string) string) string {
	path := fmt.Sprintf(`"/metadata/%s/" + jsonpatch.escapeKey(k)`, part)
	was, is := "oldObject.metadata.?"+part+".orValue({})", "object.metadata.?"+part+".orValue({})"
	return fmt.Sprintf(`(object.metadata.?%[1]s.hasValue() || !%[2]s.exists(k, %[4]s) ? [] :
[JSONPatch{op: "add", path: "/metadata/%[1]s", value: {}}]) +
%[2]s.filter(k, (%[4]s) && %[3]s[?k] != %[2]s[?k]).map(k, JSONPatch{op: "add", path: %[5]s, value: %[2]s[k]}) +
%[3]s.filter(k, (%[4]s) && !(k in %[2]s)).map(k, JSONPatch{op: "remove", path: %[5]s})`, part, was, is,
		condition(was, is), path)
}
