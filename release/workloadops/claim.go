package workloadops

import (
	"fmt"
	"strings"
)

// Engine is a Slipway engine as claims name it: UID tells engines apart, Name is for people.
type Engine struct {
	UID  string `json:"uid"`
	Name string `json:"name"`
}

// Differs says that two engines are known, and are not the same. A claim of an earlier build names no engine: nobody knows whose it is, and
// it is asked after as one's own.
func (e Engine) Differs(from Engine) bool {
	return e.UID != "" && from.UID != "" && e.UID != from.UID
}

// Holder is who holds a workload: a workflow, its run, and the engine that runs it.
type Holder struct {
	WorkflowID, RunID string
	// Engine has no UID where an earlier build, or a person, made the claim.
	Engine Engine
}

// String is the claim's value: "<workflow ID>@<run ID>@<engine's name>/<engine's UID>", without an engine "<workflow ID>@<run ID>".
func (h Holder) String() string {
	claim := h.WorkflowID + "@" + h.RunID
	if h.Engine.UID != "" {
		claim += "@" + h.Engine.Name + "/" + h.Engine.UID
	}
	return claim
}

// ParseHolder reads a claim's value. A value without a run, as a person may write it, is a workflow ID.
func ParseHolder(value string) (h Holder) {
	value, h.Engine = cutEngine(value)
	at := strings.LastIndexByte(value, '@')
	if at < 0 {
		h.WorkflowID = value
		return h
	}
	h.WorkflowID, h.RunID = value[:at], value[at+1:]
	return h
}

// cutEngine takes the engine off a claim's value. No run's ID has a slash in it, so that a value without an engine is not mistaken.
func cutEngine(value string) (string, Engine) {
	at := strings.LastIndexByte(value, '@')
	if at < 0 || !strings.Contains(value[:at], "@") {
		return value, Engine{}
	}
	name, uid, named := strings.Cut(value[at+1:], "/")
	if !named || uid == "" {
		return value, Engine{}
	}
	return value[:at], Engine{UID: uid, Name: name}
}

// For is how people at an engine are told of a holder: its workflow, and its engine where that is another one.
func (h Holder) For(engine Engine) string {
	if h.Engine.Differs(engine) {
		return h.WorkflowID + " of engine " + h.Engine.Name
	}
	return h.WorkflowID
}

// Told is how a release that has a claim tells of the holder of another one.
func Told(ours, theirs string) string {
	return ParseHolder(theirs).For(ParseHolder(ours).Engine)
}

// IsForeign says that a claim was made by another engine than ours was.
func IsForeign(ours, theirs string) bool {
	return ParseHolder(theirs).Engine.Differs(ParseHolder(ours).Engine)
}

// MayTakeOver says whether the claim that stands on an object may be replaced by ours: it is the one of the dead workflow that the request
// names. Another engine's never is, since only that engine knows whether its workflow is dead.
func MayTakeOver(ours, dead, standing string) bool {
	return dead != "" && standing == dead && !IsForeign(ours, standing)
}

// ForeignReason says why another engine's claim isn't taken over, and what a person can do.
func ForeignReason(h Holder) string {
	way := "remove its annotation " + AnnotationClaimedBy
	if parts := strings.Split(h.WorkflowID, "/"); len(parts) == 4 && parts[0] == "rollout" {
		way = fmt.Sprintf("bring the workload home with `slipway repair %s/%s --to stable --engine %s`", parts[2], parts[3], h.Engine.Name)
	}
	return fmt.Sprintf("only engine %s can take over its own claims: wait until that release is over, or stop it there; if engine %s is gone "+
		"for good, %s", h.Engine.Name, h.Engine.Name, way)
}
