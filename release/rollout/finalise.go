package rollout

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// Ending is what a rollout is finalised to.
type Ending string

// The endings. EndSuccess is the end of the steps, EndNew a stop to new before it, EndRollback a rollback or a stop to
// stable.
const (
	EndNone     Ending = ""
	EndSuccess  Ending = "success"
	EndNew      Ending = "new"
	EndRollback Ending = "rollback"
	EndFrozen   Ending = "frozen"
	// EndDetached restores everything at once and lets the workload's own controller bring its pods to the current
	// template.
	EndDetached Ending = "detached"
	// EndDeleted cleans up after a workload that was deleted.
	EndDeleted Ending = "gone"
)

// Side returns the version that an ending leaves the pods at.
func (e Ending) Side() Side {
	if e == EndSuccess || e == EndNew {
		return SideNew
	}
	return SideStable
}

// Phase returns the phase that an ending ends in.
func (e Ending) Phase() Phase {
	switch e {
	case EndSuccess, EndNew:
		return PhaseHealthy
	case EndRollback:
		return PhaseRolledBack
	default:
		return PhaseCancelled
	}
}

// FinalMove is one move of finalising, by the name that status.finalisingStep shows: a RouteAction, a FinishAction, or
// FinalLeave.
type FinalMove string

const (
	// FinalRelease ends the finalising of a workload.
	FinalRelease = FinishRelease
	// FinalLeave leaves a shared TrafficRouting.
	FinalLeave FinalMove = "LeaveTrafficRouting"
)

// finalising returns the order of finalising, before what was not borrowed is left out.
func finalising(b Borrowed, ending Ending) []FinalMove {
	succeeds := ending == EndSuccess || ending == EndNew
	switch {
	case ending == EndFrozen && b.Untouched: // there is no split to leave
		return []FinalMove{FinalLeave, FinalRelease}
	case ending == EndFrozen:
		return []FinalMove{FinishFreeze}
	case ending == EndDetached:
		return []FinalMove{RouteUnpin, RouteToStable, RouteRemoveCanary, FinalLeave, FinalRelease}
	case ending == EndDeleted:
		return []FinalMove{RouteUnpin, RouteToStable, RouteRemoveCanary, FinalLeave, FinishAutoscalers}
	// Traffic leaves the new version before its pods do, and the stable Service is pinned to the stable pods until no
	// new one is left. The claim is released last, so that nothing borrowed is ever without an owner.
	case ending == EndRollback:
		return []FinalMove{FinalLeave, RouteToStable, FinishResume, RouteUnpin, RouteRemoveCanary, FinalRelease}
	// The extra workload carries its share until the workload itself is of the new version.
	case succeeds && b.Style == strategy.StyleCanary:
		return []FinalMove{RouteUnpin, FinishResume, RouteToStable, RouteRemoveCanary, FinalLeave, FinalRelease}
	case ending == EndSuccess && b.Style == strategy.StyleBlueGreen:
		return []FinalMove{RouteToNew, RouteUnpin, FinishResume, RouteToStable, RouteRemoveCanary, FinalLeave, FinalRelease}
	// In a blue-green that is stopped to new, traffic spreads over all pods too: few may be new yet.
	case succeeds:
		return []FinalMove{RouteUnpin, RouteToStable, RouteRemoveCanary, FinishResume, FinalLeave, FinalRelease}
	}
	return nil
}

// Borrowed is what has to be restored.
type Borrowed struct {
	Style    strategy.Style
	Traffic  bool
	Services bool
	Shared   bool
	// Autoscalers is true if autoscalers may be pinned.
	Autoscalers bool
	// Untouched is true if nothing was changed under the claim.
	Untouched bool
}

// FinalMoves returns the moves of finalising for what was borrowed, in order. Without traffic the pods need only one
// activity.
func FinalMoves(b Borrowed, ending Ending) []FinalMove {
	routed, pinned := b.Traffic, b.Traffic && b.Services
	borrowed := map[FinalMove]bool{RouteToStable: routed, RouteToNew: routed, RouteUnpin: pinned,
		RouteRemoveCanary: pinned, FinalLeave: b.Shared, FinishAutoscalers: b.Autoscalers}
	moves := slices.DeleteFunc(finalising(b, ending), func(move FinalMove) bool {
		needed, optional := borrowed[move]
		return optional && !needed
	})
	if n := len(moves); !b.Traffic && n >= 2 && moves[n-2] == FinishResume && moves[n-1] == FinalRelease {
		return append(moves[:n-2:n-2], FinishResumeAndRelease)
	}
	return moves
}

// RepairMoves returns the moves that bring a workload and its traffic to one version, as read from the workload, in the
// order of finalising. A shared TrafficRouting is left to the engine: only the engine knows its other holders.
func RepairMoves(saved Saved, to Side) []FinalMove {
	ending := EndRollback
	if to == SideNew {
		ending = EndNew
	}
	return FinalMoves(Borrowed{Style: saved.Style, Traffic: len(saved.Routings) > 0,
		Services: !saved.DisableGenerateCanaryService}, ending)
}

