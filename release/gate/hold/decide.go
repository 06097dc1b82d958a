package hold

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workloadops"
)

// Edit is the creation or the edit of a workload by somebody else than the engine, as an admission webhook is told of it.
type Edit struct {
	// Old is the object before the edit, nil if it is created; New after it.
	Old, New map[string]any
	User     string
	// Rollouts are those of the object's namespace.
	Rollouts []v1beta1.Rollout
}

// Decide is what becomes of an edit: what the policies of the gate do by their expressions, for clusters that have none.
func (k Kind) Decide(e Edit) []jsonpatch.Op {
	old, edited := &unstructured.Unstructured{Object: e.Old}, &unstructured.Unstructured{Object: e.New}
	if has(edited.GetAnnotations(), rollout.AnnotationRepair) || has(old.GetAnnotations(), rollout.AnnotationRepair) {
		return nil
	}
	d := &decision{kind: k, edit: e, old: old, is: edited, want: edited.DeepCopy()}
	held := has(d.is.GetLabels(), gate.Label) || has(d.old.GetLabels(), gate.Label)
	if named := k.naming(e.Rollouts, edited.GetName()); named != "" && d.label(named) {
		held = true
	}
	if held && e.Old != nil {
		d.gate()
	}
	return d.patch()
}

func has(entries map[string]string, name string) bool {
	_, there := entries[name]
	return there
}

// naming is the name of the first Rollout that is in force and names the workload.
func (k Kind) naming(rollouts []v1beta1.Rollout, name string) string {
	for _, r := range rollouts {
		ref := r.Spec.WorkloadRef
		names := ref.Name == name && ref.Kind == k.Kind && strings.HasPrefix(ref.APIVersion, k.Group+"/")
		if names && !r.Spec.Disabled && r.DeletionTimestamp == nil {
			return r.Name
		}
	}
	return ""
}

// decision is one edit on its way.
type decision struct {
	kind          Kind
	edit          Edit
	old, is, want *unstructured.Unstructured
	// marks are the annotations of Slipway that the decision touches.
	marks []string
}

// label labels a workload that has no Rollout's label yet.
func (d *decision) label(named string) bool {
	value, there := d.is.GetLabels()[gate.Label]
	if has(d.old.GetLabels(), gate.Label) || there && value != gate.LabelValue(named) {
		return false
	}
	put(d.want, "labels", gate.Label, gate.LabelValue(named), true)
	d.mark(gate.AnnotationWhy, gate.Why(named, d.kind.Kind), true)
	return true
}

// put sets a label or annotation, or takes it away.
func put(o *unstructured.Unstructured, part, name, value string, there bool) {
	pointer := "/metadata/" + part + "/" + jsonpatch.Escape(name)
	if there {
		jsonpatch.Put(o.Object, pointer, value)
		return
	}
	jsonpatch.Drop(o.Object, pointer)
}

func (d *decision) mark(name, value string, there bool) {
	put(d.want, "annotations", name, value, there)
	d.marks = append(d.marks, name)
}

// gate holds the workload if its template changes, or has changed, and keeps what Slipway has written on it.
func (d *decision) gate() {
	changed := templateChanged(d.edit.Old, d.edit.New)
	before, heldBefore := d.old.GetAnnotations()[gate.AnnotationHeld]
	asked, set := jsonpatch.At(d.edit.New, d.kind.Pointer)
	said := d.kind.Said(asked, set)
	holds := d.kind.rollsNow(d.edit.New) && changed || !d.claimed() && heldBefore && d.kind.typeRolls(d.edit.New)
	if changed {
		d.restoreAll()
	}
	switch here, there := d.is.GetAnnotations()[gate.AnnotationHeld]; {
	case d.claimed() || !holds:
		d.mark(gate.AnnotationHeld, before, heldBefore)
	case set && reflect.DeepEqual(jsonpatch.Normalise(asked), d.kind.Value) && d.written(here, heldBefore):
		d.mark(gate.AnnotationHeld, here, there)
	case set && reflect.DeepEqual(jsonpatch.Normalise(asked), d.kind.Value) && heldBefore:
		d.mark(gate.AnnotationHeld, before, true)
	default:
		d.mark(gate.AnnotationHeld, said, true)
	}
	if holds {
		jsonpatch.Put(d.want.Object, d.kind.Pointer, d.kind.Value)
	}
	by, noted := d.old.GetAnnotations()[gate.AnnotationBy]
	if changed {
		by, noted = d.edit.User, true
	}
	d.mark(gate.AnnotationBy, by, noted)
	if why, there := d.old.GetAnnotations()[gate.AnnotationWhy]; there {
		d.mark(gate.AnnotationWhy, why, true)
	}
	if value, there := d.old.GetLabels()[gate.Label]; there {
		put(d.want, "labels", gate.Label, value, true)
	}
}

