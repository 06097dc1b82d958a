package e2e

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/guard"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/test/harness"
)

// apply applies a manifest of the workload with `kubectl apply`.
func (w *gated) apply(manifest map[string]any, args ...string) *unstructured.Unstructured {
	w.t.Helper()
	text, err := yaml.Marshal(manifest)
	require.NoError(w.t, err)
	command := exec.Command(w.Binary("kubectl"), append(
		[]string{"-n", w.Apps, "apply", "-f", "-", "--kubeconfig", w.Kubeconfig}, args...)...)
	command.Stdin = strings.NewReader(string(text))
	out, err := command.CombinedOutput()
	require.NoError(w.t, err, "%s", out)
	return w.Object(w.kind, w.name)
}

// testRepeatedApply applies the same manifest repeatedly, as GitOps tools do, client-side or server-side, with or
// without a value for the field that holds the workload. The workload is held once, and nothing else changes.
func testRepeatedApply(t *testing.T, e *harness.Engine, kind harness.Kind, args ...string) {
	w := newGated(t, e, kind)
	manifest := func(image string) map[string]any {
		o := w.SubjectObject(kind, w.name)
		delete(o.Object["metadata"].(map[string]any), "annotations")
		containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
		containers[0].(map[string]any)["image"] = image
		_ = unstructured.SetNestedSlice(o.Object, containers, "spec", "template", "spec", "containers")
		return o.Object
	}
	args = append(args, "--field-manager", "gitops")
	w.apply(manifest(harness.StableImage(w.name)), args...)
	held := w.apply(manifest(harness.NewImage(w.name)), args...)
	require.Equal(t, w.hold.Value, valueAt(held, w.hold.Pointer))
	own := held.GetAnnotations()[gate.AnnotationHeld]
	require.NotEmpty(t, own)
	for range 2 {
		again := w.apply(manifest(harness.NewImage(w.name)), args...)
		require.Equal(t, held.GetGeneration(), again.GetGeneration(), "nothing changes")
		require.Equal(t, held.GetAnnotations()[gate.AnnotationHeld], again.GetAnnotations()[gate.AnnotationHeld])
	}
	explicit := manifest(harness.NewImage(w.name))
	jsonpatch.Put(explicit, w.hold.Pointer, map[string]any{"Deployment": false, "StatefulSet": int64(0),
		"DaemonSet": "RollingUpdate"}[kind.Kind])
	// kubectl's last-applied annotation changes, which increments the generation of a Deployment
	held = w.apply(explicit, args...)
	for range 2 {
		again := w.apply(explicit, args...)
		require.Equal(t, w.hold.Value, valueAt(again, w.hold.Pointer),
			"a manifest that names the field does not open the gate")
		require.Equal(t, held.GetGeneration(), again.GetGeneration())
	}
	w.requireOldPods(harness.SubjectSize)
}

// testKubectlUndo checks that `kubectl rollout undo` is held like any other change of the template and that the
// engine's marks survive it.
func testKubectlUndo(t *testing.T, e *harness.Engine, kind harness.Kind) {
	w := newGated(t, e, kind)
	w.edit(harness.EngineUser, w.image("v2")) // the engine's own change moves pods
	require.Eventually(t, func() bool {
		pods, err := w.Kube.CoreV1().Pods(w.Apps).List(context.Background(),
			metav1.ListOptions{LabelSelector: "app=" + w.name})
		require.NoError(t, err)
		for _, p := range pods.Items {
			if p.Spec.Containers[0].Image == harness.StableImage(w.name) || p.DeletionTimestamp != nil {
				return false
			}
		}
		return len(pods.Items) == harness.SubjectSize
	}, harness.Patience, harness.Tick, "the engine's change passes")
	w.WaitReadyPods(w.name, harness.SubjectSize)
	before := w.PodUIDs(w.name)
	w.Kubectl("-n", w.Apps, "rollout", "undo", kind.GVR.Resource, w.name)
	o := w.Object(kind, w.name)
	require.Equal(t, w.hold.Value, valueAt(o, w.hold.Pointer), "it is held")
	require.NotEmpty(t, o.GetAnnotations()[gate.AnnotationHeld])
	require.NotEmpty(t, o.GetAnnotations()[gate.AnnotationBy])
	require.Equal(t, "Rollout web holds this workload", o.GetAnnotations()[gate.AnnotationWhy])
	require.Eventually(t, func() bool {
		o := w.Object(kind, w.name)
		return valueAt(o, "/status/observedGeneration") == o.GetGeneration()
	}, harness.Patience, harness.Tick)
	require.Equal(t, before, w.PodUIDs(w.name), "no pod is replaced")
}

// testGuardWithoutGate checks that a guard installed without the gate makes the same decision about a claimed workload.
func testGuardWithoutGate(t *testing.T, e *harness.Engine) {
	code, out := runGuardCommand(t, e.Stack, e.Kubeconfig, "install", "--no-gate", "--name", e.Apps,
		"--namespace-selector", guard.LabelGuard+"="+e.Apps, "--engine-identity", harness.EngineUser)
	require.Zero(t, code, out)
	require.Contains(t, out, "The gate is not installed")
	t.Cleanup(func() { runGuardCommand(t, e.Stack, e.Kubeconfig, "remove", "--name", e.Apps) })
	harness.LabelNamespace(t, e.Kube, e.Apps, guard.LabelGuard, e.Apps)
	for _, kind := range []harness.Kind{harness.Deployment, harness.StatefulSet} {
		w := describeGated(t, e, kind)
		w.Subject(kind, w.name, nil)
		w.edit(harness.EngineUser, jsonpatch.Add("/metadata/labels",
			map[string]any{gate.Label: "web", "slipway.io/claimed": "true"}),
			jsonpatch.Add("/metadata/annotations", map[string]any{"slipway.io/claimed-by": guardHolder,
				"slipway.io/rollout": `{"name":"web","settings":{"/spec/paused":null,"/spec/updateStrategy":null}}`}))
		w.waitInForce()
	}
}
