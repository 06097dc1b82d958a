package rollout

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/digest"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// The annotations that a rollout writes on objects, in addition to AnnotationClaimedBy, LabelClaimed and
// AnnotationRollout of release/workload.
const (
	// AnnotationRecover is on the workload as long as AnnotationRollout: how an operator restores the workload with plain
	// kubectl commands.
	AnnotationRecover = "slipway.io/recover"
	// AnnotationSettled is written when the pods have settled: SettledState, as JSON. Any difference of the workload
	// from it was made by another client.
	AnnotationSettled = "slipway.io/rest"
	// AnnotationRestore is on every other object that a rollout borrowed (Service, HTTPRoute, custom object, HPA): the
	// JSON Patch (RFC 6902) that restores the object and removes this annotation and the next ones.
	AnnotationRestore = "slipway.io/restore"
	// AnnotationHeldBy is the rollout's claim on objects that it borrowed or created: an object can route for only one
	// release at a time.
	AnnotationHeldBy = "slipway.io/held-by"
	// AnnotationWritten is the SHA-256 of the borrowed part of an object as it was last written: it detects edits by
	// other clients.
	AnnotationWritten = "slipway.io/written"
	// AnnotationNext is on a workload whose own pod template is the command: the template that it declares, as JSON,
	// while the stable one has to be in the spec: until every pod is of the stable one, or while the workload has no
	// pods.
	AnnotationNext = "slipway.io/next-template"
	// AnnotationRepair is put on a borrowed object by an operator, or by slipway repair for one: the operator's name.
	// The API server's guard then admits every edit, and the engine writes nothing more to the object.
	AnnotationRepair = "slipway.io/repair"
)

// Saved is what an operator or another process needs to restore the workload and its traffic without Temporal.
type Saved struct {
	// Name is the rollout's name, WorkflowID its workflow.
	Name       string         `json:"name"`
	WorkflowID string         `json:"workflowId"`
	Style      strategy.Style `json:"style"`
	// Stable is the revision that served before: a Deployment's pod-template-hash, otherwise the ControllerRevision's
	// name.
	Stable string `json:"stable"`
	// StableNumber is the number of that revision; for a Deployment that of kubectl rollout undo --to-revision.
	StableNumber int64 `json:"stableNumber,omitempty"`
	// StableTemplate is the digest of the stable pod template as the API server keeps it.
	StableTemplate string `json:"stableTemplate,omitempty"`
	// Declared is the digest of the pod template that the workload declares, "" when the rollout sets the new template
	// itself.
	Declared string `json:"declared,omitempty"`
	// Claim is the claim under which this was saved. If the workload has another claim, that release has adopted it.
	Claim string `json:"claim,omitempty"`
	// Canary is the new revision in the same form, "" until it is known.
	Canary string `json:"canary,omitempty"`
	// Replicas is the workload's size when the rollout began.
	Replicas int32 `json:"replicas"`
	// Settings are the borrowed fields of the workload by JSON Pointer; null: the field was absent.
	Settings map[string]json.RawMessage `json:"settings,omitempty"`
	// Routings are the strategy's; DisableGenerateCanaryService as well.
	Routings                     []strategy.Routing `json:"routings,omitempty"`
	DisableGenerateCanaryService bool               `json:"disableGenerateCanaryService,omitempty"`
	// CanaryWorkload is the name of the extra Deployment; "": none. CanaryMetadata is what was added to its pods.
	CanaryWorkload string                `json:"canaryWorkload,omitempty"`
	CanaryMetadata *strategy.PodMetadata `json:"canaryMetadata,omitempty"`
	// Autoscalers are the pinned HorizontalPodAutoscalers. Their originals are in their AnnotationRestore.
	Autoscalers []string `json:"autoscalers,omitempty"`
	// TrafficRouting is the shared TrafficRouting that the rollout holds; "": none.
	TrafficRouting string `json:"trafficRouting,omitempty"`
	// RollingBack is true once the pods were asked to go back to the stable version, at once or in batches.
	RollingBack bool `json:"retracting,omitempty"`
	// FinalTemplateBy is the claim and the side ("<claim> new") for which the final template was set at the end. A
	// later change of the template is by another client.
	FinalTemplateBy string `json:"homeward,omitempty"`
}

