package hold

import (
	"fmt"

	admission "k8s.io/api/admissionregistration/v1"

	"slipway.io/slipway/release/cel"
	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/jsonpatch"
)

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
