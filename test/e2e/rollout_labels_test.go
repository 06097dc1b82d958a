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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// byVersion gives a workload's pods a label of their version.
func byVersion(object map[string]any, _ *harness.Rollout) {
	_ = unstructured.SetNestedField(object, "v1", "spec", "template", "metadata", "labels", "version")
}

// selectByVersion makes the workload's Service select by that label.
func (r *release) selectByVersion() {
	r.t.Helper()
	_, err := r.Kube.CoreV1().Services(r.Apps).Patch(context.Background(), r.rollout.Name, types.MergePatchType,
		[]byte(`{"spec":{"selector":{"version":"v1"}}}`), metav1.PatchOptions{})
	require.NoError(r.t, err)
}

// A routed Service that selects by a label which only the old pods have would send the new ones nothing: the start and
// its validation refuse it, and nothing is written.
func TestRollout_IsRefused_WhenServiceSelectsByLabelOfOldTemplate(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	toV2 := json.RawMessage(`{"metadata":{"labels":{"version":"v2"}}}`)
	for _, style := range []strategy.Style{strategy.StylePartition, strategy.StyleCanary, strategy.StyleBlueGreen} {
		t.Run(string(style), func(t *testing.T) {
			t.Parallel()
			r := prepareUnobserved(t, e, deploymentCell(style, harness.Nginx), byVersion)
			r.selectByVersion()
			before := r.object()
			body := r.rollout.Body(r.Apps)
			delete(body, "images")
			body["templatePatch"] = toV2
			raw, err := json.Marshal(body)
			require.NoError(t, err)
			const why = "selects pods by version=v1, but the new version's pods have version=v2"
			refused := r.Call(http.MethodPost, "/api/v1/rollouts", string(raw))
			require.Equal(t, http.StatusUnprocessableEntity, refused.Status, "%s", refused.Body)
			require.Contains(t, string(refused.Body), why)
			checked := r.Call(http.MethodPost, "/api/v1/rollouts/validate", string(raw))
			require.Contains(t, string(checked.Body), `"valid":false`)
			require.Contains(t, string(checked.Body), why)
			require.Equal(t, before.GetResourceVersion(), r.object().GetResourceVersion(), "nothing is written")
			if style != strategy.StyleCanary {
				return
			}
			// the label of the extra pods is part of the canary Service's selector
			r.rollout.Strategy.PatchPodTemplateMetadata = &strategy.PodMetadata{
				Labels: map[string]string{"version": "v2"}}
			r.StartRollout(r.rollout)
			r.WaitForApproval(r.rollout.Name, 1)
			r.MustVerb(r.rollout.Name, "rollback", `{"actor":"ann"}`)
			r.WaitPhase(r.rollout.Name, rollout.PhaseRolledBack)
		})
	}
}

// By kubectl, the Rollout object says so, and the change stays held.
func TestKubectlRelease_IsRefused_WhenServiceSelectsByLabelOfOldTemplate(t *testing.T) {
	t.Parallel()
	e, g := harness.StartGuarded(t)
	d := &declared{release: prepareUnobserved(t, e, deploymentCell(strategy.StylePartition, harness.Nginx), byVersion),
		guard: g}
	d.selectByVersion()
	g.EnforceOn(t, d.Apps)
	d.create(d.document(), "owner")
	d.waitGate()
	asDev, err := dynamic.NewForConfig(d.Impersonate("dev")) // the gate lets the harness's own user pass
	require.NoError(t, err)
	_, err = asDev.Resource(harness.Deployment.GVR).Namespace(d.Apps).Patch(context.Background(), d.rollout.Name,
		types.MergePatchType, []byte(`{"spec":{"template":{"metadata":{"labels":{"version":"v2"}}}}}`),
		metav1.PatchOptions{FieldManager: "kubectl-edit"})
	require.NoError(t, err)
	d.waitObject("refused", func(r *v1beta1.Rollout) bool {
		raw, err := json.Marshal(r.Status)
		return err == nil && strings.Contains(string(raw),
			"selects pods by version=v1, but the new version's pods have version=v2")
	})
	ready, broken := d.readyPods()
	require.Len(t, ready[harness.StableImage(d.rollout.Name)], harness.SubjectSize)
	require.Empty(t, broken, "no pod has moved")
}
