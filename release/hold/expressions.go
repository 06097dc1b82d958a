// Package hold defines how the gate holds a change of a pod template, for each kind: as expressions of admission
// policies, and as the same decision for a webhook. It does no I/O.
package hold

import (
	"fmt"
	"regexp"
	"strings"

	admission "k8s.io/api/admissionregistration/v1"

	"slipway.io/slipway/release/cel"
	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workload"
)

// Kind is a kind of workload that a Rollout can name.
type Kind workload.Kind

// Prefix is the prefix of all of Slipway's labels and annotations.
const Prefix = "slipway.io/"

// podTemplateHash is a label that controllers add to templates themselves.
const podTemplateHash = "pod-template-hash"

// Claimed is true if an operation has claimed the workload or a rollout was frozen on it: then the previous values are
// saved already.
var Claimed = cel.Label("oldObject", workload.LabelClaimed) + ".hasValue() || " +
	cel.Label("oldObject", workload.LabelRollout) + ".hasValue()"

// NotRepaired is true if the object is not under manual repair, and this edit does not start one.
var NotRepaired = "!" + cel.Annotation("oldObject", rollout.AnnotationRepair) + ".hasValue() && !" +
	cel.Annotation("object", rollout.AnnotationRepair) + ".hasValue()"

// labelled is true if a Rollout names the workload.
var labelled = cel.Label("oldObject", gate.Label) + ".hasValue() || " + cel.Label("object", gate.Label) + ".hasValue()"

// Variables returns the variables that ClaimedPatch refers to: whether the edit changes the template, and whether pods
// would move.
func (k Kind) Variables() []admission.Variable {
	part := func(name string) string {
		return "variables.templates.map(m, " + cel.Members("m.?"+name) + ")"
	}
	return []admission.Variable{
		{Name: "templates", Expression: "[oldObject, object].map(o, " + cel.Members("o.spec.?template.?metadata") +
			")"},
		{Name: "templateLabels", Expression: part("labels")},
		{Name: "templateAnnotations", Expression: part("annotations")},
		{Name: "changed", Expression: "object.spec.?template.?spec != oldObject.spec.?template.?spec || " +
			"variables.templateAnnotations[0] != variables.templateAnnotations[1] || " +
			differs("templateLabels", "k != '"+podTemplateHash+"'") + " || " +
			differs("templates", "!(k in ['labels', 'annotations', 'creationTimestamp'])")},
		{Name: "rolls", Expression: k.rolls()},
	}
}

// differs returns an expression that is true if a counted entry differs between the two maps of a pair.
func differs(pair, counts string) string {
	return fmt.Sprintf("variables.%[1]s.exists(m, m.exists(k, %[2]s && variables.%[1]s[0][?k] != "+
		"variables.%[1]s[1][?k]))", pair, counts)
}

// rolls returns an expression that is true if the workload's own controller would move pods to a changed template.
func (k Kind) rolls() string {
	var all []string
	if !k.PerNode {
		all = append(all, "object.spec.?replicas.orValue(1) != 0")
	}
	if k.Rolling() {
		all = append(all, "object.spec.?updateStrategy.?type.orValue('RollingUpdate') == 'RollingUpdate'")
	}
	if len(all) == 0 {
		return "true"
	}
	return strings.Join(all, " && ")
}

// ClaimedPatch returns the expression that holds a claimed workload again if its template changes: the release has
// opened the field for another template. It refers to Variables.
func (k Kind) ClaimedPatch() string {
	return fmt.Sprintf("(%s) && variables.changed && variables.rolls && %s != optional.of(%s) ? %s : []",
		labelled, cel.Field("object", k.Pointer), k.literal(), k.patch())
}

// patch returns the operations that set the field that holds, and create the objects around it.
func (k Kind) patch() string {
	var ops []string
	for _, parent := range k.parents() {
		ops = append(ops, fmt.Sprintf(`(%s.hasValue() ? [] : [JSONPatch{op: "add", path: "%s", value: {}}])`,
			cel.Field("object", parent), parent))
	}
	return strings.Join(append(ops, fmt.Sprintf(`[JSONPatch{op: "add", path: "%s", value: %s}]`, k.Pointer,
		k.literal())), " + ")
}

// parents returns the pointers of the objects around the field, from the outside, without spec.
func (k Kind) parents() []string {
	steps := strings.Split(strings.TrimPrefix(k.Pointer, "/"), "/")
	var out []string
	for i := 2; i < len(steps); i++ {
		out = append(out, "/"+strings.Join(steps[:i], "/"))
	}
	return out
}

// literal returns the holding value in CEL.
func (k Kind) literal() string {
	if s, ok := k.Value.(string); ok {
		return cel.Text(s)
	}
	return fmt.Sprint(k.Value)
}

