package e2e

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/hold"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/kruise"
)

// anna is a user name with every character that a careless policy mishandles.
const anna = `anna "o'neil" \ shop`

// gated is a workload referred to by a Rollout, in a cluster without a running engine.
type gated struct {
	*harness.Engine
	t    *testing.T
	kind harness.Kind
	hold hold.Kind
	name string
}

// heldValues has, by kind: original, the AnnotationHeld value of a workload of harness.Subject; edit, a change of the
// held field by the workload's owner; afterEdit, the AnnotationHeld value after that edit.
var heldValues = map[harness.Kind]struct {
	original  string
	edit      any
	afterEdit string
}{
	harness.Deployment: {`{"/spec/paused":null}`, nil, `{"/spec/paused":null}`},
	harness.StatefulSet: {`{"/spec/updateStrategy/rollingUpdate/partition":null}`, int64(3),
		`{"/spec/updateStrategy/rollingUpdate/partition":3}`},
	harness.DaemonSet: {`{"/spec/updateStrategy/type":"RollingUpdate"}`, "RollingUpdate",
		`{"/spec/updateStrategy/type":"RollingUpdate"}`},
	harness.CloneSet: {`{"/spec/updateStrategy/partition":0}`, "20%",
		`{"/spec/updateStrategy/partition":"20%"}`},
	harness.AdvancedStatefulSet: {`{"/spec/updateStrategy/rollingUpdate/partition":0}`, int64(2),
		`{"/spec/updateStrategy/rollingUpdate/partition":2}`},
	harness.AdvancedDaemonSet: {`{"/spec/updateStrategy/rollingUpdate/partition":0}`, int64(1),
		`{"/spec/updateStrategy/rollingUpdate/partition":1}`},
}

// Without a running engine, a template change of a workload that a Rollout refers to replaces no pod, whatever else is
// edited.
func TestGate_HoldsTemplateChange_WithoutEngine(t *testing.T) {
	t.Parallel()
	g, e := newGateEngine(t)
	testGateForAllKinds(t, g, e)
	testGateByKind(t, e, []harness.Kind{harness.Deployment})
}

// A DaemonSet is held by the name of its update strategy.
func TestLongGate_HoldsDaemonSet_WithoutEngine(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	_, e := newGateEngine(t)
	testGateByKind(t, e, []harness.Kind{harness.DaemonSet})
}

func TestSoakGate_HoldsEveryKind_WithoutEngine(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	g, e := newGateEngine(t)
	testGateForAllKinds(t, g, e)
	testGateByKind(t, e, harness.Kinds)
}

// newGateEngine returns a namespace that a guard covers, without a running engine.
func newGateEngine(t *testing.T) (*harness.Guard, *harness.Engine) {
	t.Helper()
	kruise.Install(t, harness.SharedStack(t).REST)
	g := harness.SharedGuard(t)
	e := harness.NewWithoutProcesses(t)
	g.EnforceOn(t, e.Apps)
	kruise.Start(t, e.REST, e.Apps)
	return g, e
}

// testGateForAllKinds runs the cases that do not depend on the kind.
func testGateForAllKinds(t *testing.T, g *harness.Guard, e *harness.Engine) {
	t.Helper()
	t.Run("Passes", func(t *testing.T) {
		t.Parallel()
		testPasses(t, newGated(t, e, harness.Deployment))
	})
	for name, test := range map[string]func(*testing.T, *harness.Guard){"Status": testRolloutStatusEdits,
		"Approvers": testApproverRole, "Random": testPoliciesMatchGo} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, g)
		})
	}
	t.Run("GuardAlone", func(t *testing.T) {
		t.Parallel()
		testGuardWithoutGate(t, harness.NewWithoutProcesses(t))
	})
}

