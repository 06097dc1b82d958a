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
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workload"
)

// Kind is a kind of workload that a Rollout can name.
type Kind workload.Kind

// Prefix is the prefix of all of Slipway's labels and annotations.
const Prefix = "slipway.io/"

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
			differs("templateLabels", "k != "+cel.Text(k.TemplateLabel)) + " || " +
			differs("templates", "!(k in ['labels', 'annotations', 'creationTimestamp'])")},
		{Name: "rolls", Expression: k.rolls()},
	}
}

// differs returns an expression that is true if a counted entry differs between the two maps of a pair.
func differs(pair, counts string) string {
	return fmt.Sprintf("variables.%[1]s.exists(m, m.exists(k, %[2]s && variables.%[1]s[0][?k] != "+
		"variables.%[1]s[1][?k]))", pair, counts)
}

// typeRolls is the condition on the update type: with another type a workload has no field that holds.
const typeRolls = "object.spec.?updateStrategy.?type.orValue('RollingUpdate') == 'RollingUpdate'"

// rolls returns an expression that is true if the workload's own controller would move pods to a changed template.
func (k Kind) rolls() string {
	var all []string
	if !k.PerNode {
		all = append(all, "object.spec.?replicas.orValue(1) != 0")
	}
	if k.Rolling() {
		all = append(all, typeRolls)
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
		"%s.orValue(variables.said)", k.literal(), written, here, before)
}

