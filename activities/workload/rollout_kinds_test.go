package workload_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/kruise"
	"slipway.io/slipway/test/observer"
)

// releasable is a kind of workload in one form. Each has four pods, of which one may be unavailable.
type releasable struct {
	title    string
	kind     string
	resource schema.GroupVersionResource
	spec     string
	// sized is true when the kind has a desired number of pods.
	sized bool
}

func (k releasable) kruise() bool { return k.resource.Group == kruise.CloneSets.Group }

var releasables = []releasable{
	{"StatefulSet in order", "StatefulSet", appsResource("statefulsets"), `{"replicas":4,"serviceName":"w"}`, true},
	{"StatefulSet in parallel", "StatefulSet", appsResource("statefulsets"),
		`{"replicas":4,"serviceName":"w","podManagementPolicy":"Parallel"}`, true},
	{"DaemonSet", "DaemonSet", appsResource("daemonsets"), `{}`, false},
	{"CloneSet", "CloneSet", kruise.CloneSets,
		`{"replicas":4,"updateStrategy":{"maxUnavailable":1,"scatterStrategy":[{"key":"a","value":"b"}]}}`, true},
	{"Advanced StatefulSet", "StatefulSet", kruise.StatefulSets,
		`{"replicas":4,"updateStrategy":{"rollingUpdate":{"maxUnavailable":1,"podUpdatePolicy":"ReCreate"}}}`, true},
	{"Advanced DaemonSet", "DaemonSet", kruise.DaemonSets, `{}`, false},
}

func appsResource(plural string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: plural}
}

// dock is a namespace with one workload "w" of a kind, with four ready pods.
type dock struct {
	*bench
	k       releasable
	dynamic dynamic.Interface
	before  map[string]any
}

func newDock(t *testing.T, k releasable) *dock {
	t.Helper()
	b := newBench(t)
	client, err := dynamic.NewForConfig(b.config)
	require.NoError(t, err)
	if k.kruise() {
		kruise.Start(t, b.config, b.namespace)
	}
	d := &dock{bench: b, k: k, dynamic: client}
	o := &unstructured.Unstructured{}
	require.NoError(t, o.UnmarshalJSON(fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"name":"w"},"spec":%s}`,
		k.resource.GroupVersion(), k.kind, k.spec)))
	require.NoError(t, unstructured.SetNestedStringMap(o.Object, map[string]string{"app": "w"}, "spec", "selector",
		"matchLabels"))
	require.NoError(t, unstructured.SetNestedStringMap(o.Object, map[string]string{"app": "w"}, "spec", "template",
		"metadata", "labels"))
	require.NoError(t, unstructured.SetNestedMap(o.Object, map[string]any{
		"terminationGracePeriodSeconds": int64(5),
		"containers":                    []any{map[string]any{"name": "app", "image": "x:good"}}}, "spec", "template",
		"spec"))
	_, err = client.Resource(k.resource).Namespace(b.namespace).Create(t.Context(), o, metav1.CreateOptions{})
	require.NoError(t, err)
	b.reaches("w", map[string]int{"x:good": 4})
	d.quiet()
	d.before = d.specNow()
	return d
}

func (d *dock) object() *unstructured.Unstructured {
	d.t.Helper()
	o, err := d.dynamic.Resource(d.k.resource).Namespace(d.namespace).Get(d.t.Context(), "w", metav1.GetOptions{})
	require.NoError(d.t, err)
	return o
}

// specNow is the spec without the image, and without the size.
func (d *dock) specNow() map[string]any {
	d.t.Helper()
	spec, _, err := unstructured.NestedMap(d.object().Object, "spec")
	require.NoError(d.t, err)
	delete(spec, "replicas")
	containers, _, err := unstructured.NestedSlice(spec, "template", "spec", "containers")
	require.NoError(d.t, err)
	delete(containers[0].(map[string]any), "image")
	require.NoError(d.t, unstructured.SetNestedSlice(spec, containers, "template", "spec", "containers"))
	return spec
}

// edit changes the workload as another client.
func (d *dock) edit(patch string) {
	d.t.Helper()
	_, err := d.dynamic.Resource(d.k.resource).Namespace(d.namespace).Patch(d.t.Context(), "w", types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{})
	require.NoError(d.t, err)
}

func (d *dock) editImage(tag string) {
	d.t.Helper()
	_, err := d.dynamic.Resource(d.k.resource).Namespace(d.namespace).Patch(d.t.Context(), "w", types.JSONPatchType,
		fmt.Appendf(nil, `[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":%q}]`, tag),
		metav1.PatchOptions{})
	require.NoError(d.t, err)
}

