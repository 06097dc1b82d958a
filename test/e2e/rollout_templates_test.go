package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// copiedEntries are the labels and annotations that a pod template has that was copied from a pod or a ReplicaSet, or
// that was restarted: each row is released for each kind and style.
var copiedEntries = []struct {
	reason, label, annotation string
	// chosen is true for what people write too: it is a change like any other.
	chosen bool
}{
	{"a Deployment's controller adds it to its ReplicaSets", "pod-template-hash", "", false},
	{"the controllers of the other kinds add it to pods", "controller-revision-hash", "", false},
	{"a DaemonSet's controller adds it to pods", "pod-template-generation", "", false},
	{"a StatefulSet's controller adds it to pods", "statefulset.kubernetes.io/pod-name", "", false},
	{"and this one", "apps.kubernetes.io/pod-index", "", false},
	{"a Job's controller adds it to pods", "batch.kubernetes.io/job-name",
		"batch.kubernetes.io/job-completion-index", false},
	{"Kruise's controllers add them to pods", "apps.kruise.io/cloneset-instance-id",
		"apps.kruise.io/inplace-update-state", false},
	{"a release numbers pods with it", "rollouts.kruise.io/rollout-id", "", false},
	{"an extra workload has it", "slipway.io/canary-of", "", false},
	{"a mesh adds it to pods, and `istioctl kube-inject` to templates", "istio.io/rev",
		"sidecar.istio.io/status", true},
	{"a node's network adds it to pods", "", "cni.projectcalico.org/podIP", false},
	{"a restart changes it", "", "kubectl.kubernetes.io/restartedAt", true},
}

// allCopied adds every row's entries to a workload's pod template.
func allCopied(object map[string]any) {
	for _, row := range copiedEntries {
		copyEntry(object, row.label, row.annotation)
	}
}

func copyEntry(object map[string]any, label, annotation string) {
	template := object["spec"].(map[string]any)["template"].(map[string]any)
	if label != "" {
		jsonpatch.Put(template, jsonpatch.Label(label), "stale")
	}
	if annotation != "" {
		jsonpatch.Put(template, jsonpatch.Annotation(annotation), "stale")
	}
}

// templateCells are every kind and style.
func templateCells() (cells []cell) {
	for _, p := range matrix() {
		if p.provider == harness.NoProvider {
			cells = append(cells, p.cell)
		}
	}
	return cells
}

// A release of a workload whose pod template has what controllers set on pods ends as without it: to the new version,
// and rolled back. The check before it names what was copied.
func TestRelease_EndsAsUsual_WithTemplateCopiedFromPod(t *testing.T) {
	t.Parallel()
	testAllCopied(t, []cell{deploymentCell(strategy.StyleCanary, harness.Nginx),
		deploymentCell(strategy.StylePartition, harness.NoProvider),
		{harness.DaemonSet, strategy.StylePartition, harness.NoProvider}})
}

// The same for every kind and style.
func TestLongRelease_EndsAsUsual_WithTemplateCopiedFromPod(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	testAllCopied(t, templateCells())
}

func testAllCopied(t *testing.T, cells []cell) {
	e := harness.Shared(t)
	for _, c := range cells {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			releaseCopied(t, e, c, true, allCopied)
		})
	}
}

// The same with each row alone.
func TestSoakRelease_EndsAsUsual_WithEachCopiedEntry(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	e := harness.Shared(t)
	t.Run("cells", func(t *testing.T) {
		for _, c := range templateCells() {
			t.Run(c.String(), func(t *testing.T) {
				t.Parallel()
				for _, row := range copiedEntries {
					t.Run(strings.ReplaceAll(row.label+row.annotation, "/", "_"), func(t *testing.T) {
						releaseCopied(t, e, c, !row.chosen, func(object map[string]any) {
							copyEntry(object, row.label, row.annotation)
						})
					})
				}
			})
		}
	})
}