// held returns an expression that is true if the field holds after the edit: the template changes, or has changed
// before and no release has started.
func (k Kind) held(before string) string {
	held := "variables.rolls && variables.changed || !variables.claimed && " + before + ".hasValue()"
	if k.Rolling() {
		held += " && " + typeRolls
	}
	return held
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

// EditorVariables returns the variables of EditorPatch: the user to record on a Rollout as its last editor, an optional
// value.
func EditorVariables() []admission.Variable {
	return []admission.Variable{{Name: "editor", Expression: fmt.Sprintf(
		"object.?spec != oldObject.?spec ? optional.of(%s) : %s", user,
		cel.Annotation("oldObject", gate.AnnotationEditor))}}
}

// EditorPatch returns the expression that records who edits the spec of a Rollout. It overrides what the edit itself
// sets there.
func EditorPatch() string {
	return fmt.Sprintf(`variables.editor == %s ? [] :
(object.metadata.?annotations.hasValue() ? [] : [JSONPatch{op: "add", path: "/metadata/annotations", value: {}}]) +
(variables.editor.hasValue() ? [JSONPatch{op: "add", path: "%[2]s", value: variables.editor.value()}] : [JSONPatch{op: "remove", path: "%[2]s"}])`,
		cel.Annotation("object", gate.AnnotationEditor), jsonpatch.Annotation(gate.AnnotationEditor))
}

// OtherChanger is true if a client writes a name of another user as gate.AnnotationBy of a workload. The gate writes the
// client's own name, or keeps the one before.
var OtherChanger = fmt.Sprintf("%[1]s.hasValue() && %[1]s != optional.of(%[2]s) && (%[3]s || %[1]s != %[4]s)",
	cel.Annotation("object", gate.AnnotationBy), user, created, cel.Annotation("oldObject", gate.AnnotationBy))

// ChangerPatch writes the client's own name instead.
var ChangerPatch = fmt.Sprintf(`[JSONPatch{op: "add", path: "%s", value: %s}]`, jsonpatch.Annotation(gate.AnnotationBy),
	user)

// NoPatch is an expression that changes nothing.
const NoPatch = `true ? [] : [JSONPatch{op: "test", path: "/kind", value: ""}]`

// The expressions of this file have a Rollout as their parameter, and apply to new workloads too: a workload that a
// Rollout names is labelled and held before the engine has seen either.

const (
	created = "request.operation == 'CREATE'"
	// labelValue is gate.LabelValue in CEL. CEL has no digest: until the controller corrects it, the label of a long
	// name is the beginning of the name.
	labelValue = "(params.metadata.name.size() <= 63 ? params.metadata.name : params.metadata.name.substring(0, 62) + 'x')"
)

// OrCreated extends a condition for edits so that a new object meets it too.
func OrCreated(condition string) string { return created + " || (" + condition + ")" }

// Unlabelled is true if the workload has no Rollout's label, unless this policy wrote it in an earlier round.
var Unlabelled = fmt.Sprintf("(%s || !%s.hasValue()) && %s.orValue(%[4]s) == %[4]s", created,
	cel.Label("oldObject", gate.Label), cel.Label("object", gate.Label), labelValue)

// Named returns an expression that is true if the Rollout names the workload and is neither disabled nor being deleted.
func (k Kind) Named() string {
	return fmt.Sprintf("%[1]s.?name.orValue('') == object.metadata.?name.orValue('') && %[1]s.?kind.orValue('') == "+
		"%[2]s && %[1]s.?apiVersion.orValue('').startsWith(%[3]s) && !params.spec.?disabled.orValue(false) && "+
		"!params.metadata.?deletionTimestamp.hasValue()", "params.spec.?workloadRef", cel.Text(k.Kind),
		cel.Text(k.Resource.Group+"/"))
}

// NamedPatches returns the expressions that label the workload, write AnnotationWhy, and hold the edit.
func (k Kind) NamedPatches() []string {
	const name = "?"
	why := strings.ReplaceAll(cel.Text(gate.Why(name, k.Kind)), name, "' + params.metadata.name + '")
	return []string{
		write("labels", gate.Label, labelValue),
		write("annotations", gate.AnnotationWhy, why),
		created + " ? [] : " + k.GatePatch(),
	}
}

// write returns an expression that sets a label or annotation and creates their map if there is none.
func write(part, name, value string) string {
	return fmt.Sprintf(`object.metadata.?%[1]s[?%[2]s] == optional.of(%[3]s) ? [] :
(object.metadata.?%[1]s.hasValue() ? [] : [JSONPatch{op: "add", path: "/metadata/%[1]s", value: {}}]) +
[JSONPatch{op: "add", path: "/metadata/%[1]s/" + jsonpatch.escapeKey(%[2]s), value: %[3]s}]`, part, cel.Text(name), value)
}

// The parts of a Rollout's status that matter to commands. Clients other than the engine may change only commands.
const (
	statusEngine = "slipway"
	statusBy     = "by"
	approved     = "StepReady"
)

// StatusPatch returns the expression that restores the engine's part of a Rollout's status and records who sends a
// command, regardless of what the edit sets there. Repeating a stored command does not change its sender.
func StatusPatch() string {
	was := cel.Field("oldObject", "/status/"+statusEngine)
	return fmt.Sprintf(`!object.?status.hasValue() ? [] :
!%[1]s.hasValue() ? (object.status.?%[2]s.hasValue() ? [JSONPatch{op: "remove", path: "/status/%[2]s"}] : []) :
[JSONPatch{op: "add", path: "/status/%[2]s", value: %[1]s.value()}] +
(variables.commanded ? [JSONPatch{op: "add", path: "/status/%[2]s/%[3]s", value: %[4]s}] : [])`, was, statusEngine, statusBy, user)
}

// StatusVariables returns the variables of StatusPatch and StatusRefusals: parts of the status before and after the
// edit, and what it changes.
func StatusVariables() []admission.Variable {
	part := func(name string) string { return "variables.statuses.map(s, " + cel.Members("s.?"+name) + ")" }
	return []admission.Variable{
		{Name: "statuses", Expression: "[oldObject, object].map(o, " + cel.Members("o.?status") + ")"},
		{Name: "engine", Expression: part(statusEngine)},
		{Name: "styles", Expression: "[" + part("canaryStatus") + ", " + part("blueGreenStatus") + "]"},
		{Name: "commanded", Expression: "variables.styles.exists(p, " + commands + ".exists(k, p[0][?k] != p[1][?k]))"},
		{Name: "edited", Expression: strings.Join([]string{
			changes("variables.statuses", "!(k in ['canaryStatus', 'blueGreenStatus', '"+statusEngine+"'])"),
			changes("variables.styles[0]", notCommands) + ".map(k, 'canaryStatus.' + string(k))",
			changes("variables.styles[1]", notCommands) + ".map(k, 'blueGreenStatus.' + string(k))",
			changes("variables.engine", "!(k == '"+statusBy+"' && variables.engine[1][?k] == optional.of("+user+"))") +
				".map(k, '" + statusEngine + ".' + string(k))",
		}, " + ")},
		{Name: "states", Expression: "variables.styles.filter(p, p[0].?currentStepState != p[1].?currentStepState)" +
			".map(p, string(p[1].?currentStepState.orValue('')))"},
	}
}

const (
	commands    = "['currentStepState', 'nextStepIndex']"
	notCommands = "!(k in " + commands + ")"
)

// changes returns an expression for the counted keys that differ between the two maps of a pair.
func changes(pair, counts string) string {
	return fmt.Sprintf("(%[1]s[0].filter(k, %[2]s && %[1]s[0][?k] != %[1]s[1][?k]) + "+
		"%[1]s[1].filter(k, %[2]s && !(k in %[1]s[0])))", pair, counts)
}

// StatusRefusals returns the validations for edits of a Rollout's status by other clients.
func StatusRefusals() []admission.Validation {
	return []admission.Validation{
		{Expression: "variables.edited.size() == 0",
			Message: "others than Slipway only send commands in the status of a Rollout",
			MessageExpression: "'only Slipway writes ' + variables.edited.join(', ') + ' in the status of Rollout ' " +
				"+ object.metadata.name + ': others change only currentStepState, to " + approved +
				", or nextStepIndex, in canaryStatus or blueGreenStatus'"},
		{Expression: "variables.states.all(s, s == '" + approved + "')",
			Message: "currentStepState can only be set to " + approved,
			MessageExpression: "'in the status of Rollout ' + object.metadata.name + ', currentStepState can not be " +
				"set to ' + variables.states.filter(s, s != '" + approved + "').join(', ') + ': set it to " + approved +
				" to approve the step, or change nextStepIndex to go to another one'"},
	}
}