// Route returns the traffic change that a move is; false: it is none.
func (f FinalMove) Route() (RouteAction, bool) {
	switch f {
	case RouteUnpin, RouteToStable, RouteToNew, RouteRemoveCanary:
		return f, true
	}
	return "", false
}

// RecoverText returns the value of AnnotationRecover: plain kubectl commands that restore the workload and its traffic
// from any state of the rollout, in the safe order of finalising, first to the stable version, then to the new one.
func RecoverText(saved Saved, w catalog.Workload) string {
	r := recovery{saved: saved, w: w, kind: w.WorkloadRef.Lookup(), name: w.WorkloadRef.Name}
	r.resource = r.kind.Resource.GroupResource().String() // two API groups have a StatefulSet
	lines := slices.Concat([]string{"# Only when Slipway cannot do it. Choose one part and run it from its top. A " +
		"patch that fails because it is empty had nothing to give back."}, []string{"# to the stable version"},
		r.commands(SideStable), []string{"# to the new version"}, r.commands(SideNew))
	return strings.Join(lines, "\n") + "\n"
}

// recovery writes the commands for one workload.
type recovery struct {
	saved          Saved
	w              catalog.Workload
	kind           workload.Kind
	name, resource string
}

// commands returns the commands to one side: those of the moves of a repair. Before the first command, the objects are
// marked as under repair, so that neither the API server's guard nor a restarted engine interferes.
func (r recovery) commands(to Side) []string {
	out := r.repair("=recover")
	for _, move := range RepairMoves(r.saved, to) {
		out = append(out, r.move(move, to)...)
	}
	return append(out, r.repair("-")...)
}

// move returns the commands of one move of finalising.
func (r recovery) move(move FinalMove, to Side) (out []string) {
	switch move {
	case FinishResume:
		return r.pods(to)
	case FinishRelease:
		return r.end()
	case FinishResumeAndRelease:
		return append(r.pods(to), r.end()...)
	}
	for _, t := range r.saved.Routings {
		switch {
		case move == RouteUnpin:
			out = append(out, r.restore("services", t.Service))
		case move == RouteRemoveCanary:
			out = append(out, r.kubectl("delete services %s --ignore-not-found", t.CanaryService()))
		case move == RouteToStable && t.Ingress != nil:
			out = append(out, r.kubectl("delete ingresses.networking.k8s.io %s --ignore-not-found",
				t.Ingress.Name+strategy.CanarySuffix))
		}
		for _, route := range borrowedRoutes(t) {
			if move == RouteToStable {
				out = append(out, r.restore(route[0], route[1]))
			}
		}
	}
	return out
}

// borrowedRoutes returns the routing objects that a rollout has borrowed, each with kubectl's name of its kind.
func borrowedRoutes(t strategy.Routing) (all [][2]string) {
	if t.HTTPRoute != "" {
		all = append(all, [2]string{"httproutes.gateway.networking.k8s.io", t.HTTPRoute})
	}
	for _, c := range t.Custom {
		group, version, _ := strings.Cut(c.APIVersion, "/")
		all = append(all, [2]string{c.Kind + "." + version + "." + group, c.Name})
	}
	return all
}

// repair sets or removes AnnotationRepair on every object that is borrowed, the workload last.
func (r recovery) repair(value string) (out []string) {
	annotate := func(resource, name string) {
		out = append(out, r.kubectl("annotate --overwrite %s %s %s%s", resource, name, AnnotationRepair, value))
	}
	for _, t := range r.saved.Routings {
		if !r.saved.DisableGenerateCanaryService {
			annotate("services", t.Service)
		}
		for _, route := range borrowedRoutes(t) {
			annotate(route[0], route[1])
		}
	}
	for _, name := range r.saved.Autoscalers {
		annotate(resourceAutoscalers, name)
	}
	annotate(r.resource, r.name)
	return out
}

// resourceAutoscalers is kubectl's unambiguous name of the kind.
const resourceAutoscalers = "horizontalpodautoscalers.v2.autoscaling"

func (r recovery) kubectl(format string, args ...any) string {
	return "kubectl -n " + r.w.Namespace + " " + fmt.Sprintf(format, args...)
}

// restore undoes what was done to an object, with the patch in its annotation.
func (r recovery) restore(resource, name string) string {
	path := strings.ReplaceAll(AnnotationRestore, ".", `\.`)
	return r.kubectl(`patch %s %s --type=json -p "$(%s)"`, resource, name,
		r.kubectl(`get %s %s -o jsonpath='{.metadata.annotations.%s}'`, resource, name, path))
}

