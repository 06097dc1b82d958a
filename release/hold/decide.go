package hold

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workload"
)

// Edit is the creation or edit of a workload by a client other than the engine, as an admission webhook receives it.
type Edit struct {
	// Old is the object before the edit, nil if it is created; New is the object after it.
	Old, New map[string]any
	User     string
	// Rollouts are those of the object's namespace.
	Rollouts []v1beta1.Rollout
}

// Decide returns the patch that the gate applies to an edit. It equals what the gate's policies do by their
// expressions, for clusters without mutating policies.
func (k Kind) Decide(e Edit) []jsonpatch.Op {
	old, edited := &unstructured.Unstructured{Object: e.Old}, &unstructured.Unstructured{Object: e.New}
	d := &decision{kind: k, edit: e, old: old, is: edited, want: edited.DeepCopy()}
	d.nameChanger()
	if has(edited.GetAnnotations(), rollout.AnnotationRepair) || has(old.GetAnnotations(), rollout.AnnotationRepair) {
		return d.patch()
	}
	held := has(d.is.GetLabels(), gate.Label) || has(d.old.GetLabels(), gate.Label)
	if named := k.rolloutFor(e.Rollouts, edited.GetName()); named != "" && d.label(named) {
		held = true
	}
	if held && e.Old != nil {
		d.gate()
	}
	return d.patch()
}

// nameChanger replaces a name of another user that the client writes as gate.AnnotationBy by its own.
func (d *decision) nameChanger() {
	by, written := d.is.GetAnnotations()[gate.AnnotationBy]
	before, there := d.old.GetAnnotations()[gate.AnnotationBy]
	if written && by != d.edit.User && (!there || by != before) {
		d.mark(gate.AnnotationBy, d.edit.User, true)
	}
}

func has(entries map[string]string, name string) bool {
	_, there := entries[name]
	return there
}

// rolloutFor returns the name of the first Rollout that names the workload and is neither disabled nor being deleted;
// "" for none.
func (k Kind) rolloutFor(rollouts []v1beta1.Rollout, name string) string {
	for _, r := range rollouts {
		ref := r.Spec.WorkloadRef
		names := ref.Name == name && ref.Kind == k.Kind && strings.HasPrefix(ref.APIVersion, k.Resource.Group+"/")
		if names && !r.Spec.Disabled && r.DeletionTimestamp == nil {
			return r.Name
		}
	}
	return ""
}

// decision is the state while one edit is decided: is is the object as edited, want the object after the gate.
type decision struct {
	kind          Kind
	edit          Edit
	old, is, want *unstructured.Unstructured
	// marks are the names of the Slipway annotations that the decision sets or removes.
	marks []string
}

// label sets the Rollout's label on a workload that has none yet, and reports whether it did.
func (d *decision) label(named string) bool {
	value, there := d.is.GetLabels()[gate.Label]
	if has(d.old.GetLabels(), gate.Label) || there && value != gate.LabelValue(named) {
		return false
	}
	put(d.want, "labels", gate.Label, gate.LabelValue(named), true)
	d.mark(gate.AnnotationWhy, gate.Why(named, d.kind.Kind), true)
	return true
}

// put sets a label or annotation, or removes it if there is false.
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

