package hold

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/workload"
)

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	var out map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(text), &out))
	return jsonpatch.Normalise(out).(map[string]any)
}

const deployment = `{metadata: {name: web, labels: {slipway.io/gate: web}, annotations: {slipway.io/gate: why}},
 spec: {replicas: 3, template: {metadata: {labels: {app: web}}, spec: {image: v1}}}}`

// Another test compares the policies on a real API server with these decisions; this one states the reasons.
func TestDecide(t *testing.T) {
	t.Parallel()
	k := Kind(workload.Of("apps", "Deployment"))
	named := v1beta1.Rollout{Spec: v1beta1.RolloutSpec{WorkloadRef: v1beta1.ObjectRef{APIVersion: "apps/v1",
		Kind: "Deployment", Name: "web"}}}
	named.Name = "shop"
	off, deleted, other := named, named, named
	off.Spec.Disabled = true
	deleted.DeletionTimestamp = &metav1.Time{}
	other.Spec.WorkloadRef.APIVersion = "apps.kruise.io/v1alpha1"
	free := strings.ReplaceAll(deployment, "labels: {slipway.io/gate: web}, annotations: {slipway.io/gate: why}",
		"labels: {team: shop}")
	changed := func(s string) string { return strings.Replace(s, "image: v1", "image: v2", 1) }
	for name, c := range map[string]struct {
		reason, old, new string
		rollouts         []v1beta1.Rollout
		paused           any
		held             string
	}{
		"Changed": {"A changed template is held.", deployment, changed(deployment), nil, true,
			`{"/spec/paused":null}`},
		"Same": {"An edit that moves no pod is not held.", deployment,
			strings.Replace(deployment, "replicas: 3", "replicas: 4", 1), nil, nil, ""},
		"Hash": {"Controllers add their hash to the template.", deployment,
			strings.Replace(deployment, "app: web", "app: web, pod-template-hash: x", 1), nil, nil, ""},
		"Finalizer": {"Other fields of the template make new pods.", deployment,
			strings.Replace(deployment, "labels: {app", "finalizers: [a], labels: {app", 1), nil, true,
			`{"/spec/paused":null}`},
		"Empty": {"Without pods there is nothing to hold.", deployment,
			strings.Replace(changed(deployment), "replicas: 3", "replicas: 0", 1), nil, nil, ""},
		"Paused": {"An owner's pause is saved, to be restored.",
			strings.Replace(deployment, "replicas", "paused: true, replicas", 1),
			strings.Replace(changed(deployment), "replicas", "paused: true, replicas", 1), nil, true,
			`{"/spec/paused":true}`},
		"Repaired": {"A workload under repair is left alone.",
			strings.Replace(deployment, "slipway.io/gate: why", "slipway.io/repair: anna", 1), changed(deployment), nil,
			nil, ""},
		"Free": {"A workload that no Rollout names is not held.", free, changed(free),
			[]v1beta1.Rollout{off, deleted, other}, nil, ""},
		"Named": {"A Rollout holds a workload that is not labelled yet.", free, changed(free),
			[]v1beta1.Rollout{off, named}, true, `{"/spec/paused":null}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			edited := object(t, c.new)
			after := jsonpatch.Apply(edited, k.Decide(
				Edit{Old: object(t, c.old), New: edited, User: "anna", Rollouts: c.rollouts}))
			paused, _ := jsonpatch.At(after, "/spec/paused")
			require.Equal(t, c.paused, paused, c.reason)
			held, there := jsonpatch.At(after, jsonpatch.Annotation(gate.AnnotationHeld))
			require.Equal(t, c.held != "", there, c.reason)
			if there {
				require.Equal(t, c.held, held, c.reason)
				by, _ := jsonpatch.At(after, jsonpatch.Annotation(gate.AnnotationBy))
				require.Equal(t, "anna", by, c.reason)
			}
			again := jsonpatch.Apply(after, k.Decide(
				Edit{Old: object(t, c.old), New: after, User: "anna", Rollouts: c.rollouts}))
			require.Equal(t, after, again, "the API server may ask twice")
		})
	}
	// Kinds other than Deployments make new pods for this label.
	sts, label := Kind(workload.Of("apps", "StatefulSet")), strings.Replace(deployment, "app: web",
		"app: web, pod-template-hash: x", 1)
	pinned, _ := jsonpatch.At(jsonpatch.Apply(object(t, label), sts.Decide(Edit{Old: object(t, deployment),
		New: object(t, label), User: "anna"})), sts.Pointer)
	require.EqualValues(t, sts.Value, pinned)
	created := object(t, free)
	after := jsonpatch.Apply(created, k.Decide(Edit{New: created, User: "anna", Rollouts: []v1beta1.Rollout{named}}))
	value, _ := jsonpatch.At(after, jsonpatch.Label(gate.Label))
	require.Equal(t, "shop", value, "a new workload is labelled")
	_, paused := jsonpatch.At(after, "/spec/paused")
	require.False(t, paused, "but not held")
}

// Only an edit that changes a command field is recorded as a command.
func TestDecideStatus(t *testing.T) {
	t.Parallel()
	old := `{status: {slipway: {seq: 7, by: bob}, canaryStatus: {currentStepState: StepPaused, nextStepIndex: 2}}}`
	for name, c := range map[string]struct{ reason, new, by string }{
		"Approved": {"An approval is recorded with its user.",
			`{status: {slipway: {seq: 9, by: boss}, canaryStatus: {currentStepState: StepReady, nextStepIndex: 2}}}`,
			"anna"},
		"Jump": {"So is a jump.", `{status: {canaryStatus: {currentStepState: StepPaused, nextStepIndex: 1}}}`,
			"anna"},
		"Repeated": {"An edit that changes nothing is no command.",
			`{status: {slipway: {seq: 7, by: anna}, canaryStatus: {currentStepState: StepPaused, nextStepIndex: 2}}}`,
			"bob"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			edited := object(t, c.new)
			after := jsonpatch.Apply(edited, DecideStatus(object(t, old), edited, "anna"))
			engine, _ := jsonpatch.At(after, "/status/slipway")
			require.Equal(t, map[string]any{"seq": int64(7), "by": c.by}, engine, c.reason)
		})
	}
	never := object(t, `{status: {slipway: {by: anna}}}`)
	require.Equal(t, object(t, `{status: {}}`), jsonpatch.Apply(never, DecideStatus(object(t, `{}`), never, "anna")),
		"other clients cannot write the engine's part")
}

// A partition that holds every pod moves none, regardless of who set it.
func TestHolds_OnlyFieldsThatHoldEveryPod(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason, group, kind, path, spec string
		want                            bool
	}{
		{"a CloneSet whose partition is 100%", "apps.kruise.io", "CloneSet", "/spec/updateStrategy",
			`{"updateStrategy":{"partition":"100%","maxSurge":"100%"}}`, true},
		{"one that updates half of the pods", "apps.kruise.io", "CloneSet", "/spec/updateStrategy",
			`{"updateStrategy":{"partition":"50%"}}`, false},
		{"a paused Deployment", "apps", "Deployment", "/spec/paused", `{"paused":true}`, true},
		{"one that was resumed", "apps", "Deployment", "/spec/paused", `{}`, false},
		{"another field of a paused one", "apps", "Deployment", "/spec/minReadySeconds",
			`{"paused":true,"minReadySeconds":0}`, false},
		{"the partition that holds a StatefulSet", "apps", "StatefulSet",
			"/spec/updateStrategy/rollingUpdate/partition",
			`{"updateStrategy":{"rollingUpdate":{"partition":2147483647}}}`, true},
		{"a kind that no Rollout names", "batch", "Job", "/spec/paused", `{"paused":true}`, false},
	} {
		var spec map[string]any
		require.NoError(t, json.Unmarshal([]byte(c.spec), &spec))
		require.Equal(t, c.want, Holds(c.group, c.kind, map[string]any{"spec": spec}, c.path), c.reason)
	}
}
