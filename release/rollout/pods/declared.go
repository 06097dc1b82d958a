package pods

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workload"
)

// This file is about workloads whose own pod template declares the new version: a user has changed it, and the change
// is held on the workload before a rollout begins.

// ForDeclared returns the technique for a rollout. declared is true if the workload's own template is the new
// version's.
func ForDeclared(tech Technique, declared bool) Technique {
	if k, extra := tech.(deploymentExtra); extra {
		k.declared = declared
		return k
	}
	return tech
}

// withoutHold returns the snapshot with the fields that hold its change of template set to their values from before.
func withoutHold(seen Observed) Observed {
	if len(seen.Held) == 0 {
		return seen
	}
	settings := maps.Clone(seen.Settings)
	for _, pointer := range slices.Sorted(maps.Keys(seen.Held)) {
		for path := range seen.Settings {
			if strings.HasPrefix(pointer, path+"/") {
				settings[path] = withValue(settings[path], pointer[len(path):], seen.Held[pointer])
			}
		}
		settings[pointer] = seen.Held[pointer]
	}
	seen.Settings = settings
	return seen
}

// withValue sets the value at a pointer within an object. null removes it, and its parent object if that becomes empty:
// an API server would fill in defaults there.
func withValue(object json.RawMessage, pointer string, value json.RawMessage) json.RawMessage {
	root, v := map[string]any{}, any(nil)
	absent := workload.AbsentJSON(object)
	if json.Unmarshal(value, &v) != nil || absent && v == nil || !absent && json.Unmarshal(object, &root) != nil {
		return object
	}
	if v != nil {
		jsonpatch.Put(root, pointer, v)
	}
	for empty := v == nil; empty; {
		jsonpatch.Drop(root, pointer)
		pointer = pointer[:strings.LastIndexByte(pointer, '/')]
		parent, _ := jsonpatch.At(root, pointer)
		fields, is := parent.(map[string]any)
		empty = is && len(fields) == 0
	}
	return jsonpatch.Encode(root)
}

// declaredUnsettledReason returns why a rollout of what the workload declares cannot begin yet: not all pods are of one
// version, which would be the stable one.
func declaredUnsettledReason(s rollout.Subject, seen Observed) string {
	stable, one := seen.onlyRevision()
	total, _ := seen.Count(stable)
	switch {
	case seen.Lagging():
		return fmt.Sprintf("%s: its controller has not processed its last change yet", s.Workload)
	case !one:
		return fmt.Sprintf("%s has pods of more than one version: its own update was under way when its pod template "+
			"was changed", s.Workload)
	case total < seen.Replicas:
		return fmt.Sprintf("%s has %d of its %d pods", s.Workload, total, seen.Replicas)
	}
	return ""
}

// finishOwnUpdate lets the workload's own controller finish the update that was under way when its pod template was
// changed: the release has to begin from the result. The changed template is kept in an annotation meanwhile.
func finishOwnUpdate(req rollout.BeginRequest, seen Observed) (NextAction, bool) {
	_, one := seen.onlyRevision()
	if req.Unsettled != rollout.UnsettledWait || seen.Declared == "" || one || seen.Lagging() ||
		seen.Template != seen.Declared || len(seen.Held) == 0 {
		return NextAction{}, false
	}
	newest, there := seen.newest(func(r Revision) bool {
		total, _ := seen.Count(r)
		return total > 0 && r.Template != seen.Declared
	})
	if !there {
		return NextAction{}, false
	}
	w := &workload.Write{Step: "settle", OnlyIfUnchanged: true,
		Template: &workload.Template{Revision: newest.Name}, KeepTemplate: rollout.AnnotationNext,
		Remove: []string{gate.AnnotationHeld}}
	for _, pointer := range slices.Sorted(maps.Keys(seen.Held)) {
		w.Settings = append(w.Settings, workload.Setting{Path: pointer, Value: seen.Held[pointer]})
	}
	return set(fmt.Sprintf("let its own controller finish the update to revision %s first", newest.Name), w), true
}

// declaredRefusalReason returns why what the workload declares cannot be released, "" if it can.
func declaredRefusalReason(s rollout.Subject, seen Observed) string {
	_, kept := seen.RecalledRevision()
	switch {
	case seen.HeldProblem != "":
		return fmt.Sprintf("%s: %s: repair the fields that hold its pods manually and remove that annotation",
			s.Workload, seen.HeldProblem)
	case seen.Recalled != nil && (len(seen.Held) > 0 || seen.Next != ""):
		return fmt.Sprintf("%s: a change of its pod template is held until its own release begins: wait for that "+
			"release and roll it back, or set the "+
			"template back first", s.Workload)
	case seen.Recalled != nil && !kept:
		return NotKeptReason(s.Workload, seen)
	case seen.Recalled == nil && seen.Template != seen.Declared && seen.Next != seen.Declared:
		return fmt.Sprintf("%s: its pod template was changed again before the release began", s.Workload)
	}
	return ""
}

// mustKeepTemplate reports whether a write that sets the stable template has to keep the live one in an annotation,
// since the workload declares it.
func (o Observed) mustKeepTemplate() bool {
	return o.Saved.Declared != "" && o.Template != o.Saved.StableTemplate
}