func testGateByKind(t *testing.T, e *harness.Engine, kinds []harness.Kind) {
	t.Helper()
	for _, kind := range kinds {
		if kind.Custom() { // the stack simulates `rollout undo` only for native kinds
			continue
		}
		t.Run("Applied/"+kind.Title, func(t *testing.T) {
			t.Parallel()
			testRepeatedApply(t, e, kind)
		})
		t.Run("AppliedByTheServer/"+kind.Title, func(t *testing.T) {
			t.Parallel()
			testRepeatedApply(t, e, kind, "--server-side", "--force-conflicts")
		})
		t.Run("Undone/"+kind.Title, func(t *testing.T) {
			t.Parallel()
			testKubectlUndo(t, e, kind)
		})
	}
	t.Run("Claimed", func(t *testing.T) {
		for _, kind := range kinds {
			t.Run(kind.Title, func(t *testing.T) {
				t.Parallel()
				newGated(t, e, kind).testHoldWhileClaimed()
			})
		}
	})
	t.Run("ByRollout", func(t *testing.T) {
		for _, kind := range kinds {
			t.Run(kind.Title, func(t *testing.T) {
				t.Parallel()
				testHoldByRollout(t, e, kind, true)
			})
		}
	})
	t.Run("Holds", func(t *testing.T) {
		for _, kind := range kinds {
			t.Run(kind.Title, func(t *testing.T) {
				t.Parallel()
				newGated(t, e, kind).testHold()
			})
		}
	})
}

// newGated creates a workload and returns when the API server holds its template changes.
func newGated(t *testing.T, e *harness.Engine, kind harness.Kind) *gated {
	t.Helper()
	w := describeGated(t, e, kind)
	w.Subject(kind, w.name, nil)
	w.PatchObject(kind, w.name,
		`{"metadata":{"labels":{"slipway.io/gate":"web"},"annotations":{"slipway.io/gate":"Rollout web holds this workload"}}}`)
	w.waitInForce()
	return w
}

// ungated describes a workload that does not exist yet.
func describeGated(t *testing.T, e *harness.Engine, kind harness.Kind) *gated {
	t.Helper()
	return &gated{Engine: e.WithT(t), t: t, kind: kind, hold: hold.Kind(kind.Ref("").Lookup()),
		name: harness.RandomName("web")}
}

// waitInForce waits until the API server would hold a change of the template.
func (w *gated) waitInForce() {
	w.t.Helper()
	var o *unstructured.Unstructured
	var err error
	if !assert.Eventually(w.t, func() bool {
		o, err = w.try(anna, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, w.image("v2"))
		return err == nil && valueAt(o, w.hold.Pointer) == w.hold.Value
	}, harness.Patience, harness.Tick, "the API server does not hold the workload") {
		w.t.Fatalf("the last edit: %v, error %v", o, err)
	}
}

func (w *gated) image(version string) jsonpatch.Op {
	return jsonpatch.Op{Op: "replace", Path: "/spec/template/spec/containers/0/image",
		Value: "registry.test/" + w.name + ":" + version}
}

func (w *gated) try(user string, o metav1.PatchOptions, ops ...jsonpatch.Op) (*unstructured.Unstructured, error) {
	w.t.Helper()
	client, err := dynamic.NewForConfig(w.Impersonate(user))
	require.NoError(w.t, err)
	body, err := json.Marshal(ops)
	require.NoError(w.t, err)
	return client.Resource(w.kind.GVR).Namespace(w.Apps).Patch(context.Background(), w.name, types.JSONPatchType, body,
		o)
}

func (w *gated) edit(user string, ops ...jsonpatch.Op) *unstructured.Unstructured {
	w.t.Helper()
	after, err := w.try(user, metav1.PatchOptions{}, ops...)
	require.NoError(w.t, err)
	return after
}