// LeftToController reports whether the workload's own controller rolls out another client's template before this
// rollout has moved a pod: the template is not the stable one, and none of the borrowed settings is in place. Only for
// a Deployment: there a rollout never sets a template without the minReadySeconds gate before its pods have settled.
func (s Saved) LeftToController(means workload.Means, template string, live map[string]json.RawMessage) bool {
	moved := s.Canary != "" || s.FinalTemplateBy != "" || s.RollingBack
	if means != workload.Limits || moved || s.StableTemplate == "" || s.Style == strategy.StyleCanary {
		return false
	}
	return template != s.StableTemplate && len(SettledState{Settings: s.Settings}.ChangedFields(live)) == 0
}

// SettledState is what a workload is like while a step pauses.
type SettledState struct {
	// Template is the digest of the pod template, Replicas the requested size (0 for a kind without a size).
	Template string `json:"template"`
	Replicas int32  `json:"replicas"`
	// Surge is how many pods beyond its size a Deployment settled with: a halted Move had created them in addition to
	// the others.
	Surge int32 `json:"surge,omitempty"`
	// GateSeen is the generation of a Deployment when its minReadySeconds gate was seen in force on its ReplicaSet,
	// between a pause and the next Move.
	GateSeen int64 `json:"gateSeen,omitempty"`
	// Settings are the borrowed fields as they were when the workload settled, by JSON Pointer; null: the field is
	// absent. None while pods move.
	Settings map[string]json.RawMessage `json:"settings,omitempty"`
}

// ChangedFields returns the settings of a settled workload that another client has changed, sorted. live are the
// workload's, without absent fields.
func (r SettledState) ChangedFields(live map[string]json.RawMessage) (paths []string) {
	for _, path := range slices.Sorted(maps.Keys(r.Settings)) {
		if !workload.SameJSON(r.Settings[path], live[path]) {
			paths = append(paths, path)
		}
	}
	return paths
}

// UnblocksController reports whether a change by another client lets the workload's own controller move pods of both
// versions: changed settings or, if the template is not what the rollout releases (edited), the template. A Deployment
// that was left paused moves only when it is unpaused.
func (r SettledState) UnblocksController(disturbed []string, edited bool) bool {
	const paused = "/spec/paused"
	if string(r.Settings[paused]) == "true" {
		return slices.Contains(disturbed, paused)
	}
	return edited || len(disturbed) > 0
}

// SettledOn returns the value of AnnotationSettled among these annotations; nil if it is absent or cannot be read.
func SettledOn(annotations map[string]string) *SettledState {
	var s SettledState
	if json.Unmarshal([]byte(annotations[AnnotationSettled]), &s) != nil {
		return nil
	}
	return &s
}

// ParseSaved reads the value of operation.AnnotationRollout.
func ParseSaved(text string) (*Saved, error) {
	var s Saved
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return nil, err
	}
	return &s, nil
}

// SavedOn returns the value of operation.AnnotationRollout on a workload with these labels and annotations; "" if
// nothing is saved, or if the value is a copy that kubectl rollout undo restored from a ReplicaSet. An undo keeps the
// labels, and operation.LabelRollout names the release that saved something. If the claim is still that release's,
// nothing was undone, and the value is returned as it is.
func SavedOn(labels, annotations map[string]string) string {
	text, mark := annotations[workload.AnnotationRollout], labels[workload.LabelRollout]
	if text == "" || mark == "" {
		return ""
	}
	saved, err := ParseSaved(text)
	if err != nil || mark == workload.LabelClaimedValue { // written by an earlier version of Slipway
		return text
	}
	if mark != saved.Mark() && mark != markOf(annotations[workload.AnnotationClaimedBy]) {
		return ""
	}
	return text
}

// Mark is the value of operation.LabelRollout that belongs to it: a digest of the claim under which it was saved.
func (s Saved) Mark() string { return markOf(s.Claim) }

func markOf(claim string) string { return digest.Of(claim)[:16] }

// String is the annotation's value.
func (s Saved) String() string { return toJSON(s) }

// String is the annotation's value.
func (r SettledState) String() string { return toJSON(r) }

func toJSON(v any) string { return string(jsonpatch.Encode(v)) }

