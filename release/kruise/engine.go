package kruise

import (
	"strings"

	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/workload"
)

// KeyEngine names the engine that manages Rollouts. As a label of a namespace its value is the engine's name, for all
// Rollouts there that no engine manages yet; as an annotation of a Rollout it is "<name>/<UID>" of the engine that
// manages it.
const KeyEngine = "slipway.io/engine"

// EngineText returns the annotation's value.
func EngineText(e workload.Engine) string { return e.Name + "/" + e.UID }

// Manages reports whether an engine manages an object, and whether the object names an engine at all. To hand an object
// to another engine, remove the annotation.
func Manages(e workload.Engine, r *v1beta1.Rollout) (ours, named bool) {
	_, uid, _ := strings.Cut(r.Annotations[KeyEngine], "/")
	return uid == e.UID, uid != ""
}

// namesEngine reports whether an object names the engine that manages it.
func namesEngine(r *v1beta1.Rollout) bool {
	_, named := Manages(workload.Engine{}, r)
	return named
}
