package guard

import (
	"fmt"
	"strings"

	admission "k8s.io/api/admissionregistration/v1"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/traffic"
	"slipway.io/slipway/release/workloadops"
)

// The expressions are written in CEL. Fields that may be absent are chosen with ".?", which yields an optional value.

// ours is what the names of all of Slipway's labels and annotations begin with.
const ours = "slipway.io/"

// label and annotation are optional values of an object.
func label(object, name string) string {
	return fmt.Sprintf("%s.metadata.?labels[?'%s']", object, name)
}

func annotation(object, name string) string {
	return fmt.Sprintf("%s.metadata.?annotations[?'%s']", object, name)
}

var (
	// claimed: an operation works on the workload, or a rollout was frozen on it.
	claimed = label("oldObject", workloadops.LabelClaimed) + ".hasValue() || " + label("oldObject", workloadops.LabelRollout) + ".hasValue()"
	// held: a release has borrowed or made the object.
	held    = annotation("oldObject", rollout.AnnotationHeldBy) + ".hasValue()"
	anyMark = claimed + " || " + held
	// notRepaired: nobody has taken the object into their own hands, and this edit doesn't.
	notRepaired = "!" + annotation("oldObject", rollout.AnnotationRepair) + ".hasValue() && !" +
		annotation("object", rollout.AnnotationRepair) + ".hasValue()"
)

func (k kind) marked() string {
	if k.workload {
		return claimed
	}
	return held
}

// notOneOf says that the edit is by none of these users.
func notOneOf(identities []string) string {
	var list []string
	for _, identity := range identities {
		list = append(list, strings.ReplaceAll(text(identity), InNamespace, "' + request.namespace + '"))
	}
	return "!(request.userInfo.username in [" + strings.Join(list, ", ") + "])"
}

// text is a text in CEL.
func text(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\n", `\n`).Replace(s) + "'"
}

// borrowed is an expression for the texts in which the object itself says which of its fields are borrowed, by their JSON Pointers.
func (k kind) borrowed() string {
	names := []string{rollout.AnnotationRestore, traffic.AnnotationPlaces}
	if k.workload {
		names = []string{rollout.AnnotationSaved, workloadops.AnnotationOriginal}
	}
	var texts []string
	for _, name := range names {
		texts = append(texts, annotation("oldObject", name)+".orValue('')")
	}
	return strings.Join(texts, " + ")
}

// patches are the JSON Patches that put back what stands.
func (k kind) patches() []string {
	var out []string
	for _, pointer := range k.Pointers {
		out = append(out, putBack(pointer))
	}
	if k.Metadata {
		out = append(out, putBackEntries("labels"), putBackEntries("annotations"))
	}
	return out
}

// putBack puts one field back where the object says that it, or a field in it, is borrowed.
func putBack(pointer string) string {
	path := ".?" + strings.Join(strings.Split(strings.TrimPrefix(pointer, "/"), "/"), ".?")
	return fmt.Sprintf(`!variables.borrowed.contains('"%[1]s') || object%[2]s == oldObject%[2]s ? [] :
oldObject%[2]s.hasValue() ? [JSONPatch{op: "add", path: "%[1]s", value: oldObject%[2]s.value()}] :
[JSONPatch{op: "remove", path: "%[1]s"}]`, pointer, path)
}

// putBackEntries puts back the labels or annotations that the object says are borrowed. Where an edit takes all of them away, their map is
// made anew first.
func putBackEntries(part string) string {
	named := fmt.Sprintf(`variables.borrowed.contains('"/metadata/%s/' + jsonpatch.escapeKey(k) + '"')`, part)
	path := fmt.Sprintf(`"/metadata/%s/" + jsonpatch.escapeKey(k)`, part)
	was, is := "oldObject.metadata.?"+part+".orValue({})", "object.metadata.?"+part+".orValue({})"
	return fmt.Sprintf(`(object.metadata.?%[1]s.hasValue() || !%[2]s.exists(k, %[4]s) ? [] :
[JSONPatch{op: "add", path: "/metadata/%[1]s", value: {}}]) +
%[2]s.filter(k, %[4]s && %[3]s[?k] != %[2]s[?k]).map(k, JSONPatch{op: "add", path: %[5]s, value: %[2]s[k]}) +
%[3]s.filter(k, %[4]s && !(k in %[2]s)).map(k, JSONPatch{op: "remove", path: %[5]s})`, part, was, is, named, path)
}

// markVariables are the names of Slipway's labels and annotations that an edit changes, and the release that they belong to.
var markVariables = []admission.Variable{
	{Name: "edited", Expression: "[" + entries("labels") + ", " + entries("annotations") +
		"].map(p, p[0].filter(k, k.startsWith('" + ours + "') && p[0][?k] != p[1][?k]) + " +
		"p[1].filter(k, k.startsWith('" + ours + "') && !(k in p[0]))).map(l, l.join(', ')).filter(t, t != '')"},
	{Name: "holder", Expression: annotation("oldObject", workloadops.AnnotationClaimedBy) + ".orValue(" +
		annotation("oldObject", rollout.AnnotationHeldBy) + ".orValue('a frozen rollout')).split('@')[0]"},
}

// entries are the labels or annotations before and after the edit.
func entries(part string) string {
	return fmt.Sprintf("[oldObject.metadata.?%[1]s.orValue({}), object.metadata.?%[1]s.orValue({})]", part)
}

// markMessage is why the edit of a mark is refused.
const markMessage = "variables.edited.join(', ') + ' belongs to the running release ' + variables.holder + " +
	"': end that first, or take the object over with the annotation " + rollout.AnnotationRepair + "=<your name>'"