// requireHeld requires that the workload is held and that its annotations name the original value and the user who
// changed the template.
func (w *gated) requireHeld(o *unstructured.Unstructured, said, by, why string) {
	w.t.Helper()
	require.Equal(w.t, w.hold.Value, valueAt(o, w.hold.Pointer), why)
	require.Equal(w.t, said, o.GetAnnotations()[gate.AnnotationHeld], why)
	require.Equal(w.t, by, o.GetAnnotations()[gate.AnnotationBy], why)
	require.Equal(w.t, "web", o.GetLabels()[gate.Label], why)
	require.Equal(w.t, "Rollout web holds this workload", o.GetAnnotations()[gate.AnnotationWhy], why)
	held, err := gate.ParseHeld(o.GetAnnotations())
	require.NoError(w.t, err)
	require.Len(w.t, held, 1)
}

// requireOldPods waits until the workload's own controller has observed the last edit and has want ready pods, and
// requires that all have the old template.
func (w *gated) requireOldPods(want int) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		o := w.Object(w.kind, w.name)
		return valueAt(o, "/status/observedGeneration") == o.GetGeneration()
	}, harness.Patience, harness.Tick, "its controller does not observe the edit")
	w.WaitReadyPods(w.name, want)
	pods, err := w.Kube.CoreV1().Pods(w.Apps).List(context.Background(),
		metav1.ListOptions{LabelSelector: "app=" + w.name})
	require.NoError(w.t, err)
	for _, p := range pods.Items {
		require.Equal(w.t, harness.StableImage(w.name), p.Spec.Containers[0].Image, p.Name)
	}
}

func (w *gated) testHold() {
	before, own := w.PodUIDs(w.name), heldValues[w.kind]
	o := w.edit(anna, w.image("v2"))
	w.requireHeld(o, own.original, anna, "a change of template is held")
	w.requireOldPods(harness.SubjectSize)
	require.Equal(w.t, before, w.PodUIDs(w.name), "no pod is replaced")

	w.requireHeld(w.edit("bob", w.image("v3")), own.original, "bob", "a second change keeps the original of the first")
	o = w.edit(anna, jsonpatch.Add("/metadata/labels", map[string]any{"team": "pay"}))
	w.requireHeld(o, own.original, "bob", "an edit of labels passes, but removes no mark of the engine")
	require.Equal(w.t, "pay", o.GetLabels()["team"])
	o = w.edit(anna, jsonpatch.Add("/metadata/annotations", map[string]any{"note": "mine"}))
	w.requireHeld(o, own.original, "bob", "so does an edit that replaces all annotations")
	require.Equal(w.t, "mine", o.GetAnnotations()["note"])
	o = w.edit(anna, jsonpatch.Remove("/metadata/annotations"), w.image("v4"))
	w.requireHeld(o, own.original, anna, "also together with the template, as an undo does")
	require.NotContains(w.t, o.GetAnnotations(), "note")
	o = w.edit(anna, jsonpatch.Add(jsonpatch.Annotation(gate.AnnotationHeld), "{}"),
		jsonpatch.Add(jsonpatch.Annotation(gate.AnnotationBy), "carol"))
	w.requireHeld(o, own.original, anna, "only the engine edits the marks")

	ask := jsonpatch.Add(w.hold.Pointer, own.edit)
	if own.edit == nil {
		ask = jsonpatch.Remove(w.hold.Pointer)
	}
	o = w.edit(anna, ask)
	w.requireHeld(o, own.afterEdit, anna, "an edit of the field does not open the gate, and is saved for later")
	again := w.edit(anna, ask)
	require.Equal(w.t, o.GetGeneration(), again.GetGeneration(), "the same edit again changes nothing")
	require.Equal(w.t, o.GetAnnotations(), again.GetAnnotations())

	size := harness.SubjectSize
	if w.kind.Kind != "DaemonSet" {
		size++
		w.requireHeld(w.edit(anna, jsonpatch.Op{Op: "replace", Path: "/spec/replicas", Value: size}), own.afterEdit,
			anna, "its size can be changed")
	}
	w.requireOldPods(size)
	o = w.edit(harness.EngineUser, jsonpatch.Remove(jsonpatch.Annotation(gate.AnnotationHeld)),
		jsonpatch.Remove(jsonpatch.Annotation(gate.AnnotationBy)),
		jsonpatch.Add(jsonpatch.Label("slipway.io/claimed"), "true"),
		jsonpatch.Op{Op: "replace", Path: w.hold.Pointer, Value: w.openValue()})
	require.Equal(w.t, w.openValue(), valueAt(o, w.hold.Pointer), "the engine opens the gate")
	require.NotContains(w.t, o.GetAnnotations(), gate.AnnotationHeld)
}

