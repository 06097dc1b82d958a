package guard

import (
	"fmt"
	"strings"

	admission "k8s.io/api/admissionregistration/v1"

	"slipway.io/slipway/release/cel"
	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/hold"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workload"
)

// marksName is the name, after the installation's, of the policy that protects the marks.
const marksName = "marks"

// isMark is true if k is the name of one of Slipway's labels and annotations.
const isMark = "k.startsWith('" + hold.Prefix + "')"

// written returns an expression that is true if the entry k was written by the gate in this request. was and is are
// the labels or annotations before and after the edit.
func written(was, is string) string {
	return fmt.Sprintf("!(k in %[1]s) && k == '%[3]s' || k == '%[4]s' && %[2]s[?k] == "+
		"optional.of(request.userInfo.username)", was, is, gate.Label, gate.AnnotationBy)
}

// markVariables are the names of Slipway's labels and annotations that an edit changes, and the release that they
// belong to.
var markVariables = []admission.Variable{
	{Name: "edited", Expression: "[" + entries("labels") + ", " + entries("annotations") +
		"].map(p, p[0].filter(k, " + isMark + " && p[0][?k] != p[1][?k] && !(" + written("p[0]", "p[1]") +
		")) + p[1].filter(k, " + isMark + " && !(k in p[0]) && !(" + written("p[0]", "p[1]") +
		"))).map(l, l.join(', ')).filter(t, t != '')"},
	{Name: "holder", Expression: cel.Annotation("oldObject", workload.AnnotationClaimedBy) + ".orValue(" +
		cel.Annotation("oldObject", rollout.AnnotationHeldBy) + ".orValue('a frozen rollout')).split('@')[0]"},
}

// entries returns an expression for the labels or annotations before and after the edit.
func entries(part string) string {
	return fmt.Sprintf("[oldObject.metadata.?%[1]s.orValue({}), object.metadata.?%[1]s.orValue({})]", part)
}

// markMessage is the message for a rejected edit of a mark.
const markMessage = "variables.edited.join(', ') + ' belongs to the running release ' + variables.holder + ': keep " +
	"in the edit what the object has of slipway.io, or end the release first, or take the object over with the " +
	"annotation " + rollout.AnnotationRepair + "=<your name>'"

// serverFields are fields of metadata that the API server writes itself: they differ in every edit.
const serverFields = "['labels', 'annotations', 'managedFields', 'resourceVersion', 'generation', " +
	"'creationTimestamp', 'uid', 'selfLink']"

// otherChanges are the variables of restoreMarks. "more" is true if an edit changes more than Slipway's marks and what
// the API server writes itself.
func otherChanges() []admission.Variable {
	part := func(name string) string {
		return "variables.metadata.map(m, " + cel.Members("m.?"+name) + ")"
	}
	var more []string
	for _, pair := range [][2]string{{"objects", "!(k in ['apiVersion', 'kind', 'metadata', 'status'])"},
		{"metadata", "!(k in " + serverFields + ")"}, {"labels", "!" + isMark}, {"annotations", "!" + isMark}} {
		more = append(more, fmt.Sprintf("variables.%[1]s.exists(m, m.exists(k, %[2]s && variables.%[1]s[0][?k] != "+
			"variables.%[1]s[1][?k]))", pair[0], pair[1]))
	}
	return []admission.Variable{
		{Name: "objects", Expression: "[oldObject, object]"},
		{Name: "metadata", Expression: "variables.objects.map(o, " + cel.Members("o.?metadata") + ")"},
		{Name: "labels", Expression: part("labels")},
		{Name: "annotations", Expression: part("annotations")},
		{Name: "more", Expression: strings.Join(more, " || ")},
	}
}

// restoreMarks returns the expression that restores Slipway's marks if an edit changes something else too: a client
// that writes whole objects sends the marks that it has read earlier, or none, and means the rest. An edit of nothing
// but marks is left to the policy that refuses it; restored, it would pass in silence.
//
// It comes before the other patches: they would take back changes of borrowed fields, by which it recognises such an
// edit.
func restoreMarks() string {
	restore := func(part string) string {
		return restoreEntries(part, func(was, is string) string {
			return isMark + " && !(" + written(was, is) + ")"
		})
	}
	return "!variables.more ? [] : " + restore("labels") + " +\n" + restore("annotations")
}
