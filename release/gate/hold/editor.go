package hold

import (
	"fmt"

	admission "k8s.io/api/admissionregistration/v1"

	"slipway.io/slipway/release/cel"
	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/jsonpatch"
)

// EditorVariables are those of EditorPatch: who is to stand on a Rollout as the one who has edited its spec last, an optional value.
func EditorVariables() []admission.Variable {
	return []admission.Variable{{Name: "editor", Expression: fmt.Sprintf("object.?spec != oldObject.?spec ? optional.of(%s) : %s", user,
		cel.Annotation("oldObject", gate.AnnotationEditor))}}
}

// EditorPatch notes who has edited the spec of a Rollout, whatever the edit says of that.
func EditorPatch() string {
	return fmt.Sprintf(`variables.editor == %s ? [] :
(object.metadata.?annotations.hasValue() ? [] : [JSONPatch{op: "add", path: "/metadata/annotations", value: {}}]) +
(variables.editor.hasValue() ? [JSONPatch{op: "add", path: "%[2]s", value: variables.editor.value()}] : [JSONPatch{op: "remove", path: "%[2]s"}])`,
		cel.Annotation("object", gate.AnnotationEditor), jsonpatch.Annotation(gate.AnnotationEditor))
}
