package guard

import (
	"slices"
	"strings"

	admission "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/cel"
	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workload"
)

// The lock makes a wall of the guard and the gate: what would let a new pod template past them is refused to users who
// lack a permission of its own. All of its policies fail closed.

// Override is the permission that the lock asks for, as people write it: a verb on a virtual resource, which RBAC
// grants like any other, in a namespace.
const Override = verbOverride + " on " + resourceReleases + "." + groupSlipway

const (
	verbOverride, resourceReleases, groupSlipway = "override", "releases", "slipway.io"

	// lockPrefix starts the names, after the installation's name, of the policies of the lock.
	lockPrefix = "lock-"
	// The names of the policies after lockPrefix. There is one more for each kind with the subresource scale.
	lockRepair, lockWorkloads, lockNamespaces = "repair", "workloads", "namespaces"
	scalePrefix                               = "scale-"

	// isUpdate is true for an edit: only then are there both an old and a new object.
	isUpdate = "request.operation == 'UPDATE'"
)

// passing are the users of Kubernetes' own controllers that the lock lets through: the garbage collector deletes what
// its owner leaves, the namespace controller empties a deleted namespace, and an autoscaler may choose the size 0. The
// first name is theirs in a controller manager without an account per controller.
var passing = []string{"system:kube-controller-manager",
	"system:serviceaccount:kube-system:generic-garbage-collector",
	"system:serviceaccount:kube-system:horizontal-pod-autoscaler",
	"system:serviceaccount:kube-system:namespace-controller"}

// LockPolicies returns the policies of the lock and their bindings, in a version of admissionregistration.k8s.io that
// the cluster serves.
func LockPolicies(o Options, version string) []*unstructured.Unstructured {
	o = o.withDefaults()
	out := slices.Concat(o.validating(version, lockPrefix+lockRepair, o.repairSpec()),
		o.validating(version, lockPrefix+lockWorkloads, o.lockedSpec()))
	for _, k := range scalable() {
		out = append(out, o.bound(version, lockPrefix+scalePrefix+k.name(), o.scaleSpec(k),
			admission.ValidatingAdmissionPolicyBindingSpec{MatchResources: o.namespaces(),
				// The selector of all: a selector has no "or", and each of several marks holds.
				ParamRef: &admission.ParamRef{Selector: &metav1.LabelSelector{},
					ParameterNotFoundAction: new(admission.AllowAction)}})...)
	}
	// By their own labels: API servers compare namespaceSelector with the new ones alone.
	return append(out, o.bound(version, lockPrefix+lockNamespaces, o.namespaceSpec(),
		admission.ValidatingAdmissionPolicyBindingSpec{MatchResources: &admission.MatchResources{
			ObjectSelector: o.namespaces().NamespaceSelector}})...)
}

// scalable returns the kinds of workload that have a size.
func scalable() []kind {
	return slices.DeleteFunc(workloads(), func(k kind) bool { return k.workload.PerNode })
}

// repairSpec refuses the mark that opens the gate and the guard for every later edit, on any guarded object: one that
// is held tomorrow can be marked today. To remove the mark is free.
func (o Options) repairSpec() *admission.ValidatingAdmissionPolicySpec {
	match := matching(kinds(o.Custom)...)
	widen(match, admission.Create, admission.Update)
	mark := cel.Annotation("object", rollout.AnnotationRepair)
	return &admission.ValidatingAdmissionPolicySpec{FailurePolicy: new(admission.Fail), MatchConstraints: match,
		MatchConditions: []admission.MatchCondition{o.notTheEngine(), {Name: "marked-for-repair",
			Expression: mark + ".hasValue() && (" + isUpdate + " ? " + mark + " != " +
				cel.Annotation("oldObject", rollout.AnnotationRepair) + " : true)"}},
		Validations: []admission.Validation{permitted("false", "request.namespace", "object.metadata.?name.orValue('')",
			"'the annotation "+rollout.AnnotationRepair+" on ' + request.kind.kind + ' ' + "+
				"request.namespace + '/' + object.metadata.?name.orValue('') + ' needs'")}}
}

