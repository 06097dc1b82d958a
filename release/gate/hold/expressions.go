package hold

import (
	"fmt"
	"regexp"
	"strings"

	admission "k8s.io/api/admissionregistration/v1"

	"slipway.io/slipway/release/cel"
	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workloadops"
)

// Ours is what the names of all of Slipway's labels and annotations begin with.
const Ours = "slipway.io/"

// podTemplateHash is what controllers write into templates themselves.
const podTemplateHash = "pod-template-hash"

// Claimed says that an operation works on the workload, or that a rollout was frozen on it: what stood before is saved already.
var Claimed = cel.Label("oldObject", workloadops.LabelClaimed) + ".hasValue() || " +
	cel.Label("oldObject", workloadops.LabelRollout) + ".hasValue()"

// NotRepaired says that nobody has taken the object into their own hands, and that this edit doesn't.
var NotRepaired = "!" + cel.Annotation("oldObject", rollout.AnnotationRepair) + ".hasValue() && !" +
	cel.Annotation("object", rollout.AnnotationRepair) + ".hasValue()"

// labelled says that a Rollout names the workload.
var labelled = cel.Label("oldObject", gate.Label) + ".hasValue() || " + cel.Label("object", gate.Label) + ".hasValue()"

// Variables are the variables that ClaimedPatch refers to: whether the edit changes the template, and has pods that would move.
func (k Kind) Variables() []admission.Variable {
	part := func(name string) string {
		return "variables.templates.map(m, " + cel.Members("m.?"+name) + ")"
	}
	return []admission.Variable{
		{Name: "templates", Expression: "[oldObject, object].map(o, " + cel.Members("o.spec.?template.?metadata") + ")"},
		{Name: "templateLabels", Expression: part("labels")},
		{Name: "templateAnnotations", Expression: part("annotations")},
		{Name: "changed", Expression: "object.spec.?template.?spec != oldObject.spec.?template.?spec || " +
			"variables.templateAnnotations[0] != variables.templateAnnotations[1] || " +
			differs("templateLabels", "k != '"+podTemplateHash+"'") + " || " +
			differs("templates", "!(k in ['labels', 'annotations', 'creationTimestamp'])")},
		{Name: "rolls", Expression: k.rolls()},
	}
}

// differs says that an entry that counts is another one in the second of two maps than in the first.
func differs(pair, counts string) string {
	return fmt.Sprintf("variables.%[1]s.exists(m, m.exists(k, %[2]s && variables.%[1]s[0][?k] != variables.%[1]s[1][?k]))", pair, counts)
}

// rolls says that the workload's own controller would move pods to a changed template.
func (k Kind) rolls() string {
	var all []string
	if k.sized {
		all = append(all, "object.spec.?replicas.orValue(1) != 0")
	}
	if k.rolling {
		all = append(all, "object.spec.?updateStrategy.?type.orValue('RollingUpdate') == 'RollingUpdate'")
	}
	if len(all) == 0 {
		return "true"
	}
	return strings.Join(all, " && ")
}

// ClaimedPatch holds a claimed workload that a Rollout names, if its template changes: the release has opened the field for another one.
// It refers to Variables.
func (k Kind) ClaimedPatch() string {
	return fmt.Sprintf("(%s) && variables.changed && variables.rolls && %s != optional.of(%s) ? %s : []",
		labelled, cel.Field("object", k.Pointer), k.literal(), k.patch())
}

// patch sets the field that holds, with the objects around it.
func (k Kind) patch() string {
	var ops []string
	for _, parent := range k.parents() {
		ops = append(ops, fmt.Sprintf(`(%s.hasValue() ? [] : [JSONPatch{op: "add", path: "%s", value: {}}])`,
			cel.Field("object", parent), parent))
	}
	return strings.Join(append(ops, fmt.Sprintf(`[JSONPatch{op: "add", path: "%s", value: %s}]`, k.Pointer, k.literal())), " + ")
}

// literal is the holding value in CEL.
func (k Kind) literal() string {
	if s, ok := k.Value.(string); ok {
		return cel.Text(s)
	}
	return fmt.Sprint(k.Value)
}

// GateVariables are Variables, and what an edit of a workload that a Rollout names makes of the marks: optional values, by annotation.
//
// Another policy, or this one in a second round, may have written the marks already: then the field holds, and the mark says what stood in
// it. A policy can't tell what it wrote itself from what the edit brings, so that somebody may edit the mark, within its form, as they may
// edit the field.
func (k Kind) GateVariables() []admission.Variable {
	before := cel.Annotation("oldObject", gate.AnnotationHeld)
	marks := []string{
		cel.Text(gate.AnnotationHeld) + ": variables.claimed || !variables.held ? " + before + " : optional.of(" + k.saved(before) + ")",
		cel.Text(gate.AnnotationBy) + ": variables.changed ? optional.of(" + user + ") : " + cel.Annotation("oldObject", gate.AnnotationBy),
		cel.Text(gate.AnnotationWhy) + ": " + cel.Annotation("oldObject", gate.AnnotationWhy) +
			".or(" + cel.Annotation("object", gate.AnnotationWhy) + ")",
	}
	const other = "filter(k, k.startsWith('" + Ours + "') && !(k in variables.marks)"
	return append(k.Variables(), []admission.Variable{
		{Name: "claimed", Expression: Claimed},
		{Name: "asked", Expression: cel.Field("object", k.Pointer)},
		{Name: "said", Expression: k.said("variables.asked")},
		{Name: "held", Expression: k.held(before)},
		{Name: "marks", Expression: "{" + strings.Join(marks, ", ") + "}"},
		{Name: "annotations", Expression: "[oldObject, object].map(o, " + cel.Members("o.metadata.?annotations") + ")"},
		// With the template, an undo brings the annotations of an old revision.
		{Name: "kept", Expression: "variables.marks.map(k, k) + (!variables.changed ? [] : variables.annotations[1]." + other + ") + " +
			"variables.annotations[0]." + other + " && !(k in variables.annotations[1])))"},
	}...)
}