// restoreAll puts back every annotation of Slipway's: with the template, an undo brings those of an old revision.
func (d *decision) restoreAll() {
	old := d.old.GetAnnotations()
	for name := range d.is.GetAnnotations() {
		if strings.HasPrefix(name, Ours) && !has(old, name) && name != gate.AnnotationWhy {
			d.mark(name, "", false)
		}
	}
	for name, value := range old {
		if strings.HasPrefix(name, Ours) {
			d.mark(name, value, true)
		}
	}
}

// written says that AnnotationHeld, as the edit has it, can have been written by the gate.
func (d *decision) written(here string, before bool) bool {
	return d.kind.form().MatchString(here) && (before || d.is.GetAnnotations()[gate.AnnotationBy] == d.edit.User)
}

func (d *decision) claimed() bool {
	return has(d.old.GetLabels(), workloadops.LabelClaimed) || has(d.old.GetLabels(), workloadops.LabelRollout)
}

// patch is what leads from the edit to what becomes of it.
func (d *decision) patch() []jsonpatch.Op {
	pointers := []string{jsonpatch.Label(gate.Label), d.kind.Pointer}
	for _, parent := range d.kind.parents() {
		if _, there := jsonpatch.At(d.edit.New, parent); !there {
			pointers[1] = parent
			break
		}
	}
	for _, name := range d.marks {
		pointers = append(pointers, jsonpatch.Annotation(name))
	}
	return jsonpatch.Diff(d.edit.New, d.want.Object, pointers)
}

// templateChanged says that the pods of the new template are others than those of the old one.
func templateChanged(old, edited map[string]any) bool {
	was, is := template(old), template(edited)
	return !reflect.DeepEqual(was, is)
}

// template is what of a pod template counts.
func template(object map[string]any) map[string]any {
	spec, there := jsonpatch.At(object, "/spec/template/spec")
	metadata := map[string]any{}
	for name, value := range members(object, "spec", "template", "metadata") {
		switch name {
		case "labels", "annotations", "creationTimestamp":
		default:
			metadata[name] = value
		}
	}
	labels := maps.Clone(members(object, "spec", "template", "metadata", "labels"))
	delete(labels, podTemplateHash)
	if len(labels) == 0 {
		labels = nil
	}
	return map[string]any{"spec": jsonpatch.Normalise(spec), "there": there, "metadata": jsonpatch.Normalise(metadata), "labels": labels,
		"annotations": members(object, "spec", "template", "metadata", "annotations")}
}

// members are the members at a path; nil when there are none.
func members(object map[string]any, path ...string) map[string]any {
	for _, name := range path {
		object, _ = object[name].(map[string]any)
	}
	if len(object) == 0 {
		return nil
	}
	return object
}

// rollsNow says that the workload's own controller would move pods to a changed template.
func (k Kind) rollsNow(object map[string]any) bool {
	size, there := jsonpatch.At(object, "/spec/replicas")
	return (!k.sized || !there || !reflect.DeepEqual(jsonpatch.Normalise(size), int64(0))) && k.typeRolls(object)
}

// typeRolls says that the workload's update type has the field that holds.
func (k Kind) typeRolls(object map[string]any) bool {
	updates, there := jsonpatch.At(object, pathType)
	return !k.rolling || !there || updates == workloadops.UpdateRolling
}

// Said is AnnotationHeld for a field that stood like this.
func (k Kind) Said(value any, there bool) string {
	said := "null"
	switch v := jsonpatch.Normalise(value).(type) {
	case bool:
		said = strconv.FormatBool(v)
	case int64:
		said = strconv.FormatInt(v, 10)
	case string:
		if !strings.ContainsFunc(v, func(r rune) bool { return r < ' ' }) {
			said = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(v) + `"`
		}
	}
	if !there {
		said = "null"
	}
	return `{"` + k.Pointer + `":` + said + `}`
}

// DecideStatus is what becomes of an edit of the status of a Rollout by somebody else than the engine: who sends a command is noted.
func DecideStatus(old, edited map[string]any, user string) []jsonpatch.Op {
	if _, there := edited["status"].(map[string]any); !there {
		return nil
	}
	engine := "/status/" + statusEngine
	want := jsonpatch.Apply(edited, nil)
	was, there := jsonpatch.At(old, engine)
	if !there {
		jsonpatch.Drop(want, engine)
		return jsonpatch.Diff(edited, want, []string{engine})
	}
	jsonpatch.Put(want, engine, jsonpatch.Normalise(was))
	if commanded(old, edited) {
		jsonpatch.Put(want, engine+"/"+statusBy, user)
	}
	return jsonpatch.Diff(edited, want, []string{engine})
}

func commanded(old, edited map[string]any) bool {
	return slices.ContainsFunc([]string{"canaryStatus", "blueGreenStatus"}, func(style string) bool {
		was, is := members(old, "status", style), members(edited, "status", style)
		return !reflect.DeepEqual(was["currentStepState"], is["currentStepState"]) ||
			!reflect.DeepEqual(was["nextStepIndex"], is["nextStepIndex"])
	})
}