// quiet waits until the workload's controller has seen the newest spec, and every pod is ready.
func (d *dock) quiet() {
	d.t.Helper()
	require.Eventually(d.t, func() bool {
		o := d.object()
		seen, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
		ready, _, _ := unstructured.NestedInt64(o.Object, "status", "readyReplicas")
		if !d.k.sized {
			ready, _, _ = unstructured.NestedInt64(o.Object, "status", "numberReady")
		}
		list := d.pods("w")
		for _, p := range list {
			if !isReady(p) || p.DeletionTimestamp != nil {
				return false
			}
		}
		return seen == o.GetGeneration() && int(ready) == len(list)
	}, patience, tick)
}

func (d *dock) release() *releasing {
	r := d.bench.release("w", strategy.StylePartition, "x:new")
	r.name, r.apiVersion = observer.Name{Kind: d.k.kind, Name: "w"}, d.k.resource.GroupVersion().String()
	return r
}

// holds checks that a split is reached, and remains after the controller has processed the workload again.
func (d *dock) holds(split map[string]int) {
	d.t.Helper()
	d.reaches("w", split)
	limit, _, _ := unstructured.NestedInt64(d.object().Object, "spec", "revisionHistoryLimit")
	d.edit(fmt.Sprintf(`{"spec":{"revisionHistoryLimit":%d}}`, limit+1))
	d.quiet()
	d.edit(fmt.Sprintf(`{"spec":{"revisionHistoryLimit":%d}}`, limit))
	d.quiet()
	require.Equal(d.t, split, d.split("w"))
}

// requireEnded checks that all pods are of one image, and that nothing of a rollout is left.
func (d *dock) requireEnded(image string, size int) {
	d.t.Helper()
	d.reaches("w", map[string]int{image: size})
	require.Equal(d.t, d.before, d.specNow(), "its own settings must be restored")
	o := d.object()
	for key := range o.GetAnnotations() {
		require.False(d.t, strings.HasPrefix(key, "slipway.io/"), "annotation %s is left", key)
	}
	require.NotContains(d.t, o.GetLabels(), workload.LabelClaimed)
}

// eachKind runs one kind in `make test`, and all six in `make test-soak`. turn selects the kind: the tests of a run
// cover every kind twice.
func eachKind(t *testing.T, turn int, test func(t *testing.T, k releasable)) {
	for i, k := range releasables {
		if i == turn%len(releasables) || strings.HasPrefix(t.Name(), "TestSoak") {
			t.Run(k.title, func(t *testing.T) { test(t, k) })
		}
	}
}

func everyTestOfKinds(t *testing.T) {
	t.Helper()
	for name, test := range map[string]func(*testing.T){
		"StepByStep": TestKindsStepByStep, "RollBackFromEachStep": TestKindsRollBackFromEachStep,
		"RecoverFromBadImage":      TestKindsRecoverFromBadImage,
		"LoseNoReadyPod":           TestKindsLoseNoReadyPod_WhenEditedWhilePaused,
		"RollBackInBatches":        TestKindsRollBackInBatches,
		"ContinueAfterProcessDied": TestKindsContinue_AfterProcessDied, "HaltDuringStep": TestKindsHalt_DuringStep,
		"RollBackFrozenSplit":        TestKindsRollBack_FrozenSplit,
		"StopToNewVersionDuringStep": TestKindsStopToNewVersion_DuringStep,
		"FollowScaling":              TestKindsFollowScaling_WhilePaused,
		"WithOwnPartition":           TestKindsWithOwnPartition,
		"WithOnDeleteAreRefused":     TestKindsWithOnDeleteAreRefused,
	} {
		t.Run(name, test)
	}
}

// TestSoakKinds runs every test of kinds with every kind.
func TestSoakKinds(t *testing.T) {
	harness.Soak(t)
	everyTestOfKinds(t)
}

var quarterSteps = []struct {
	percent string
	split   map[string]int
}{
	{"25%", map[string]int{"x:new": 1, "x:good": 3}},
	{"50%", map[string]int{"x:new": 2, "x:good": 2}},
	{"100%", map[string]int{"x:new": 4}},
}

func TestKindsStepByStep(t *testing.T) {
	eachKind(t, 0, func(t *testing.T, k releasable) {
		d := newDock(t, k)
		r := d.release()
		require.Empty(t, r.preflight().Refusals)
		begun := r.begin()
		require.Equal(t, int32(4), begun.Replicas)
		require.NotEmpty(t, begun.StableHash)
		stop := d.watchFloor("w", 3, 4)
		listed := workload.Of(k.resource.Group, k.kind)
		for i, step := range quarterSteps {
			got := r.move(i+1, step.percent)
			require.Equal(t, int32(step.split["x:new"]), got.UpdatedReady, got.Message)
			d.holds(step.split)
			for _, p := range d.pods("w") {
				want := got.CanaryHash
				if p.Spec.Containers[0].Image == "x:good" {
					want = begun.StableHash
				}
				require.Equal(t, want, p.Labels[listed.RevisionLabel], "the traffic is routed by this label")
			}
		}
		uids := podUIDs(d)
		r.finish(rollout.FinishResumeAndRelease, rollout.SideNew)
		stop()
		d.requireEnded("x:new", 4)
		require.Equal(t, uids, podUIDs(d), "finishing replaces no pod")
	})
}

