package kruise

import (
	"strings"

	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/workloadops"
)

// KeyEngine says which engine looks after Rollouts: as a label of a namespace the engine's name, for all Rollouts there that nobody looks after
// yet; as an annotation of a Rollout "<name>/<UID>" of the engine that does.
const KeyEngine = "slipway.io/engine"

// EngineText is the annotation's value.
func EngineText(e workloadops.Engine) string { return e.Name + "/" + e.UID }

// LooksAfter says whether an engine is the one that looks after an object, and whether one was named at all. Who wants another engine to take an
// object takes the annotation off.
func LooksAfter(e workloadops.Engine, r *v1beta1.Rollout) (ours, named bool) {
	_, uid, _ := strings.Cut(r.Annotations[KeyEngine], "/")
	return uid == e.UID, uid != ""
}

// isNamed says that an object names the engine that looks after it.
func isNamed(r *v1beta1.Rollout) bool {
	_, named := LooksAfter(workloadops.Engine{}, r)
	return named
}