// RecoverText returns the value of AnnotationRecover: plain kubectl commands that restore the workload and its traffic
// from any state of the rollout, in the safe order of finalising, first to the stable version, then to the new one.
func RecoverText(saved Saved, w catalog.Workload) string {
	r := recovery{saved: saved, w: w, kind: w.WorkloadRef.Lookup(), name: w.WorkloadRef.Name}
	r.resource = r.kind.Resource.GroupResource().String() // two API groups have a StatefulSet
	lines := slices.Concat(
		[]string{"# Only when Slipway cannot do it. Choose one part and run it from its top. A patch that fails " +
			"because it is empty had nothing to give back."},
		[]string{"# to the stable version"}, r.commands(SideStable), []string{"# to the new version"},
		r.commands(SideNew))
	return strings.Join(lines, "\n") + "\n"
}

// recovery writes the commands for one workload.
type recovery struct {
	saved          Saved
	w              catalog.Workload
	kind           workload.Kind
	name, resource string
}

// commands returns the commands to one side, in the order of finalising: traffic leaves the pods that will be deleted
// first. Before the first command, the objects are marked as under repair, so that neither the API server's guard nor a
// restarted engine interferes.
func (r recovery) commands(to Side) []string {
	services, canaryServices := r.services()
	take, leave, end := r.repair("=recover"), r.repair("-"), r.end()
	switch {
	case to == SideStable:
		return slices.Concat(take, r.routes(), r.pods(to), services, canaryServices, end, leave)
	case r.saved.Style == strategy.StyleCanary:
		return slices.Concat(take, services, r.pods(to), r.routes(), canaryServices, end, leave)
	}
	return slices.Concat(take, services, r.routes(), canaryServices, r.pods(to), end, leave)
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
		if t.HTTPRoute != "" {
			annotate(resourceHTTPRoutes, t.HTTPRoute)
		}
		for _, c := range t.Custom {
			annotate(customResource(c), c.Name)
		}
	}
	for _, name := range r.saved.Autoscalers {
		annotate(resourceAutoscalers, name)
	}
	annotate(r.resource, r.name)
	return out
}

// kubectl's unambiguous names of these kinds.
const (
	resourceHTTPRoutes  = "httproutes.gateway.networking.k8s.io"
	resourceAutoscalers = "horizontalpodautoscalers.v2.autoscaling"
)

func customResource(ref strategy.ObjectRef) string {
	group, version, _ := strings.Cut(ref.APIVersion, "/")
	return ref.Kind + "." + version + "." + group
}

func (r recovery) kubectl(format string, args ...any) string {
	return "kubectl -n " + r.w.Namespace + " " + fmt.Sprintf(format, args...)
}

// restore undoes what was done to an object, with the patch in its annotation.
func (r recovery) restore(resource, name string) string {
	path := strings.ReplaceAll(AnnotationRestore, ".", `\.`)
	return r.kubectl(`patch %s %s --type=json -p "$(%s)"`, resource, name,
		r.kubectl(`get %s %s -o jsonpath='{.metadata.annotations.%s}'`, resource, name, path))
}

func (r recovery) services() (stable, canary []string) {
	if r.saved.DisableGenerateCanaryService {
		return nil, nil
	}
	for _, t := range r.saved.Routings {
		stable = append(stable, r.restore("services", t.Service))
		canary = append(canary, r.kubectl("delete services %s --ignore-not-found", t.CanaryService()))
	}
	return stable, canary
}

func (r recovery) routes() []string {
	var out []string
	for _, t := range r.saved.Routings {
		switch {
		case t.Ingress != nil:
			out = append(out, r.kubectl("delete ingresses.networking.k8s.io %s --ignore-not-found",
				t.Ingress.Name+strategy.CanarySuffix))
		case t.HTTPRoute != "":
			out = append(out, r.restore(resourceHTTPRoutes, t.HTTPRoute))
		}
		for _, c := range t.Custom {
			out = append(out, r.restore(customResource(c), c.Name))
		}
	}
	return out
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
	raw, err := json.Marshal(ops)
	if err != nil {
		return err.Error() // values are JSON already: this is unexpected
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace(string(raw)) + `"`
}