// gate holds the workload if its template changes or its change is still held, and protects Slipway's marks from the
// edit.
func (d *decision) gate() {
	changed := !reflect.DeepEqual(d.kind.template(d.edit.Old), d.kind.template(d.edit.New))
	before, heldBefore := d.old.GetAnnotations()[gate.AnnotationHeld]
	value, set := jsonpatch.At(d.edit.New, d.kind.Pointer)
	encoded := d.kind.HeldText(value, set)
	holds := d.kind.Moves(d.edit.New) && changed || !d.claimed() && heldBefore && d.kind.typeRolls(d.edit.New)
	if changed {
		d.restoreAll()
	}
	switch here, there := d.is.GetAnnotations()[gate.AnnotationHeld]; {
	case d.claimed() || !holds:
		d.mark(gate.AnnotationHeld, before, heldBefore)
	case set && reflect.DeepEqual(jsonpatch.Normalise(value), d.kind.Value) && d.written(here, heldBefore):
		d.mark(gate.AnnotationHeld, here, there)
	case set && reflect.DeepEqual(jsonpatch.Normalise(value), d.kind.Value) && heldBefore:
		d.mark(gate.AnnotationHeld, before, true)
	default:
		d.mark(gate.AnnotationHeld, encoded, true)
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
	if label, there := d.old.GetLabels()[gate.Label]; there {
		put(d.want, "labels", gate.Label, label, true)
	}
}

// restoreAll restores all of Slipway's annotations: kubectl rollout undo sets those of an old revision together with
// the template.
func (d *decision) restoreAll() {
	old := d.old.GetAnnotations()
	for name := range d.is.GetAnnotations() {
		if strings.HasPrefix(name, Prefix) && !has(old, name) && name != gate.AnnotationWhy {
			d.mark(name, "", false)
		}
	}
	for name, value := range old {
		if strings.HasPrefix(name, Prefix) {
			d.mark(name, value, true)
		}
	}
}

// written reports whether the edit's AnnotationHeld can have been written by the gate.
func (d *decision) written(here string, before bool) bool {
	return d.kind.form().MatchString(here) && (before || d.is.GetAnnotations()[gate.AnnotationBy] == d.edit.User)
}

func (d *decision) claimed() bool {
	return has(d.old.GetLabels(), workload.LabelClaimed) || has(d.old.GetLabels(), workload.LabelRollout)
}

// patch returns the operations from the edit to the decided object.
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

// template returns the parts of a pod template that affect pods.
func (k Kind) template(object map[string]any) map[string]any {
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
	if k.TemplateLabel != "" {
		delete(labels, k.TemplateLabel)
	}
	if len(labels) == 0 {
		labels = nil
	}
	return map[string]any{"spec": jsonpatch.Normalise(spec), "there": there, "metadata": jsonpatch.Normalise(metadata),
		"labels": labels, "annotations": members(object, "spec", "template", "metadata", "annotations")}
}

// members returns the members at a path; nil if there are none.
func members(object map[string]any, path ...string) map[string]any {
	if found := jsonpatch.DigObject(object, path...); len(found) > 0 {
		return found
	}
	return nil
}

// Holds reports whether an object's field at path has the value by which the gate holds a changed template, so that no
// pod moves. path is a JSON Pointer to the field or to an object around it; kind is a kind of group.
func Holds(group, kind string, object map[string]any, path string) bool {
	k := workload.Of(group, kind)
	if k.Pointer != path && !strings.HasPrefix(k.Pointer, path+"/") {
		return false
	}
	value, _ := jsonpatch.At(object, k.Pointer)
	return reflect.DeepEqual(jsonpatch.Normalise(value), k.Value)
}

// Moves reports whether the workload's own controller moves pods to a changed template, unless the change is held.
func (k Kind) Moves(object map[string]any) bool {
	size, there := jsonpatch.At(object, "/spec/replicas")
	return (k.PerNode || !there || !reflect.DeepEqual(jsonpatch.Normalise(size), int64(0))) && k.typeRolls(object)
}

// typeRolls reports whether the workload's update type has the field that holds.
func (k Kind) typeRolls(object map[string]any) bool {
	updates, there := jsonpatch.At(object, "/spec/updateStrategy/type")
	return !k.Rolling() || !there || updates == workload.UpdateRolling
}

// HeldText returns AnnotationHeld for a field's value.
func (k Kind) HeldText(value any, there bool) string {
	text := "null"
	switch v := jsonpatch.Normalise(value).(type) {
	case bool:
		text = strconv.FormatBool(v)
	case int64:
		text = strconv.FormatInt(v, 10)
	case string:
		if !strings.ContainsFunc(v, func(r rune) bool { return r < ' ' }) {
			text = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(v) + `"`
		}
	}
	if !there {
		text = "null"
	}
	return `{"` + k.Pointer + `":` + text + `}`
}

// DecideStatus returns the patch for an edit of a Rollout's status by a client other than the engine: it restores the
// engine's part, and records the user if the edit sends a command.
func DecideStatus(old, edited map[string]any, user string) []jsonpatch.Op {
	if _, there := edited["status"].(map[string]any); !there {
		return nil
	}
	engine := "/status/" + statusEngine
	want := runtime.DeepCopyJSON(edited)
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
