package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

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
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/test/harness"
)

// pair is one workload in two namespaces: one without policies and one with them.
type pair struct {
	t      *testing.T
	stack  harness.Stack
	kind   harness.Kind
	hold   hold.Kind
	random *rand.Rand
	// free is the namespace without policies, held the one with them.
	free, held string
	name       string
	rollouts   []v1beta1.Rollout
	clients    map[string]dynamic.Interface
}

// testPoliciesMatchGo checks that the policies change a random edit of a random workload exactly as hold.Kind.Decide
// does, which is used on clusters without such policies.
func testPoliciesMatchGo(t *testing.T, g *harness.Guard) {
	s := harness.SharedStack(t)
	free, held := s.Namespace(t, "free"), s.Namespace(t, "gated")
	g.EnforceOn(t, held)
	for _, kind := range harness.Kinds {
		for _, named := range []bool{true, false} {
			t.Run(fmt.Sprint(kind.Title, "/named ", named), func(t *testing.T) {
				t.Parallel()
				seed := rand.Uint64()
				t.Logf("the seed is %d", seed)
				p := &pair{t: t, stack: s, kind: kind, hold: hold.Kind(kind.Ref("").Lookup()),
					random: rand.New(rand.NewPCG(seed, 1)), free: free,
					held: held, name: harness.RandomName("web"),
					clients: map[string]dynamic.Interface{}}
				if named {
					p.createRollout()
				}
				p.create()
				changed := 0
				for range 6 {
					old := p.state()
					for range 10 {
						if p.compare(old, p.edit()) {
							changed++
						}
					}
				}
				require.NotZero(t, changed, "some edits are held")
			})
		}
	}
}

func (p *pair) in(namespace, user string) dynamic.ResourceInterface {
	client := p.clients[user]
	if client == nil {
		var err error
		client, err = dynamic.NewForConfig(p.stack.Impersonate(user))
		require.NoError(p.t, err)
		p.clients[user] = client
	}
	return client.Resource(p.kind.GVR).Namespace(namespace)
}

// createRollout creates a Rollout that refers to the workload.
func (p *pair) createRollout() {
	ref := p.kind.Ref(p.name)
	r := v1beta1.Rollout{Spec: v1beta1.RolloutSpec{WorkloadRef: v1beta1.ObjectRef{APIVersion: ref.APIVersion,
		Kind: ref.Kind, Name: ref.Name}}}
	r.Name = p.name
	p.rollouts = []v1beta1.Rollout{r}
	_, err := p.stack.Dynamic(p.t).Resource(v1beta1.Resource).Namespace(p.held).Create(context.Background(),
		&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": v1beta1.GroupVersion.String(), "kind": v1beta1.Kind,
			"metadata": map[string]any{"name": r.Name},
			"spec": map[string]any{"workloadRef": map[string]any{"apiVersion": ref.APIVersion, "kind": ref.Kind,
				"name": ref.Name},
				"strategy": map[string]any{
					"canary": map[string]any{"steps": []any{map[string]any{"replicas": "50%"}}}}}}},
		metav1.CreateOptions{})
	require.NoError(p.t, err)
}

// create makes the workload in both namespaces and waits until the policies know the Rollout. No pod is ever scheduled:
// the test is about the API server.
func (p *pair) create() {
	object := func() *unstructured.Unstructured {
		o := (&harness.Engine{}).WithT(p.t).SubjectObject(p.kind, p.name)
		_ = unstructured.SetNestedStringMap(o.Object, map[string]string{"no": "node"}, "spec", "template", "spec",
			"nodeSelector")
		return o
	}
	_, err := p.in(p.free, "kruise").Create(context.Background(), object(), metav1.CreateOptions{})
	require.NoError(p.t, err)
	require.Eventually(p.t, func() bool {
		o, err := p.in(p.held, "anna").Create(context.Background(), object(),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		require.NoError(p.t, err)
		patch := p.hold.Decide(hold.Edit{New: object().Object, User: "anna", Rollouts: p.rollouts})
		want := jsonpatch.Apply(object().Object, patch)
		return o.GetLabels()[gate.Label] == (&unstructured.Unstructured{Object: want}).GetLabels()[gate.Label]
	}, harness.Patience, harness.Tick, "a new workload is labelled alike")
	_, err = p.in(p.held, harness.EngineUser).Create(context.Background(), object(), metav1.CreateOptions{})
	require.NoError(p.t, err)
}

func (p *pair) maybe() bool { return p.random.IntN(2) == 0 }

func (p *pair) oneOf(of ...any) any { return of[p.random.IntN(len(of))] }

// value is a random value for the field that holds the workload.
func (p *pair) value() any {
	switch p.hold.Value.(type) {
	case bool:
		return p.oneOf(true, false)
	case int64:
		return p.oneOf(p.hold.Value, int64(0), int64(3))
	}
	if p.kind.Kind == "DaemonSet" {
		return p.oneOf("OnDelete", "RollingUpdate")
	}
	return p.oneOf("100%", "20%", int64(2), `odd "\ value`, "line\nbreak")
}

func (p *pair) fieldOp() jsonpatch.Op {
	if p.kind == harness.StatefulSet || p.kind.Custom() && p.kind.Kind != "CloneSet" {
		return jsonpatch.Add("/spec/updateStrategy",
			p.oneOf(map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"partition": p.value()}},
				map[string]any{"type": "RollingUpdate"}, map[string]any{"type": "OnDelete"}))
	}
	return jsonpatch.Add(p.hold.Pointer, p.value())
}