// openValue returns a value of the field that does not hold the workload.
func (w *gated) openValue() any {
	switch w.hold.Value.(type) {
	case bool:
		return nil
	case string:
		return map[string]any{"CloneSet": "40%", "DaemonSet": "RollingUpdate"}[w.kind.Kind]
	}
	return int64(2)
}

// testPasses checks that edits other than a template change of a running workload pass unchanged.
func testPasses(t *testing.T, w *gated) {
	t.Helper()
	o := w.edit(anna, jsonpatch.Add("/spec/minReadySeconds", 3), jsonpatch.Add("/spec/paused", true))
	require.NotContains(t, o.GetAnnotations(), gate.AnnotationHeld, "a pause by the owner is no hold")
	require.NotContains(t, o.GetAnnotations(), gate.AnnotationBy)
	w.requireHeld(w.edit(anna, w.image("v2")), `{"/spec/paused":true}`, anna, "and is saved when the template changes")
	o = w.edit(anna, jsonpatch.Add("/spec/paused", false))
	w.requireHeld(o, `{"/spec/paused":null}`, anna, "the owner's resume is saved, though the workload stays held")
	o = w.edit(anna, jsonpatch.Add(jsonpatch.Annotation("slipway.io/repair"), "anna"), jsonpatch.Remove("/spec/paused"))
	require.Nil(t, valueAt(o, "/spec/paused"), "a user who repairs the workload may edit anything")

	w.name = harness.RandomName("new")
	labelled := func(o map[string]any) {
		_ = unstructured.SetNestedStringMap(o, map[string]string{gate.Label: "web"}, "metadata", "labels")
		_ = unstructured.SetNestedField(o, int64(0), "spec", "replicas")
	}
	w.Subject(w.kind, w.name, labelled)
	o = w.Object(w.kind, w.name)
	require.Nil(t, valueAt(o, "/spec/paused"), "a new workload is not held")
	o = w.edit(anna, w.image("v2"))
	require.Nil(t, valueAt(o, "/spec/paused"), "nor one without pods")
	require.Equal(t, anna, o.GetAnnotations()[gate.AnnotationBy])
	o = w.edit(anna, w.image("v3"), jsonpatch.Add("/spec/replicas", 1))
	require.Equal(t, true, valueAt(o, "/spec/paused"), "but one that gets pods in the same edit")
}