func releaseCopied(t *testing.T, e *harness.Engine, c cell, warns bool, change func(object map[string]any)) {
	t.Helper()
	r := prepare(t, e, c, func(object map[string]any, _ *harness.Rollout) { change(object) })
	before := templateMetadataOf(t, r.object())
	valid := r.validate()
	require.Empty(t, valid.Errors)
	require.Equal(t, warns, strings.Contains(strings.Join(valid.Warnings, "\n"), "its pod template has "),
		"%v", valid.Warnings)
	r.StartRollout(r.rollout)
	r.approveAll(1)
	r.requirePromoted()
	require.JSONEq(t, string(before), string(templateMetadataOf(t, r.object())),
		"the workload's own template stays its owner's")
}

// validate asks the engine to check the rollout.
func (r *release) validate() (found struct {
	Errors   []any
	Warnings []string
}) {
	r.t.Helper()
	raw, err := json.Marshal(r.rollout.Body(r.Apps))
	require.NoError(r.t, err)
	answer := r.Call(http.MethodPost, "/api/v1/rollouts/validate", string(raw))
	require.Equal(r.t, http.StatusOK, answer.Status, "%s", answer.Body)
	require.NoError(r.t, json.Unmarshal(answer.Body, &found))
	return found
}

func templateMetadataOf(t *testing.T, o *unstructured.Unstructured) []byte {
	t.Helper()
	metadata, _, err := unstructured.NestedMap(o.Object, "spec", "template", "metadata")
	require.NoError(t, err)
	raw, err := json.Marshal(metadata)
	require.NoError(t, err)
	return raw
}

// The extra workload has none of what controllers set on pods, and what people chose.
func TestExtraWorkload_HasNoCopiedEntries(t *testing.T) {
	t.Parallel()
	r := startRelease(t, harness.Shared(t), deploymentCell(strategy.StyleCanary, harness.NoProvider),
		func(object map[string]any, _ *harness.Rollout) { allCopied(object) })
	r.waitPaused(1)
	extra, err := r.Dynamic(t).Resource(harness.Deployment.GVR).Namespace(r.Apps).Get(context.Background(),
		r.rollout.Name+strategy.CanarySuffix, metav1.GetOptions{})
	require.NoError(t, err)
	var has struct{ Labels, Annotations map[string]string }
	require.NoError(t, json.Unmarshal(templateMetadataOf(t, extra), &has))
	require.Equal(t, map[string]string{"app": r.rollout.Name, "istio.io/rev": "stale",
		"slipway.io/canary-of": strategy.CanaryOf(r.rollout.Name)}, has.Labels)
	require.Equal(t, map[string]string{"sidecar.istio.io/status": "stale",
		"kubectl.kubernetes.io/restartedAt": "stale"}, has.Annotations)
	r.sendVerb("rollback", `{"actor":"ann"}`)
	r.requireRolledBack()
}

// A Rollout object's release ends as usual too, when the change of the template brings the label. A label that makes no
// new pods is not held and starts no release; on a StatefulSet it makes new ones, and is.
func TestKubectlRelease_EndsAsUsual_WithTemplateCopiedFromReplicaSet(t *testing.T) {
	t.Parallel()
	e, g := harness.StartGuarded(t)
	for _, c := range []cell{deploymentCell(strategy.StyleCanary, harness.NoProvider),
		deploymentCell(strategy.StylePartition, harness.NoProvider),
		{harness.StatefulSet, strategy.StylePartition, harness.NoProvider}} {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			d := declare(t, e, g, c, nil)
			const label = `{"spec":{"template":{"metadata":{"labels":{"pod-template-hash":"stale"}}}}}`
			if c.kind == harness.Deployment {
				d.PatchObject(c.kind, d.rollout.Name, label)
				require.NotContains(t, d.object().GetAnnotations(), "slipway.io/gated", "it makes no new pods")
				d.setImage("alice", harness.NewImage(d.rollout.Name))
			} else {
				d.PatchObject(c.kind, d.rollout.Name, label)
				require.Contains(t, d.object().GetAnnotations(), "slipway.io/gated", "it makes new pods")
			}
			d.approve(1)
			d.approve(2)
			d.waitEnd(true)
			require.Empty(t, d.claim())
			require.Equal(t, rollout.PhaseHealthy, d.Rollout(d.rollout.Name).Phase)
		})
	}
}