func (p *pair) marks() map[string]any {
	out := map[string]any{"note": "theirs"}
	if p.maybe() {
		out[gate.AnnotationWhy] = "Rollout web holds this"
	}
	if p.maybe() {
		out[gate.AnnotationHeld] = p.oneOf(p.hold.HeldText(p.value(), true), p.hold.HeldText(nil, false), "{}",
			`{"/spec/other":1}`)
	}
	if p.maybe() {
		out[gate.AnnotationBy] = p.oneOf("anna", "bob")
	}
	if p.maybe() {
		out["slipway.io/recover"] = p.oneOf("a", "b")
	}
	return out
}

// state sets both workloads to the same random state, as the engine, and returns it.
func (p *pair) state() *unstructured.Unstructured {
	labels := map[string]any{"team": "shop"}
	if p.random.IntN(3) > 0 {
		labels[gate.Label] = "web"
	}
	if p.random.IntN(4) == 0 {
		labels["slipway.io/claimed"] = "true"
	}
	ops := []jsonpatch.Op{jsonpatch.Add("/metadata/labels", labels), jsonpatch.Add("/metadata/annotations", p.marks()),
		p.fieldOp()}
	if p.kind.Kind != "DaemonSet" {
		ops = append(ops, jsonpatch.Add("/spec/replicas", p.oneOf(int64(0), int64(2))))
	}
	body, err := json.Marshal(ops)
	require.NoError(p.t, err)
	var out *unstructured.Unstructured
	for _, namespace := range []string{p.held, p.free} {
		out, err = p.in(namespace, harness.EngineUser).Patch(context.Background(), p.name, types.JSONPatchType, body,
			metav1.PatchOptions{})
		require.NoError(p.t, err, "%s", body)
	}
	return out
}

// edit returns a random edit.
func (p *pair) edit() []jsonpatch.Op {
	var ops []jsonpatch.Op
	template := "/spec/template/metadata"
	all := []jsonpatch.Op{
		jsonpatch.Add("/spec/template/spec/containers/0/image",
			p.oneOf("registry.test/web:v2", harness.StableImage(p.name))),
		jsonpatch.Add(template+"/annotations", p.oneOf(map[string]any{"at": "noon"}, map[string]any{})),
		jsonpatch.Add(template+"/labels", p.oneOf(map[string]any{"app": p.name, "pod-template-hash": "x"},
			map[string]any{"app": p.name, "tier": "web"})),
		jsonpatch.Add("/metadata/annotations", p.marks()),
		jsonpatch.Add("/metadata/labels", p.oneOf(map[string]any{gate.Label: "other"}, map[string]any{"team": "pay"},
			map[string]any{"team": "pay", gate.Label: "web"})),
		jsonpatch.Remove("/metadata/annotations"),
		jsonpatch.Remove("/metadata/labels"),
		jsonpatch.Add(jsonpatch.Annotation("slipway.io/repair"), "anna"),
		p.fieldOp(),
	}
	if p.kind.Kind != "DaemonSet" {
		all = append(all, jsonpatch.Add("/spec/replicas", p.oneOf(int64(0), int64(2))))
	}
	removed := map[string]bool{}
	for _, op := range all {
		if p.random.IntN(3) > 0 || removed[op.Path] || op.Path == jsonpatch.Annotation("slipway.io/repair") &&
			(removed["/metadata/annotations"] || p.maybe()) {
			continue
		}
		removed[op.Path] = op.Value == nil
		ops = append(ops, op)
	}
	return ops
}