const user = "request.userInfo.username"

// saved is AnnotationHeld of a workload that is held: what the edit asks of the field, else what was saved before.
func (k Kind) saved(before string) string {
	here := cel.Annotation("object", gate.AnnotationHeld)
	written := fmt.Sprintf("%s.orValue('').matches(%s) && (%s.hasValue() || %s.orValue('') == %s)",
		here, cel.Text(k.form().String()), before, cel.Annotation("object", gate.AnnotationBy), user)
	return fmt.Sprintf("variables.asked != optional.of(%s) ? variables.said : %s ? %s.value() : %s.orValue(variables.said)",
		k.literal(), written, here, before)
}

// held says that the field holds after the edit: the template changes, or has changed before and no release has begun.
func (k Kind) held(before string) string {
	return "variables.rolls && variables.changed || !variables.claimed && " + before + ".hasValue()" + k.stillRolls()
}

// stillRolls: a workload of another update type has no such field.
func (k Kind) stillRolls() string {
	if k.rolling {
		return " && object.spec.?updateStrategy.?type.orValue('RollingUpdate') == 'RollingUpdate'"
	}
	return ""
}

// said is a field's optional value as AnnotationHeld says it.
func (k Kind) said(optional string) string {
	return fmt.Sprintf(`'{"%[1]s":' + (!%[2]s.hasValue() ? 'null' :
type(%[3]s) == bool ? (%[3]s ? 'true' : 'false') :
type(%[3]s) == int ? string(int(%[3]s)) :
type(%[3]s) == string && %[3]s.matches('^[^\\x00-\\x1f]*$') ? '"' + %[3]s.replace('\\', '\\\\').replace('"', '\\"') + '"' :
'null') + '}'`, k.Pointer, optional, optional+".value()")
}

// form is what AnnotationHeld of the kind looks like.
func (k Kind) form() *regexp.Regexp {
	return regexp.MustCompile(`^\{"` + regexp.QuoteMeta(k.Pointer) + `":(null|true|false|-?[0-9]+|"([^"\\\x00-\x1f]|\\["\\])*")\}$`)
}

// GatePatch is what becomes of an edit of a workload that a Rollout names: the field holds, and what Slipway has written on the workload
// stays. It refers to GateVariables.
func (k Kind) GatePatch() string {
	label := cel.Label("oldObject", gate.Label)
	return strings.NewReplacer("WANT", "(k in variables.marks ? variables.marks[k] : variables.annotations[0][?k])",
		"IS", "variables.annotations[1][?k]").Replace(fmt.Sprintf(`(variables.held && variables.asked != optional.of(%s) ? %s : []) +
(object.metadata.?annotations.hasValue() || !variables.kept.exists(k, WANT.hasValue()) ? [] :
[JSONPatch{op: "add", path: "/metadata/annotations", value: {}}]) +
variables.kept.filter(k, WANT.hasValue() && WANT != IS).map(k,
JSONPatch{op: "add", path: "/metadata/annotations/" + jsonpatch.escapeKey(k), value: WANT.value()}) +
variables.kept.filter(k, !WANT.hasValue() && IS.hasValue()).map(k,
JSONPatch{op: "remove", path: "/metadata/annotations/" + jsonpatch.escapeKey(k)}) +
(!%[3]s.hasValue() ? [] : %[4]s)`, k.literal(), k.patch(), label, write("labels", gate.Label, label+".value()")))
}

// Templated says that something of the template is written otherwise, for a webhook that decides whether it counts.
const Templated = "object.spec.template != oldObject.spec.template"

// Touched says that an edit may be the gate's business, for a webhook that decides: of the template, the field that holds, or a mark.
func (k Kind) Touched() string {
	touched := []string{Templated, cel.Field("object", k.Pointer) + " != " + cel.Field("oldObject", k.Pointer),
		cel.Label("object", gate.Label) + " != " + cel.Label("oldObject", gate.Label)}
	for _, name := range []string{gate.AnnotationHeld, gate.AnnotationBy, gate.AnnotationWhy} {
		touched = append(touched, cel.Annotation("object", name)+" != "+cel.Annotation("oldObject", name))
	}
	return strings.Join(touched, " || ")
}
