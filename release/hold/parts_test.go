package hold

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	admission "k8s.io/api/admission/v1"

	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/workload"
)

// randomObject returns a workload or the status of a Rollout with parts that decide and parts that don't.
func randomObject(r *rand.Rand, k Kind) map[string]any {
	one := func(values ...any) any { return values[r.IntN(len(values))] }
	marks := func(names ...string) map[string]any {
		out := map[string]any{}
		for _, name := range names {
			if r.IntN(3) == 0 {
				out[name] = one("web", "a<b>&\u0001", "null", `{"/spec/paused":null}`)
			}
		}
		return out
	}
	put := func(object map[string]any, name string, values ...any) {
		if r.IntN(3) > 0 {
			object[name] = one(values...)
		}
	}
	template, metadata, spec, status := map[string]any{}, map[string]any{}, map[string]any{}, map[string]any{}
	put(metadata, "labels", marks("app", "pod-template-hash"), map[string]any{}, nil)
	put(metadata, "annotations", marks("a", "pod-template-hash"), map[string]any{}, nil)
	put(metadata, "creationTimestamp", nil, "2026-01-01T00:00:00Z")
	put(metadata, "finalizers", []any{"a"}, []any{"b"}, nil)
	put(template, "metadata", metadata, nil)
	put(template, "spec", map[string]any{"b": int64(1), "a": "x"}, map[string]any{"b": 1.5}, map[string]any{"b": nil}, nil)
	put(spec, "template", template)
	put(spec, "replicas", int64(0), int64(3), nil)
	put(spec, "updateStrategy", map[string]any{"type": "OnDelete"}, map[string]any{"type": "RollingUpdate"},
		map[string]any{"rollingUpdate": map[string]any{"partition": int64(1), "paused": true}})
	put(spec, "selector", map[string]any{"matchLabels": map[string]any{"app": "a"}})
	if r.IntN(2) == 0 {
		jsonpatch.Put(map[string]any{"spec": spec}, k.Pointer, one(k.Value, false, int64(2), nil, "20%"))
	}
	put(status, "slipway", map[string]any{"seq": int64(1), "by": "bob"}, map[string]any{"seq": int64(2)}, nil)
	put(status, "canaryStatus", map[string]any{"currentStepState": one("StepReady", "StepPaused"),
		"nextStepIndex": one(int64(1), int64(2)), "other": "x"}, nil)
	put(status, "blueGreenStatus", map[string]any{"nextStepIndex": int64(3)})
	out := map[string]any{"apiVersion": "v", "kind": k.Kind, "spec": spec}
	put(out, "status", status)
	labels := marks("app", "slipway.io/gate", workload.LabelClaimed)
	annotations := marks("a", "slipway.io/gate", "slipway.io/gated", "slipway.io/gated-by", "slipway.io/x",
		"slipway.io/repair")
	about := map[string]any{"name": "web", "managedFields": []any{map[string]any{"manager": "kubectl"}}}
	put(about, "labels", labels)
	put(about, "annotations", annotations)
	out["metadata"] = about
	return out
}