// compare dry-runs an edit on both workloads and reports whether the policies changed it.
func (p *pair) compare(old *unstructured.Unstructured, ops []jsonpatch.Op) bool {
	p.t.Helper()
	body, err := json.Marshal(ops)
	require.NoError(p.t, err)
	user := p.oneOf("anna", "bob").(string)
	try := func(namespace string) (*unstructured.Unstructured, error) {
		return p.in(namespace, user).Patch(context.Background(), p.name, types.JSONPatchType, body,
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	}
	free, err := try(p.free)
	if apierrors.IsInvalid(err) {
		return false // the API server rejects this edit in any namespace
	}
	require.NoError(p.t, err, "%s", body)
	held, err := try(p.held)
	if apierrors.IsForbidden(err) && slices.ContainsFunc(ops, func(op jsonpatch.Op) bool {
		return strings.HasPrefix(op.Path, "/metadata/")
	}) {
		return false // the guard refuses edits of nothing but a claimed workload's marks by other clients
	}
	require.NoError(p.t, err, "%s", body)
	by := free.GetAnnotations()[gate.AnnotationBy]
	putMarksBack(old, free, user)
	patch := p.hold.Decide(hold.Edit{Old: old.Object, New: free.Object, User: user, Rollouts: p.rollouts})
	want := &unstructured.Unstructured{Object: jsonpatch.Apply(free.Object, patch)}
	require.Equal(p.t, want.Object["spec"], held.Object["spec"], "%s\nof %v", body, old.Object)
	require.Equal(p.t, want.GetLabels(), held.GetLabels(), "%s\nof %v", body, old.Object)
	if was := old.GetAnnotations()[gate.AnnotationBy]; by != was && by != user {
		// the guard puts the earlier name back, or the gate writes the user's: API servers choose the order
		require.Contains(p.t, []string{"", was, user}, held.GetAnnotations()[gate.AnnotationBy], "%s", body)
		unstructured.RemoveNestedField(held.Object, "metadata", "annotations", gate.AnnotationBy)
		unstructured.RemoveNestedField(want.Object, "metadata", "annotations", gate.AnnotationBy)
	}
	require.Equal(p.t, annotationsWithoutRevision(want), annotationsWithoutRevision(held), "%s\nof %v", body,
		old.Object)
	return len(patch) > 0
}

// putMarksBack does to an edit of a claimed workload what the guard does: Slipway's marks stay, but for those that the
// gate may have written in the same request.
func putMarksBack(old, edited *unstructured.Unstructured, user string) {
	has := func(entries map[string]string, name string) bool {
		_, is := entries[name]
		return is
	}
	claimed := has(old.GetLabels(), workload.LabelClaimed) || has(old.GetLabels(), workload.LabelRollout)
	if !claimed || has(old.GetAnnotations(), rollout.AnnotationRepair) ||
		has(edited.GetAnnotations(), rollout.AnnotationRepair) {
		return
	}
	for part, entries := range map[string][2]map[string]string{"labels": {old.GetLabels(), edited.GetLabels()},
		"annotations": {old.GetAnnotations(), edited.GetAnnotations()}} {
		was, is := entries[0], entries[1]
		both := maps.Clone(was)
		if both == nil {
			both = map[string]string{}
		}
		maps.Copy(both, is)
		for name := range both {
			byGate := name == gate.Label && !has(was, name) || name == gate.AnnotationBy && is[name] == user
			pointer := "/metadata/" + part + "/" + jsonpatch.Escape(name)
			switch {
			case !strings.HasPrefix(name, hold.Prefix), byGate:
			case has(was, name):
				jsonpatch.Put(edited.Object, pointer, was[name])
			default:
				jsonpatch.Drop(edited.Object, pointer)
			}
		}
	}
}

// annotationsWithoutRevision returns the annotations without the one that the Deployment controller adds at any time.
func annotationsWithoutRevision(o *unstructured.Unstructured) map[string]string {
	out := map[string]string{}
	maps.Copy(out, o.GetAnnotations())
	delete(out, "deployment.kubernetes.io/revision")
	return out
}