// end removes what is left when the pods are restored: the extra workload, pinned autoscalers, and the marks on the
// workload.
func (r recovery) end() (out []string) {
	if r.saved.CanaryWorkload != "" {
		out = append(out, r.kubectl("delete deployments.apps %s --ignore-not-found", r.saved.CanaryWorkload))
	}
	for _, name := range r.saved.Autoscalers {
		out = append(out, r.restore(resourceAutoscalers, name))
	}
	labels := "slipway.io/claimed- slipway.io/rollout-"
	annotations := []string{workload.AnnotationClaimedBy, AnnotationSettled, workload.AnnotationRollout,
		AnnotationRecover}
	if r.saved.Declared != "" {
		labels += " " + LabelStableRevision + "-"
		annotations = append(annotations, AnnotationNext, AnnotationInProgressing, AnnotationExtraStatus,
			AnnotationOriginalStrategy)
	}
	return append(out, r.kubectl("label %s %s %s", r.resource, r.name, labels),
		r.kubectl("annotate %s %s %s-", r.resource, r.name, strings.Join(annotations, "- ")))
}

// pods restores template and settings in one patch, waits until every pod is of that version, and then restores the
// settings that come last.
func (r recovery) pods(to Side) []string {
	source, undo := r.template(to)
	if r.saved.Style == strategy.StyleCanary && source == "" {
		return nil
	}
	var ops []jsonpatch.Op
	if source != "" {
		ops = append(ops, jsonpatch.Replace("/spec/template", "TEMPLATE"))
	}
	first, last := r.settings()
	body := quotedPatch(slices.Concat(ops, undo, first))
	if source != "" {
		body = strings.Replace(body, `\"TEMPLATE\"`, "$("+source+")", 1)
	}
	out := []string{r.kubectl("patch %s %s --type=json -p %s", r.resource, r.name, body), r.waitUpdated()}
	if len(last) > 0 {
		out = append(out, r.kubectl("patch %s %s --type=json -p %s", r.resource, r.name, quotedPatch(last)))
	}
	return out
}

// template returns the command that prints the target template, "" if the live one stays, and the operations that clean
// it.
func (r recovery) template(to Side) (source string, undo []jsonpatch.Op) {
	const base = "/spec/template/metadata"
	if to == SideNew && r.saved.Style == strategy.StyleCanary {
		undo = append(undo, jsonpatch.Remove(base+"/labels/"+jsonpatch.Escape(strategy.LabelCanaryOf)))
		if m := r.saved.CanaryMetadata; m != nil {
			undo = slices.Concat(undo, removals(base+"/labels/", m.Labels),
				removals(base+"/annotations/", m.Annotations))
		}
		return r.kubectl("get deployments.apps %s -o jsonpath='{.spec.template}'", r.saved.CanaryWorkload), undo
	}
	revision := r.saved.Stable
	if to == SideNew {
		revision = r.saved.Canary
	}
	switch {
	case revision == "" || r.saved.Style == strategy.StyleCanary && r.saved.Declared == "":
		return "", nil
	case r.kind.Revisions == workload.ReplicaSets:
		return r.kubectl("get replicasets.apps %s-%s -o jsonpath='{.spec.template}'", r.name, revision),
			[]jsonpatch.Op{jsonpatch.Remove(base + "/labels/" + jsonpatch.Escape(r.kind.RevisionLabel))}
	}
	return r.kubectl("get controllerrevisions.apps %s -o jsonpath='{.data.spec.template}'", revision),
		[]jsonpatch.Op{jsonpatch.Remove("/spec/template/$patch")}
}

// removals returns the operations that remove the keys of m below path.
func removals(path string, m map[string]string) (out []jsonpatch.Op) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, jsonpatch.Remove(path+jsonpatch.Escape(k)))
	}
	return out
}

// settings returns the patches that restore the borrowed fields; last are those for after the pods have moved: a
// Deployment's strategy type Recreate.
func (r recovery) settings() (first, last []jsonpatch.Op) {
	for _, path := range slices.Sorted(maps.Keys(r.saved.Settings)) {
		value := r.saved.Settings[path]
		if len(value) == 0 {
			value = json.RawMessage("null")
		}
		var strategy struct{ Type string }
		if json.Unmarshal(value, &strategy) == nil && strategy.Type == "Recreate" {
			first = append(first, jsonpatch.Add(path, map[string]string{"type": "RollingUpdate"}))
			last = append(last, jsonpatch.Add(path, value))
		} else {
			first = append(first, jsonpatch.Add(path, value))
		}
	}
	return first, last
}

// waitUpdated returns the command that waits until every pod is of the target version.
func (r recovery) waitUpdated() string {
	if r.kind.Resource.Group == appsv1.GroupName {
		return r.kubectl("rollout status %s/%s", r.resource, r.name)
	}
	return r.kubectl("wait %s/%s --for=jsonpath='{.status.%s}'=%d --timeout=-1s", r.resource, r.name,
		r.kind.UpdatedField, r.saved.Replicas)
}

// quotedPatch returns a patch as one shell word in which the shell expands nothing.
func quotedPatch(ops []jsonpatch.Op) string {
	raw := jsonpatch.Encode(ops)
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace(string(raw)) + `"`
}
