package guard

import (
	"fmt"
	"strings"

	admission "k8s.io/api/admissionregistration/v1"

	"slipway.io/slipway/release/cel"
	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/hold"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/traffic"
	"slipway.io/slipway/release/workload"
)

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
	var list []string
	for _, identity := range identities {
		list = append(list, strings.ReplaceAll(cel.Text(identity), InNamespace, "' + request.namespace + '"))
	}
	return "!(request.userInfo.username in [" + strings.Join(list, ", ") + "])"
}

// borrowed returns an expression for the texts in which the object lists its borrowed fields, by their JSON Pointers.
func (k kind) borrowed() string {
	names := []string{rollout.AnnotationRestore, traffic.AnnotationPlaces}
	if k.workload != nil {
		names = []string{workload.AnnotationRollout, workload.AnnotationOriginal}
	}
	var texts []string
	for _, name := range names {
		texts = append(texts, cel.Annotation("oldObject", name)+".orValue('')")
	}
	return strings.Join(texts, " + ")
}

// patches returns the expressions that restore the stored values of borrowed fields.
func (k kind) patches() []string {
	var out []string
	for _, pointer := range k.Pointers {
		out = append(out, restoreField(pointer))
	}
	// The stored field may be open for a template other than the edit's. The gate sets the same value, in whichever
	// order both policies run.
	if k.workload != nil {
		out = append(out, k.workload.ClaimedPatch())
	}
	if k.Metadata {
		out = append(out, restoreEntries("labels"), restoreEntries("annotations"))
	}
	return out
}

// restoreField returns the expression that restores one field if the object lists it, or a field in it, as borrowed.
func restoreField(pointer string) string {
	return fmt.Sprintf(`!variables.borrowed.contains('"%[1]s') || %[3]s == %[2]s ? [] :
%[2]s.hasValue() ? [JSONPatch{op: "add", path: "%[1]s", value: %[2]s.value()}] :
[JSONPatch{op: "remove", path: "%[1]s"}]`, pointer, cel.Field("oldObject", pointer), cel.Field("object", pointer))
}

// restoreEntries returns the expression that restores the labels or annotations that the object lists as borrowed. If
// an edit removed all of them, it first creates their map again.
func restoreEntries(part string) string {
	named := fmt.Sprintf(`variables.borrowed.contains('"/metadata/%s/' + jsonpatch.escapeKey(k) + '"')`, part)
	path := fmt.Sprintf(`"/metadata/%s/" + jsonpatch.escapeKey(k)`, part)
	was, is := "oldObject.metadata.?"+part+".orValue({})", "object.metadata.?"+part+".orValue({})"
	return fmt.Sprintf(`(object.metadata.?%[1]s.hasValue() || !%[2]s.exists(k, %[4]s) ? [] :
[JSONPatch{op: "add", path: "/metadata/%[1]s", value: {}}]) +
%[2]s.filter(k, %[4]s && %[3]s[?k] != %[2]s[?k]).map(k, JSONPatch{op: "add", path: %[5]s, value: %[2]s[k]}) +
%[3]s.filter(k, %[4]s && !(k in %[2]s)).map(k, JSONPatch{op: "remove", path: %[5]s})`, part, was, is, named, path)
}

// written is true if an entry k of a pair of labels or annotations was written by the gate in this request.
const written = "!(k in p[0]) && k == '" + gate.Label + "' || k == " +
	"'" + gate.AnnotationBy + "' && p[1][?k] == optional.of(request.userInfo.username)"

// markVariables are the names of Slipway's labels and annotations that an edit changes, and the release that they
// belong to.
var markVariables = []admission.Variable{
	{Name: "edited", Expression: "[" + entries("labels") + ", " + entries("annotations") +
		"].map(p, p[0].filter(k, k.startsWith('" + hold.Prefix + "') && p[0][?k] != p[1][?k] && !(" + written +
		")) + p[1].filter(k, k.startsWith('" + hold.Prefix + "') && !(k in p[0]) && !(" + written +
		"))).map(l, l.join(', ')).filter(t, t != '')"},
	{Name: "holder", Expression: cel.Annotation("oldObject", workload.AnnotationClaimedBy) + ".orValue(" +
		cel.Annotation("oldObject", rollout.AnnotationHeldBy) + ".orValue('a frozen rollout')).split('@')[0]"},
}

// entries returns an expression for the labels or annotations before and after the edit.
func entries(part string) string {
	return fmt.Sprintf("[oldObject.metadata.?%[1]s.orValue({}), object.metadata.?%[1]s.orValue({})]", part)
}

// markMessage is the message for a rejected edit of a mark.
const markMessage = "variables.edited.join(', ') + ' belongs to the running release ' + variables.holder + ': end " +
	"that first, or take the object over with the annotation " + rollout.AnnotationRepair + "=<your name>'"