// lockedSpec refuses edits after which the gate would not hold a workload that it, or a release, holds now.
func (o Options) lockedSpec() *admission.ValidatingAdmissionPolicySpec {
	match := matching(workloads()...)
	widen(match, admission.Update, admission.Delete)
	const size = ".?spec.?replicas.orValue(1)"
	const owners = ".metadata.?ownerReferences.orValue([])"
	const rolling = ".?spec.?updateStrategy.?type.orValue('RollingUpdate')"
	const name = "request.kind.kind + ' ' + request.namespace + '/' + oldObject.metadata.name"
	refused := func(allowed, what string) admission.Validation {
		return permitted(allowed, "request.namespace", "oldObject.metadata.name", "'"+what+" of ' + "+name+
			" + ', which a release or a Rollout holds, needs'")
	}
	edit := func(violation, what string) admission.Validation {
		return refused("!("+isUpdate+") || !("+violation+")", what)
	}
	return &admission.ValidatingAdmissionPolicySpec{FailurePolicy: new(admission.Fail), MatchConstraints: match,
		MatchConditions: append([]admission.MatchCondition{{Name: "held", Expression: holds("oldObject") + " || " +
			isUpdate + " && (" + holds("object") + ")"}}, o.lockedOut()...),
		Validations: []admission.Validation{
			refused("request.operation != 'DELETE'", "the deletion"),
			edit("object"+size+" == 0 && oldObject"+size+" != 0", "the size 0"),
			edit(rollingKinds()+" && oldObject"+rolling+" == 'RollingUpdate' && object"+rolling+" != 'RollingUpdate'",
				"an update type other than RollingUpdate"),
			// The garbage collector deletes an object whose owner is missing.
			edit("object"+owners+".exists(n, !oldObject"+owners+".exists(w, w.uid == n.uid))", "a new owner"),
		}}
}

// scaleSpec refuses the size 0 by the subresource scale, whose object has no marks. The workload itself is found as a
// parameter.
func (o Options) scaleSpec(k kind) *admission.ValidatingAdmissionPolicySpec {
	match := matching(kind{Kind: k.Kind})
	match.ResourceRules[0].Resources = []string{k.Resource + "/scale"}
	const size = ".?spec.?replicas.orValue(0)"
	return &admission.ValidatingAdmissionPolicySpec{FailurePolicy: new(admission.Fail), MatchConstraints: match,
		ParamKind: &admission.ParamKind{APIVersion: k.workload.Resource.GroupVersion().String(), Kind: k.workload.Kind},
		MatchConditions: append([]admission.MatchCondition{
			{Name: "emptied", Expression: "object" + size + " == 0 && oldObject" + size + " != 0"},
			{Name: "held", Expression: "params.metadata.name == oldObject.metadata.name && (" + holds("params") + ")"},
		}, o.lockedOut()...),
		Validations: []admission.Validation{permitted("false", "request.namespace", "oldObject.metadata.name",
			"'the size 0 of "+k.workload.Kind+" ' + request.namespace + '/' + oldObject.metadata.name + "+
				"', which a release or a Rollout holds, needs'")}}
}

// namespaceSpec refuses edits of the labels by which the guard selects namespaces.
func (o Options) namespaceSpec() *admission.ValidatingAdmissionPolicySpec {
	match := matching(kind{})
	rule := &match.ResourceRules[0]
	rule.Resources = []string{"namespaces", "namespaces/status", "namespaces/finalize"}
	rule.Scope = new(admission.ClusterScope)
	keys := "[" + strings.Join(phrase.Each(o.selectedBy(), cel.Text), ", ") + "]"
	const labels = ".metadata.?labels.orValue({})"
	return &admission.ValidatingAdmissionPolicySpec{FailurePolicy: new(admission.Fail), MatchConstraints: match,
		Variables: []admission.Variable{{Name: "changed", Expression: keys +
			".filter(k, object" + labels + "[?k] != oldObject" + labels + "[?k])"}},
		Validations: []admission.Validation{permitted("variables.changed.size() == 0", "object.metadata.name", "''",
			"'a change of ' + variables.changed.join(', ') + ' of Namespace ' + object.metadata.name + "+
				"', which decides whether it is guarded, needs'")}}
}