// GateVariables returns Variables, and the marks after an edit of a workload that a Rollout names: optional values, by
// annotation.
//
// Another policy, or this one in an earlier round, may have written the marks already: then the field holds, and the
// mark has the previous value. A policy cannot distinguish what it wrote itself from what the edit contains. So a
// client may edit the mark, within its form, just as it may edit the field.
func (k Kind) GateVariables() []admission.Variable {
	before := cel.Annotation("oldObject", gate.AnnotationHeld)
	marks := []string{
		cel.Text(gate.AnnotationHeld) + ": variables.claimed || !variables.held ? " + before + " : optional.of(" +
			k.saved(before) + ")",
		cel.Text(gate.AnnotationBy) + ": variables.changed ? optional.of(" + user + ") : " +
			cel.Annotation("oldObject", gate.AnnotationBy),
		cel.Text(gate.AnnotationWhy) + ": " + cel.Annotation("oldObject", gate.AnnotationWhy) +
			".or(" + cel.Annotation("object", gate.AnnotationWhy) + ")",
	}
	const other = "filter(k, k.startsWith('" + Prefix + "') && !(k in variables.marks)"
	return append(k.Variables(), []admission.Variable{
		{Name: "claimed", Expression: Claimed},
		{Name: "asked", Expression: cel.Field("object", k.Pointer)},
		{Name: "said", Expression: k.encode("variables.asked")},
		{Name: "held", Expression: k.held(before)},
		{Name: "marks", Expression: "{" + strings.Join(marks, ", ") + "}"},
		{Name: "annotations", Expression: "[oldObject, object].map(o, " + cel.Members("o.metadata.?annotations") + ")"},
		// kubectl rollout undo restores the annotations of an old revision together with the template.
		{Name: "kept", Expression: "variables.marks.map(k, k) + (!variables.changed ? [] : variables.annotations[1]." +
			other + ") + variables.annotations[0]." + other + " && !(k in variables.annotations[1])))"},
	}...)
}

const user = "request.userInfo.username"

// saved returns an expression for AnnotationHeld of a held workload: the value that the edit sets in the field, or else
// the one saved before.
func (k Kind) saved(before string) string {
	here := cel.Annotation("object", gate.AnnotationHeld)
	written := fmt.Sprintf("%s.orValue('').matches(%s) && (%s.hasValue() || %s.orValue('') == %s)",
		here, cel.Text(k.form().String()), before, cel.Annotation("object", gate.AnnotationBy), user)
	return fmt.Sprintf("variables.asked != optional.of(%s) ? variables.said : %s ? %s.value() : "+
		"%s.orValue(variables.said)",
		k.literal(), written, here, before)
}

// held returns an expression that is true if the field holds after the edit: the template changes, or has changed
// before and no release has started.
func (k Kind) held(before string) string {
	return "variables.rolls && variables.changed || !variables.claimed && " + before + ".hasValue()" + k.stillRolls()
}

// stillRolls returns the condition on the update type: with another type a workload has no such field.
func (k Kind) stillRolls() string {
	if k.Rolling() {
		return " && object.spec.?updateStrategy.?type.orValue('RollingUpdate') == 'RollingUpdate'"
	}
	return ""
}

// encode returns an expression that encodes a field's optional value for AnnotationHeld.
func (k Kind) encode(optional string) string {
	return fmt.Sprintf(`'{"%[1]s":' + (!%[2]s.hasValue() ? 'null' :
type(%[3]s) == bool ? (%[3]s ? 'true' : 'false') :
type(%[3]s) == int ? string(int(%[3]s)) :
type(%[3]s) == string && %[3]s.matches('^[^\\x00-\\x1f]*$') ? '"' + %[3]s.replace('\\', '\\\\').replace('"', '\\"') + '"' :
'null') + '}'`, k.Pointer, optional, optional+".value()")
}

// form matches AnnotationHeld of the kind.
func (k Kind) form() *regexp.Regexp {
	return regexp.MustCompile(`^\{"` + regexp.QuoteMeta(k.Pointer) +
		`":(null|true|false|-?[0-9]+|"([^"\\\x00-\x1f]|\\["\\])*")\}$`)
}

// GatePatch returns the expression for an edit of a workload that a Rollout names: the field holds, and Slipway's marks
// stay. It refers to GateVariables.
func (k Kind) GatePatch() string {
	label := cel.Label("oldObject", gate.Label)
	return strings.NewReplacer("WANT", "(k in variables.marks ? variables.marks[k] : variables.annotations[0][?k])",
		"IS", "variables.annotations[1][?k]").Replace(
		fmt.Sprintf(`(variables.held && variables.asked != optional.of(%s) ? %s : []) +
(object.metadata.?annotations.hasValue() || !variables.kept.exists(k, WANT.hasValue()) ? [] :
[JSONPatch{op: "add", path: "/metadata/annotations", value: {}}]) +
variables.kept.filter(k, WANT.hasValue() && WANT != IS).map(k,
JSONPatch{op: "add", path: "/metadata/annotations/" + jsonpatch.escapeKey(k), value: WANT.value()}) +
variables.kept.filter(k, !WANT.hasValue() && IS.hasValue()).map(k,
JSONPatch{op: "remove", path: "/metadata/annotations/" + jsonpatch.escapeKey(k)}) +
(!%[3]s.hasValue() ? [] : %[4]s)`, k.literal(), k.patch(), label, write("labels", gate.Label, label+".value()")))
}

// TemplateTouched is true if the edit writes anything in the template; the webhook decides whether it counts.
const TemplateTouched = "object.spec.template != oldObject.spec.template"

// Touched returns an expression that is true if an edit concerns the webhook: it changes the template, the field that
// holds, or a mark.
func (k Kind) Touched() string {
	touched := []string{TemplateTouched, cel.Field("object", k.Pointer) + " != " + cel.Field("oldObject", k.Pointer),
		cel.Label("object", gate.Label) + " != " + cel.Label("oldObject", gate.Label)}
	for _, name := range []string{gate.AnnotationHeld, gate.AnnotationBy, gate.AnnotationWhy} {
		touched = append(touched, cel.Annotation("object", name)+" != "+cel.Annotation("oldObject", name))
	}
	return strings.Join(touched, " || ")
}
