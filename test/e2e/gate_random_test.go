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
	"slipway.io/slipway/release/gate/hold"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/test/harness"
)

// pair is one workload twice: where nothing holds it, and where the policies do.
type pair struct {
	t      *testing.T
	stack  harness.Stack
	kind   harness.Kind
	hold   hold.Kind
	random *rand.Rand
	// free and held are the namespaces.
	free, held string
	name       string
	rollouts   []v1beta1.Rollout
	clients    map[string]dynamic.Interface
}

// What the policies make of a random edit of a random workload is what the same decision in Go makes of it, on which clusters without such policies rely.
func decidesAlike(t *testing.T, g *harness.Guard) {
	s := harness.SharedStack(t)
	free, held := s.Namespace(t, "free"), s.Namespace(t, "gated")
	g.Over(t, held)
	for _, kind := range harness.Kinds {
		for _, named := range []bool{true, false} {
			t.Run(fmt.Sprint(kind.Title, "/named ", named), func(t *testing.T) {
				t.Parallel()
				seed := rand.Uint64()
				t.Logf("the seed is %d", seed)
				k, _ := hold.Of(kind.GVR.Group, kind.GVR.Resource)
				p := &pair{t: t, stack: s, kind: kind, hold: k, random: rand.New(rand.NewPCG(seed, 1)), free: free, held: held, name: harness.RandomName("web"),
					clients: map[string]dynamic.Interface{}}
				if named {
					p.nameIt()
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
		client, err = dynamic.NewForConfig(p.stack.As(user))
		require.NoError(p.t, err)
		p.clients[user] = client
	}
	return client.Resource(p.kind.GVR).Namespace(namespace)
}

// nameIt makes a Rollout that names the workload, and returns when the policies know it.
func (p *pair) nameIt() {
	ref := p.kind.Ref(p.name)
	r := v1beta1.Rollout{Spec: v1beta1.RolloutSpec{WorkloadRef: v1beta1.ObjectRef{APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name}}}
	r.Name = p.name
	p.rollouts = []v1beta1.Rollout{r}
	_, err := p.stack.Dynamic(p.t).Resource(v1beta1.Resource).Namespace(p.held).Create(context.Background(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1beta1.GroupVersion.String(), "kind": v1beta1.Kind, "metadata": map[string]any{"name": r.Name},
		"spec": map[string]any{"workloadRef": map[string]any{"apiVersion": ref.APIVersion, "kind": ref.Kind, "name": ref.Name},
			"strategy": map[string]any{"canary": map[string]any{"steps": []any{map[string]any{"replicas": "50%"}}}}}}}, metav1.CreateOptions{})
	require.NoError(p.t, err)
}

// create makes the workload in both namespaces. No pod of it is ever made: it is the API server that is tested.
func (p *pair) create() {
	object := func() *unstructured.Unstructured {
		o := (&harness.Engine{}).In(p.t).Unmade(p.kind, p.name)
		_ = unstructured.SetNestedStringMap(o.Object, map[string]string{"no": "node"}, "spec", "template", "spec", "nodeSelector")
		return o
	}
	_, err := p.in(p.free, "kruise").Create(context.Background(), object(), metav1.CreateOptions{})
	require.NoError(p.t, err)
	require.Eventually(p.t, func() bool {
		o, err := p.in(p.held, "anna").Create(context.Background(), object(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		require.NoError(p.t, err)
		patch := p.hold.Decide(hold.Edit{New: object().Object, User: "anna", Rollouts: p.rollouts})
		want := jsonpatch.Apply(object().Object, patch)
		return o.GetLabels()[gate.Label] == (&unstructured.Unstructured{Object: want}).GetLabels()[gate.Label]
	}, harness.Patience, harness.Tick, "a new workload is labelled alike")
	_, err = p.in(p.held, harness.EngineUser).Create(context.Background(), object(), metav1.CreateOptions{})
	require.NoError(p.t, err)
}

func (p *pair) maybe() bool { return p.random.IntN(2) == 0 }

func (p *pair) one(of ...any) any { return of[p.random.IntN(len(of))] }

// value is something that may stand in the field that holds.
func (p *pair) value() any {
	switch p.hold.Value.(type) {
	case bool:
		return p.one(true, false)
	case int64:
		return p.one(p.hold.Value, int64(0), int64(3))
	}
	if p.kind.Kind == "DaemonSet" {
		return p.one("OnDelete", "RollingUpdate")
	}
	return p.one("100%", "20%", int64(2), `odd "\ value`, "line\nbreak")
}

func (p *pair) fieldOp() jsonpatch.Op {
	if p.kind == harness.StatefulSet || p.kind.Custom() && p.kind.Kind != "CloneSet" {
		return jsonpatch.Add("/spec/updateStrategy", p.one(map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"partition": p.value()}},
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
		out[gate.AnnotationHeld] = p.one(p.hold.Said(p.value(), true), p.hold.Said(nil, false), "{}", `{"/spec/other":1}`)
	}
	if p.maybe() {
		out[gate.AnnotationBy] = p.one("anna", "bob")
	}
	if p.maybe() {
		out["slipway.io/recover"] = p.one("a", "b")
	}
	return out
}

// state brings both workloads to the same random state, as the engine, and answers with it.
func (p *pair) state() *unstructured.Unstructured {
	labels := map[string]any{"team": "shop"}
	if p.random.IntN(3) > 0 {
		labels[gate.Label] = "web"
	}
	if p.random.IntN(4) == 0 {
		labels["slipway.io/claimed"] = "true"
	}
	ops := []jsonpatch.Op{jsonpatch.Add("/metadata/labels", labels), jsonpatch.Add("/metadata/annotations", p.marks()), p.fieldOp()}
	if p.kind.Kind != "DaemonSet" {
		ops = append(ops, jsonpatch.Add("/spec/replicas", p.one(int64(0), int64(2))))
	}
	body, err := json.Marshal(ops)
	require.NoError(p.t, err)
	var out *unstructured.Unstructured
	for _, namespace := range []string{p.held, p.free} {
		out, err = p.in(namespace, harness.EngineUser).Patch(context.Background(), p.name, types.JSONPatchType, body, metav1.PatchOptions{})
		require.NoError(p.t, err, "%s", body)
	}
	return out
}

// edit is a random edit.
func (p *pair) edit() []jsonpatch.Op {
	var ops []jsonpatch.Op
	template := "/spec/template/metadata"
	all := []jsonpatch.Op{
		jsonpatch.Add("/spec/template/spec/containers/0/image", p.one("registry.test/web:v2", harness.StableImage(p.name))),
		jsonpatch.Add(template+"/annotations", p.one(map[string]any{"at": "noon"}, map[string]any{})),
		jsonpatch.Add(template+"/labels", p.one(map[string]any{"app": p.name, "pod-template-hash": "x"}, map[string]any{"app": p.name, "tier": "web"})),
		jsonpatch.Add("/metadata/annotations", p.marks()),
		jsonpatch.Add("/metadata/labels", p.one(map[string]any{gate.Label: "other"}, map[string]any{"team": "pay"}, map[string]any{"team": "pay", gate.Label: "web"})),
		jsonpatch.Remove("/metadata/annotations"),
		jsonpatch.Remove("/metadata/labels"),
		jsonpatch.Add(jsonpatch.Annotation("slipway.io/repair"), "anna"),
		p.fieldOp(),
	}
	if p.kind.Kind != "DaemonSet" {
		all = append(all, jsonpatch.Add("/spec/replicas", p.one(int64(0), int64(2))))
	}
	gone := map[string]bool{}
	for _, op := range all {
		if p.random.IntN(3) > 0 || gone[op.Path] || op.Path == jsonpatch.Annotation("slipway.io/repair") && (gone["/metadata/annotations"] || p.maybe()) {
			continue
		}
		gone[op.Path] = op.Value == nil
		ops = append(ops, op)
	}
	return ops
}

// compare tries an edit on both workloads, without a lasting effect, and says whether the policies changed it.
func (p *pair) compare(old *unstructured.Unstructured, ops []jsonpatch.Op) bool {
	p.t.Helper()
	body, err := json.Marshal(ops)
	require.NoError(p.t, err)
	user := p.one("anna", "bob").(string)
	try := func(namespace string) (*unstructured.Unstructured, error) {
		return p.in(namespace, user).Patch(context.Background(), p.name, types.JSONPatchType, body, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	}
	free, err := try(p.free)
	if apierrors.IsInvalid(err) {
		return false // nobody may write this
	}
	require.NoError(p.t, err, "%s", body)
	held, err := try(p.held)
	if apierrors.IsForbidden(err) && slices.ContainsFunc(ops, func(op jsonpatch.Op) bool { return strings.HasPrefix(op.Path, "/metadata/") }) {
		return false // the guard refuses others' edits of the marks of a claimed workload
	}
	require.NoError(p.t, err, "%s", body)
	patch := p.hold.Decide(hold.Edit{Old: old.Object, New: free.Object, User: user, Rollouts: p.rollouts})
	want := &unstructured.Unstructured{Object: jsonpatch.Apply(free.Object, patch)}
	require.Equal(p.t, want.Object["spec"], held.Object["spec"], "%s\nof %v", body, old.Object)
	require.Equal(p.t, want.GetLabels(), held.GetLabels(), "%s\nof %v", body, old.Object)
	require.Equal(p.t, theirAnnotations(want), theirAnnotations(held), "%s\nof %v", body, old.Object)
	return len(patch) > 0
}

// theirAnnotations are the annotations but for one that its controller adds when it likes.
func theirAnnotations(o *unstructured.Unstructured) map[string]string {
	out := map[string]string{}
	maps.Copy(out, o.GetAnnotations())
	delete(out, "deployment.kubernetes.io/revision")
	return out
}
