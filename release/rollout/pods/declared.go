package pods

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workloadops"
)

// This file is about workloads whose own pod template is the command: somebody has changed it, and what holds the change stands on the
// workload before a rollout begins.

// Under is a technique for a rollout under which the workload's own template is the new version's.
func Under(tech Technique, declared bool) Technique {
	if k, extra := tech.(deploymentExtra); extra {
		k.declared = declared
		return k
	}
	return tech
}

// opened is the workload as its owner has it: the fields that hold its change of template are what they were before.
func opened(seen Observed) Observed {
	if len(seen.Held) == 0 {
		return seen
	}
	settings := maps.Clone(seen.Settings)
	for _, pointer := range slices.Sorted(maps.Keys(seen.Held)) {
		for path := range seen.Settings {
			if within, is := strings.CutPrefix(pointer, path+"/"); is {
				settings[path] = withValue(settings[path], strings.Split(within, "/"), seen.Held[pointer])
			}
		}
		settings[pointer] = seen.Held[pointer]
	}
	seen.Settings = settings
	return seen
}

// withValue sets a field within an object, or takes it away where the value is null.
func withValue(object json.RawMessage, path []string, value json.RawMessage) json.RawMessage {
	if workloadops.AbsentJSON(value) {
		return withoutField(object, path)
	}
	var v any
	if json.Unmarshal(value, &v) != nil { // ParseHeld has read it as JSON
		return object
	}
	last := len(path) - 1
	return withFields(object, map[string]any{path[last]: v}, path[:last]...)
}

// withoutField takes a field away, and the object around it that would be empty: an API server would fill that in.
func withoutField(object json.RawMessage, path []string) json.RawMessage {
	root := map[string]any{}
	if workloadops.AbsentJSON(object) || json.Unmarshal(object, &root) != nil {
		return object
	}
	at, last := root, len(path)-1
	for _, name := range path[:last] {
		inner, is := at[name].(map[string]any)
		if !is {
			return object
		}
		at = inner
	}
	if delete(at, path[last]); len(at) == 0 && last > 0 {
		return withoutField(object, path[:last])
	}
	out, err := json.Marshal(root)
	if err != nil {
		panic(err) // it was JSON before
	}
	return out
}

// unsettledDeclared says why a rollout of what the workload declares cannot begin yet: not all pods are of the one version that is stable.
func unsettledDeclared(s rollout.Subject, seen Observed) string {
	stable, one := seen.oneVersion()
	total, _ := seen.Count(stable)
	switch {
	case seen.Lagging():
		return fmt.Sprintf("%s: its controller has not processed its last change yet", s.Workload)
	case !one:
		return fmt.Sprintf("%s has pods of more than one version: its own update was under way when its pod template was changed", s.Workload)
	case total < seen.Replicas:
		return fmt.Sprintf("%s has %d of its %d pods", s.Workload, total, seen.Replicas)
	}
	return ""
}

// settle has the workload's own controller finish the update that was under way when its pod template was changed: what it was bringing is
// what the release has to begin from. The changed template is kept beside it meanwhile.
func settle(req rollout.BeginRequest, seen Observed) (NextAction, bool) {
	_, one := seen.oneVersion()
	if req.Unsettled != rollout.UnsettledWait || seen.Declared == "" || one || seen.Lagging() || seen.Template != seen.Declared || len(seen.Held) == 0 {
		return NextAction{}, false
	}
	newest, there := seen.newest(func(r Revision) bool {
		total, _ := seen.Count(r)
		return total > 0 && r.Template != seen.Declared
	})
	if !there {
		return NextAction{}, false
	}
	w := &workloadops.Write{Step: "settle", Fresh: true, Template: &workloadops.Template{Revision: newest.Name}, KeepTemplate: rollout.AnnotationNext,
		Remove: []string{gate.AnnotationHeld}}
	for _, pointer := range slices.Sorted(maps.Keys(seen.Held)) {
		w.Settings = append(w.Settings, workloadops.Setting{Path: pointer, Value: seen.Held[pointer]})
	}
	return set(fmt.Sprintf("let its own controller finish the update to revision %s first", newest.Name), w), true
}

// refusesDeclared says why what the workload declares cannot be released, "" when it can.
func refusesDeclared(s rollout.Subject, seen Observed) string {
	_, kept := seen.Recall()
	switch {
	case seen.HeldProblem != "":
		return fmt.Sprintf("%s: %s: put the fields that hold its pods right by hand and remove that annotation", s.Workload, seen.HeldProblem)
	case seen.Recalled != nil && (len(seen.Held) > 0 || seen.Next != ""):
		return fmt.Sprintf("%s: a change of its pod template is held until its own release begins: wait for that release and roll it back, or set the "+
			"template back first", s.Workload)
	case seen.Recalled != nil && !kept:
		return NotKept(s.Workload, seen)
	case seen.Recalled == nil && seen.Template != seen.Declared && seen.Next != seen.Declared:
		return fmt.Sprintf("%s: its pod template was changed again before the release began", s.Workload)
	}
	return ""
}

// keeps says whether a write that sets the stable template has to keep the one that stands: it is what the workload declares.
func (o Observed) keeps() bool {
	return o.Saved.Declared != "" && o.Template != o.Saved.StableTemplate
}