func podUIDs(d *dock) map[string]string {
	out := map[string]string{}
	for _, p := range d.pods("w") {
		out[p.Name] = string(p.UID)
	}
	return out
}

func TestKindsRollBackFromEachStep(t *testing.T) {
	eachKind(t, 1, func(t *testing.T, k releasable) {
		for n := range quarterSteps {
			t.Run(quarterSteps[n].percent, func(t *testing.T) {
				d := newDock(t, k)
				r := d.release()
				r.begin()
				stop := d.watchFloor("w", 3, 4)
				for i := range n + 1 {
					r.move(i+1, quarterSteps[i].percent)
				}
				r.finish(rollout.FinishResume, rollout.SideStable)
				d.reaches("w", map[string]int{"x:good": 4})
				r.finish(rollout.FinishRelease, rollout.SideStable)
				stop()
				d.requireEnded("x:good", 4)
			})
		}
	})
}

func TestKindsRecoverFromBadImage(t *testing.T) {
	eachKind(t, 2, func(t *testing.T, k releasable) {
		d := newDock(t, k)
		r := d.release()
		r.change.Images["app"] = "x:bad"
		r.deadline = 40
		r.begin()
		stop := d.watchFloor("w", 3, 4)
		failed := r.moveFails(r.moveRequest(1, "50%"), failure.WorkloadFailed)
		require.Contains(t, failed.Message(), "manifest unknown", "the pod's own message")
		require.Equal(t, 3, d.split("w")["x:good"], "no further pod is removed while the new one fails")
		r.deadline = 60
		r.finish(rollout.FinishResumeAndRelease, rollout.SideStable)
		stop()
		d.requireEnded("x:good", 4)
	})
}

func TestKindsLoseNoReadyPod_WhenEditedWhilePaused(t *testing.T) {
	for _, edit := range []struct{ title, image string }{{"undo", "x:good"}, {"set image", "x:third"},
		{"bad image", "x:bad"}} {
		t.Run(edit.title, func(t *testing.T) {
			eachKind(t, 3, func(t *testing.T, k releasable) {
				d := newDock(t, k)
				r := d.release()
				r.begin()
				r.move(1, "50%")
				d.holds(quarterSteps[1].split)
				stop := d.watchFloor("w", 3, 4)
				d.editImage(edit.image)
				require.Eventually(t, func() bool {
					o := d.object()
					seen, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
					return seen == o.GetGeneration()
				}, patience, tick)
				look := r.moveRequest(1, "50%")
				look.Inspect = true
				_ = r.moveFails(look, failure.Drift)
				put := r.moveRequest(1, "50%")
				put.OverwriteDrift = true
				if edit.image == "x:bad" && strings.Contains(k.title, "in order") || edit.image == "x:bad" &&
					k.title == "Advanced StatefulSet" {
					// In order, the controller would wait for the bad pod: only finalising helps.
					r.finish(rollout.FinishResumeAndRelease, rollout.SideStable)
				} else {
					got := r.moved(put)
					require.GreaterOrEqual(t, got.UpdatedReady, int32(2), got.Message)
					r.finish(rollout.FinishResumeAndRelease, rollout.SideStable)
				}
				stop()
				d.requireEnded("x:good", 4)
			})
		})
	}
}

func TestKindsRollBackInBatches(t *testing.T) {
	eachKind(t, 4, func(t *testing.T, k releasable) {
		d := newDock(t, k)
		r := d.release()
		r.begin()
		r.move(1, "50%")
		r.move(2, "75%")
		d.holds(map[string]int{"x:new": 3, "x:good": 1})
		stop := d.watchFloor("w", 3, 4)
		for i, step := range []struct {
			percent string
			left    int
		}{{"34%", 1}, {"66%", 1}, {"100%", 0}} {
			req := r.moveRequest(i+1, step.percent)
			req.Back, req.From = true, 3
			r.moved(req)
			want := map[string]int{"x:good": 4 - step.left}
			if step.left > 0 {
				want["x:new"] = step.left
			}
			d.holds(want)
		}
		r.finish(rollout.FinishResumeAndRelease, rollout.SideStable)
		stop()
		d.requireEnded("x:good", 4)
	})
}