// testHoldWhileClaimed checks that a release's own settings apply to its own template only, and that its marks survive
// an edit that replaces them with the template.
func (w *gated) testHoldWhileClaimed() {
	pointer := pods.BorrowedFields(w.kind.Ref(w.name).Lookup())
	settings := map[string]any{}
	for _, p := range pointer {
		settings[p] = nil
	}
	body, err := json.Marshal(map[string]any{"name": "web", "settings": settings})
	require.NoError(w.t, err)
	marks := map[string]any{"slipway.io/claimed-by": guardHolder, "slipway.io/rollout": string(body),
		gate.AnnotationWhy: "Rollout web holds this workload"}
	open := jsonpatch.Op{Op: "replace", Path: w.hold.Pointer, Value: w.openValue()}
	if w.openValue() == nil {
		open = jsonpatch.Add(w.hold.Pointer, false)
	} else if w.kind == harness.StatefulSet {
		open = jsonpatch.Add("/spec/updateStrategy/rollingUpdate", map[string]any{"partition": w.openValue()})
	}
	before := w.edit(harness.EngineUser, jsonpatch.Add(jsonpatch.Label("slipway.io/claimed"), "true"),
		jsonpatch.Add("/metadata/annotations", marks), open)
	require.Equal(w.t, w.openValue(), valueAt(before, w.hold.Pointer))

	o := w.edit(anna, jsonpatch.Add(w.hold.Pointer, w.hold.Value))
	require.Equal(w.t, w.openValue(), valueAt(o, w.hold.Pointer), "an edit of the field alone is reverted")
	o = w.edit(anna, w.image("v2"), jsonpatch.Add("/metadata/annotations",
		map[string]any{"slipway.io/claimed-by": "stale", "slipway.io/recover": "stale"}), open)
	require.Equal(w.t, w.hold.Value, valueAt(o, w.hold.Pointer), "another template is held at once")
	for name, value := range marks {
		require.Equal(w.t, value, o.GetAnnotations()[name],
			"an undo replaces all annotations; the engine's are restored")
	}
	require.NotContains(w.t, o.GetAnnotations(), "slipway.io/recover",
		"and the engine's old annotations that it adds are dropped")
	require.Equal(w.t, anna, o.GetAnnotations()[gate.AnnotationBy])
	require.NotContains(w.t, o.GetAnnotations(), gate.AnnotationHeld, "the originals are saved already")
	_, err = w.try(anna, metav1.PatchOptions{}, jsonpatch.Add(jsonpatch.Annotation("slipway.io/claimed-by"), "anna"))
	require.True(w.t, apierrors.IsForbidden(err), "a lone edit of the marks is refused: %v", err)
}

// testHoldByRollout checks that a Rollout holds the workload that it refers to before the engine has labelled it.
func testHoldByRollout(t *testing.T, e *harness.Engine, kind harness.Kind, byPolicy bool) {
	w := describeGated(t, e, kind)
	w.Subject(kind, w.name, nil)
	name, label := w.name, w.name
	// longer than a label value: the policy uses a prefix until the engine writes the full mark
	if kind == harness.Deployment {
		name += strings.Repeat("-long", 20)
		label = name[:62] + "x"
	}
	w.createRollout(name)
	w.waitInForce()
	o := w.edit(anna, w.image("v2"))
	require.Equal(t, w.hold.Value, valueAt(o, w.hold.Pointer))
	require.Equal(t, heldValues[kind].original, o.GetAnnotations()[gate.AnnotationHeld])
	require.Equal(t, anna, o.GetAnnotations()[gate.AnnotationBy])
	if byPolicy {
		require.Equal(t, label, o.GetLabels()[gate.Label])
	} else {
		require.Equal(t, gate.LabelValue(name), o.GetLabels()[gate.Label])
	}
	require.Equal(t, gate.Why(name, kind.Kind), o.GetAnnotations()[gate.AnnotationWhy])
	w.requireOldPods(harness.SubjectSize)
}

// createRollout creates a Rollout that refers to the workload.
func (w *gated) createRollout(name string) {
	w.t.Helper()
	require.NoError(w.t, w.tryRollout(name))
}

func (w *gated) tryRollout(name string) error {
	w.t.Helper()
	ref := w.kind.Ref(w.name)
	_, err := w.Dynamic(w.t).Resource(v1beta1.Resource).Namespace(w.Apps).Create(context.Background(),
		&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": v1beta1.GroupVersion.String(), "kind": v1beta1.Kind, "metadata": map[string]any{"name": name},
			"spec": map[string]any{"workloadRef": map[string]any{"apiVersion": ref.APIVersion, "kind": ref.Kind,
				"name": ref.Name},
				"strategy": map[string]any{
					"canary": map[string]any{"steps": []any{map[string]any{"replicas": "50%"}}}}}}},
		metav1.CreateOptions{})
	return err
}