// The webhook decides from a few parts of an object as it would from the whole object.
func TestReview_DecidesAsOnWholeObjects(t *testing.T) {
	t.Parallel()
	named := v1beta1.Rollout{Spec: v1beta1.RolloutSpec{WorkloadRef: v1beta1.ObjectRef{APIVersion: "apps/v1",
		Kind: "Deployment", Name: "web"}}}
	named.Name = "web"
	r := rand.New(rand.NewPCG(1, 2))
	changes := 0
	for i := range 4_000 {
		kind := [][2]string{{"apps", "Deployment"}, {"apps", "StatefulSet"}, {"apps.kruise.io", "CloneSet"},
			{"apps", "DaemonSet"}, {v1beta1.GroupVersion.Group, v1beta1.Kind}}[i%5]
		k := Kind(workload.Of(kind[0], kind[1]))
		old, edited := randomObject(r, k), randomObject(r, k)
		request := map[string]any{"uid": "u", "operation": admission.Update, "namespace": "shop", "name": "web",
			"kind": map[string]any{"group": kind[0], "kind": kind[1]}, "userInfo": map[string]any{"username": "anna"},
			"object": edited, "oldObject": old, "resource": map[string]any{"group": kind[0], "resource": "of"}}
		var want []jsonpatch.Op
		if kind[1] == v1beta1.Kind {
			request["subResource"] = "status"
			request["resource"] = map[string]any{"group": kind[0], "resource": v1beta1.Resource.Resource}
			want = DecideStatus(old, edited, "anna")
		} else {
			e := Edit{Old: old, New: edited, User: "anna"}
			_, was := jsonpatch.At(old, jsonpatch.Label(gate.Label))
			if _, is := jsonpatch.At(edited, jsonpatch.Label(gate.Label)); !was && !is {
				e.Rollouts = []v1beta1.Rollout{named} // a label says as much
			}
			want = k.Decide(e)
		}
		answer, err := Reviewer{Engine: func(string, string) bool { return false },
			Rollouts: func(string) ([]v1beta1.Rollout, error) { return []v1beta1.Rollout{named}, nil }}.Review(
			jsonpatch.Encode(map[string]any{"kind": reviewKind, "apiVersion": "admission.k8s.io/v1", "request": request}))
		require.NoError(t, err)
		var got admission.AdmissionReview
		require.NoError(t, json.Unmarshal(answer, &got))
		require.True(t, got.Response.Allowed)
		if len(want) == 0 {
			require.Empty(t, got.Response.Patch, "%s to %s", jsonpatch.Encode(old), jsonpatch.Encode(edited))
			continue
		}
		changes++
		require.JSONEq(t, string(jsonpatch.Encode(want)), string(got.Response.Patch), "%s to %s",
			jsonpatch.Encode(old), jsonpatch.Encode(edited))
	}
	require.Greater(t, changes, 500, "the cases include many that are held")
}

// A review that isn't read to its end is answered from its beginning.
func TestRefuse(t *testing.T) {
	t.Parallel()
	review := func(user, kind, name string) []byte {
		return fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u",`+
			`"kind":{"group":"apps","kind":%q},"name":%q,"namespace":"shop","userInfo":{"username":%q},"object":{"a":"`,
			kind, name, user)
	}
	a := Reviewer{Engine: func(user, _ string) bool { return user == "engine" },
		Rollouts: func(namespace string) ([]v1beta1.Rollout, error) {
			require.Equal(t, "shop", namespace)
			web := v1beta1.Rollout{Spec: v1beta1.RolloutSpec{WorkloadRef: v1beta1.ObjectRef{APIVersion: "apps/v1",
				Kind: "Deployment", Name: "web"}}}
			web.Name = "web"
			return []v1beta1.Rollout{web}, nil
		}}
	for name, c := range map[string]struct {
		reason  string
		begins  []byte
		allowed bool
	}{
		"Named":   {"a change that may have to be held", review("anna", "Deployment", "web"), false},
		"Engine":  {"the engine's edits pass", review("engine", "Deployment", "web"), true},
		"Free":    {"no Rollout names it", review("anna", "Deployment", "other"), true},
		"Other":   {"another kind with that name", review("anna", "StatefulSet", "web"), true},
		"Unknown": {"a status of a Rollout", review("anna", "Rollout", "web"), false},
		"NoUser":  {"the beginning ends before the user", review("anna", "Deployment", "web")[:160], false},
		"OnlyUID": {"the beginning has hardly anything", review("anna", "Deployment", "web")[:85], false},
	} {
		answer, err := a.Refuse(c.begins, "it is too large: make it smaller")
		require.NoError(t, err, name)
		var got admission.AdmissionReview
		require.NoError(t, json.Unmarshal(answer, &got), name)
		require.EqualValues(t, "u", got.Response.UID, name)
		require.Equal(t, c.allowed, got.Response.Allowed, c.reason)
		if !c.allowed {
			require.Contains(t, got.Response.Result.Message, "it is too large: make it smaller", name)
		}
	}
	_, err := a.Refuse([]byte(`{"kind":"Other"`), "x")
	require.Error(t, err, "no review")
}