// selectedBy returns the names of the labels by which the guard selects namespaces, ordered.
func (o Options) selectedBy() (keys []string) {
	selector := o.namespaces().NamespaceSelector
	for key := range selector.MatchLabels {
		keys = append(keys, key)
	}
	for _, r := range selector.MatchExpressions {
		keys = append(keys, r.Key)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// lockedOut returns the conditions for a request by another client than the engine and Kubernetes' own controllers.
func (o Options) lockedOut() []admission.MatchCondition {
	return []admission.MatchCondition{o.notTheEngine(), {Name: "not-a-controller", Expression: notOneOf(passing)}}
}

// holds returns an expression that is true if a release has claimed the object, was frozen on it, or a Rollout names
// it.
func holds(object string) string {
	return cel.Label(object, workload.LabelClaimed) + ".hasValue() || " + cel.Label(object,
		workload.LabelRollout) + ".hasValue() || " + cel.Label(object, gate.Label) + ".hasValue()"
}

// rollingKinds returns an expression that is true for the kinds that the gate holds only while they are updated by
// rolling.
func rollingKinds() string {
	var names []string
	for _, k := range workloads() {
		if k.workload.Rolling() {
			names = append(names, cel.Text(k.name()))
		}
	}
	return "(request.resource.resource + '.' + request.resource.group) in [" + strings.Join(names, ", ") + "]"
}

// widen has a rule match these operations, and the subresource status too: with some kinds, a write of the status can
// change labels and annotations.
func widen(match *admission.MatchResources, operations ...admission.OperationType) {
	for i := range match.ResourceRules {
		rule := &match.ResourceRules[i]
		rule.Operations = operations
		rule.Resources = append(rule.Resources, rule.Resources[0]+"/status")
	}
}

// permitted returns a validation that refuses a request unless it is allowed, or its user has the permission Override
// on the release of this name. what is an expression: the beginning of the message, up to "needs".
func permitted(allowed, namespace, name, what string) admission.Validation {
	may := "authorizer.group(" + cel.Text(groupSlipway) + ").resource(" + cel.Text(resourceReleases) + ").namespace(" +
		namespace + ").name(" + name + ").check(" + cel.Text(verbOverride) + ").allowed()"
	return admission.Validation{Expression: allowed + " || " + may,
		MessageExpression: "'the guard is locked: ' + " + what + " + ' the permission " + Override +
			" in namespace ' + " + namespace + " + ': ask an administrator of the cluster'",
		Message: "the guard is locked: this needs the permission " + Override,
		Reason:  new(metav1.StatusReasonForbidden)}
}

// The names of what the lock refuses, as Installed.Version has them.
const (
	LockRepair     = "lock: repair of what is guarded"
	LockWorkloads  = "lock: deletion and size of workloads"
	LockNamespaces = "lock: labels of namespaces"
	lockedScale    = "lock: scale of "
)

// lockedPart returns what a policy of the lock refuses, by its name after lockPrefix.
func lockedPart(name string) string {
	if kind, is := strings.CutPrefix(name, scalePrefix); is {
		return lockedScale + kind
	}
	return map[string]string{lockRepair: LockRepair, lockWorkloads: LockWorkloads,
		lockNamespaces: LockNamespaces}[name]
}

// lockedFields returns what a part of the lock compares.
func lockedFields(part string) string {
	if strings.HasPrefix(part, lockedScale) {
		return "spec.replicas"
	}
	return map[string]string{LockRepair: "annotation " + rollout.AnnotationRepair,
		LockNamespaces: "labels that select namespaces",
		LockWorkloads:  "deletion, spec.replicas, spec.updateStrategy.type, owners"}[part]
}

// LockParts returns the names of all that the lock refuses.
func LockParts() []string {
	out := []string{LockRepair, LockWorkloads}
	for _, k := range scalable() {
		out = append(out, lockedScale+k.name())
	}
	return append(out, LockNamespaces)
}

// Locked reports whether an installation includes the lock, or a part of it.
func (i Installed) Locked() bool {
	return slices.ContainsFunc(LockParts(), func(part string) bool { return i.Version[part] != "" })
}
