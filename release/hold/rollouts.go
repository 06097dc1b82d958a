package hold

import (
	"fmt"
	"strings"

	"slipway.io/slipway/release/cel"
	"slipway.io/slipway/release/gate"
)

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
	cel.Label("oldObject", gate.Label),
	cel.Label("object", gate.Label), labelValue)

// Named returns an expression that is true if the Rollout names the workload and is neither disabled nor being deleted.
func (k Kind) Named() string {
	return fmt.Sprintf("%[1]s.?name.orValue('') == object.metadata.?name.orValue('') && %[1]s.?kind.orValue('') == "+
		"%[2]s && "+
		"%[1]s.?apiVersion.orValue('').startsWith(%[3]s) && !params.spec.?disabled.orValue(false) && "+
		"!params.metadata.?deletionTimestamp.hasValue()",
		"params.spec.?workloadRef", cel.Text(k.Kind), cel.Text(k.Resource.Group+"/"))
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
