package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/rollout/traffic"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/kruise"
	"slipway.io/slipway/test/routes"
)

// guarded is an object of one kind whose fields a release has borrowed.
type guarded struct {
	name   string
	gvr    schema.GroupVersionResource
	object map[string]any
	// fields has an edit of each borrowed field, by JSON Pointer.
	fields map[string]any
}

// otherClientEdits are edits by other clients, by kind and borrowed field. A borrowed field without an edit fails the
// test.
var otherClientEdits = map[string]map[string]any{
	"apps/Deployment": {"/spec/strategy": map[string]any{"type": "Recreate"}, "/spec/minReadySeconds": int64(7),
		"/spec/progressDeadlineSeconds": int64(777), "/spec/paused": true, "/spec/revisionHistoryLimit": int64(3)},
	"apps/StatefulSet": {"/spec/updateStrategy": map[string]any{"type": "OnDelete"}},
	"apps/DaemonSet":   {"/spec/updateStrategy": map[string]any{"type": "OnDelete"}},
	"apps.kruise.io/CloneSet": {"/spec/updateStrategy": map[string]any{"type": "ReCreate", "partition": int64(3)},
		// the value that the engine sets to hold pods; it does not fit into every number type
		"/spec/minReadySeconds": int64(2147483646)},
	"apps.kruise.io/StatefulSet": {"/spec/updateStrategy": map[string]any{"type": "OnDelete"}},
	"apps.kruise.io/DaemonSet":   {"/spec/updateStrategy": map[string]any{"type": "OnDelete"}},
}

// The API server reverts an edit of a borrowed field by another client, for each field of each kind, whether the field
// was set before or not, and applies the rest of the same edit. Edits by the engine pass, and so do all edits after a
// user has taken the object over.
func TestGuard_RevertsEdits_OfBorrowedFields(t *testing.T) {
	t.Parallel()
	stack := harness.SharedStack(t)
	routes.Install(t, stack.REST)
	kruise.Install(t, stack.REST)
	g := harness.SharedGuard(t)
	t.Run("AllLabelsRemoved", func(t *testing.T) {
		t.Parallel()
		testBorrowedLabelIsKept(t, stack, g)
	})
	t.Run("NotBorrowed", func(t *testing.T) {
		t.Parallel()
		testUnborrowedFields(t, g)
	})
	namespace := stack.Namespace(t, "guarded")
	g.EnforceOn(t, namespace)
	stranger := stack.Dynamic(t)
	engine, err := dynamic.NewForConfig(stack.Impersonate(harness.EngineUser))
	require.NoError(t, err)
	for _, k := range traffic.Kinds() {
		require.True(t, slices.ContainsFunc(routesToGuard(), func(c guarded) bool {
			return c.gvr.Group == k.Group && c.gvr.Resource == k.Resource &&
				!slices.ContainsFunc(k.Pointers, func(p string) bool { return c.fields[p] == nil })
		}), "%s: there is an edit for every borrowed field", k.Resource)
	}
	for _, c := range slices.Concat(workloadsToGuard(t), routesToGuard()) {
		for pointer, value := range c.fields {
			t.Run(c.name+pointer, func(t *testing.T) {
				t.Parallel()
				b := &borrowed{t: t, guarded: c, pointer: pointer, namespace: namespace, otherClient: stranger,
					engine: engine}
				b.check(value)
			})
		}
	}
}

// borrowed is one borrowed field of one object.
type borrowed struct {
	guarded
	t                   *testing.T
	pointer, namespace  string
	otherClient, engine dynamic.Interface
	version             int
}

func (b *borrowed) check(value any) {
	object := &unstructured.Unstructured{Object: b.object}
	object = object.DeepCopy()
	object.SetName(harness.RandomName("web"))
	object, err := b.in(b.engine).Create(context.Background(), object, metav1.CreateOptions{})
	require.NoError(b.t, err)
	own, _ := jsonpatch.At(object.Object, b.pointer)

	after := b.edit(b.otherClient, object, jsonpatch.Add(b.pointer, value))
	b.requireField(after, own, "another client's edit is reverted")
	after = b.edit(b.engine, after, jsonpatch.Add(b.pointer, value))
	engineValue, _ := jsonpatch.At(after.Object, b.pointer)
	require.NotEqual(b.t, own, engineValue, "the engine's edit passes")
	undo := jsonpatch.Add(b.pointer, own)
	if own == nil {
		undo = jsonpatch.Remove(b.pointer)
	}
	after = b.edit(b.otherClient, after, undo)
	b.requireField(after, engineValue, "another client cannot undo the engine's edit")

	_, err = b.patch(b.otherClient, after, jsonpatch.Add(jsonpatch.Annotation("slipway.io/held-by"), "somebody"))
	require.True(b.t, apierrors.IsForbidden(err), "only the engine edits the marks: %v", err)
	require.ErrorContains(b.t, err, "slipway.io/held-by belongs to the running release rollout/default/shop/web:",
		"and the error names the release")

	after = b.edit(b.otherClient, after, jsonpatch.Add(jsonpatch.Annotation("slipway.io/repair"), "anna"), undo)
	b.requireField(after, own, "a user who takes the object over may edit it")
	after = b.edit(b.otherClient, after, jsonpatch.Add(b.pointer, value))
	require.NotEqual(b.t, own, valueAt(after, b.pointer), "and edit it again")
	after = b.edit(b.otherClient, after, jsonpatch.Remove(jsonpatch.Annotation("slipway.io/repair")))
	after = b.edit(b.otherClient, after, undo)
	require.NotEqual(b.t, own, valueAt(after, b.pointer), "until the annotation is removed")
}

func valueAt(o *unstructured.Unstructured, pointer string) any {
	value, _ := jsonpatch.At(o.Object, pointer)
	return value
}

func (b *borrowed) in(client dynamic.Interface) dynamic.ResourceInterface {
	return client.Resource(b.gvr).Namespace(b.namespace)
}

func (b *borrowed) patch(client dynamic.Interface, o *unstructured.Unstructured,
	ops ...jsonpatch.Op) (*unstructured.Unstructured, error) {
	body, err := json.Marshal(ops)
	require.NoError(b.t, err)
	return b.in(client).Patch(context.Background(), o.GetName(), types.JSONPatchType, body, metav1.PatchOptions{})
}

// edit makes an edit together with a harmless one, which the API server must apply in any case.
func (b *borrowed) edit(client dynamic.Interface, o *unstructured.Unstructured,
	ops ...jsonpatch.Op) *unstructured.Unstructured {
	b.t.Helper()
	b.version++
	label := fmt.Sprint("v", b.version)
	after, err := b.patch(client, o, append(ops, jsonpatch.Add("/metadata/labels/edit", label))...)
	require.NoError(b.t, err)
	require.Equal(b.t, label, after.GetLabels()["edit"], "the rest of the edit is applied")
	return after
}

func (b *borrowed) requireField(o *unstructured.Unstructured, want any, why string) {
	b.t.Helper()
	require.True(b.t, reflect.DeepEqual(want, valueAt(o, b.pointer)), "%s: %v, not %v", why, valueAt(o, b.pointer),
		want)
}

const guardHolder = "rollout/default/shop/web@run-1"

func workloadsToGuard(t *testing.T) []guarded {
	t.Helper()
	var out []guarded
	for _, kind := range harness.Kinds {
		ref := kind.Ref("web")
		saved := map[string]any{}
		for _, pointer := range pods.BorrowedFields(ref.Lookup()) {
			saved[pointer] = nil
			require.Contains(t, otherClientEdits[ref.Lookup().Key()], pointer,
				"this table has an edit for every borrowed field")
		}
		settings, err := json.Marshal(map[string]any{"name": "web", "settings": saved})
		require.NoError(t, err)
		spec := map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"app": "none"}},
			"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "none"}},
				"spec": map[string]any{"nodeSelector": map[string]any{"no": "node"},
					"containers": []any{map[string]any{"name": "app", "image": "registry.test/web:v1"}}}}}
		if kind.Kind != "DaemonSet" {
			spec["replicas"] = int64(0)
		}
		if kind.Kind == "StatefulSet" {
			spec["serviceName"] = "web"
		}
		out = append(out, guarded{name: kind.Title, gvr: kind.GVR, fields: otherClientEdits[ref.Lookup().Key()],
			object: map[string]any{
				"apiVersion": ref.APIVersion, "kind": ref.Kind, "spec": spec,
				"metadata": map[string]any{"labels": map[string]any{"slipway.io/claimed": "true"},
					"annotations": map[string]any{
						"slipway.io/claimed-by": guardHolder, "slipway.io/rollout": string(settings)}}}})
	}
	return out
}

func routesToGuard() []guarded {
	port := []any{map[string]any{"name": "http", "port": int64(80)}}
	rule := func(service string) []any {
		return []any{map[string]any{"backendRefs": []any{map[string]any{"name": service, "port": int64(80)}}}}
	}
	ingress := func(service string) map[string]any {
		return map[string]any{"defaultBackend": map[string]any{"service": map[string]any{"name": service,
			"port": map[string]any{"number": int64(80)}}}}
	}
	weight := jsonpatch.Annotation("nginx.ingress.kubernetes.io/canary-weight")
	tag := jsonpatch.Label("mesh.example/tag")
	return []guarded{
		heldObject("Service", "v1", "services", map[string]any{"ports": port,
			"selector": map[string]any{"app": "web", "v": "1"}},
			map[string]any{"/spec/selector": map[string]any{"app": "web"}}),
		heldObject("Ingress", "networking.k8s.io/v1", "ingresses", ingress("web-canary"),
			map[string]any{"/spec": ingress("web"), weight: "90"}),
		heldObject("HTTPRoute", "gateway.networking.k8s.io/v1", "httproutes",
			map[string]any{"rules": rule("web-canary")},
			map[string]any{"/spec/rules": rule("web")}),
		heldObject("VirtualService", "networking.istio.io/v1", "virtualservices", map[string]any{"hosts": []any{"web"}},
			map[string]any{"/spec": map[string]any{"hosts": []any{"web", "other"}}, tag: "theirs"}),
		heldObject("DestinationRule", "networking.istio.io/v1", "destinationrules", map[string]any{"host": "web"},
			map[string]any{"/spec": map[string]any{"host": "other"}, tag: "theirs"}),
		heldObject("HorizontalPodAutoscaler", "autoscaling/v2", "horizontalpodautoscalers",
			map[string]any{"minReplicas": int64(4), "maxReplicas": int64(4),
				"scaleTargetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
			map[string]any{"/spec/minReplicas": int64(2), "/spec/maxReplicas": int64(9)}),
	}
}

// heldObject returns an object whose fields a release has borrowed.
func heldObject(kind, version, resource string, spec, fields map[string]any) guarded {
	group, err := schema.ParseGroupVersion(version)
	if err != nil {
		panic(err) // the version is a constant
	}
	var undo []jsonpatch.Op
	for _, pointer := range slices.Sorted(maps.Keys(fields)) {
		undo = append(undo, jsonpatch.Remove(pointer))
	}
	restore, err := json.Marshal(undo)
	if err != nil {
		panic(err) // the operations always marshal
	}
	return guarded{name: kind, gvr: group.WithResource(resource), fields: fields, object: map[string]any{
		"apiVersion": version, "kind": kind, "spec": spec,
		"metadata": map[string]any{"labels": map[string]any{"app": "web"}, "annotations": map[string]any{
			"slipway.io/held-by": guardHolder, "slipway.io/restore": string(restore)}}}}
}

// testUnborrowedFields checks that the guard ignores fields that the release has not saved, and objects without a mark.
func testUnborrowedFields(t *testing.T, g *harness.Guard) {
	t.Helper()
	e := harness.Shared(t)
	g.EnforceOn(t, e.Apps)
	e.Subject(harness.Deployment, "free", nil)
	e.PatchObject(harness.Deployment, "free",
		`{"metadata":{"annotations":{"slipway.io/replicas":"3"}},"spec":{"minReadySeconds":3}}`)
	require.EqualValues(t, 3, valueAt(e.Object(harness.Deployment, "free"), "/spec/minReadySeconds"),
		"it is not borrowed")
	e.Subject(harness.Deployment, "held", nil)
	e.SetImage(harness.Deployment, "held", harness.NewImage("held"))
	e.PatchObject(harness.Deployment, "held",
		`{"metadata":{"labels":{"slipway.io/claimed":"true"},"annotations":{"slipway.io/claimed-by":"`+guardHolder+
			`","slipway.io/rollout":"{\"settings\":{\"/spec/paused\":null}}"}}}`)
	e.PatchObject(harness.Deployment, "held", `{"spec":{"minReadySeconds":3,"paused":true}}`)
	after := e.Object(harness.Deployment, "held")
	require.EqualValues(t, 3, valueAt(after, "/spec/minReadySeconds"), "this field is not borrowed")
	require.Nil(t, valueAt(after, "/spec/paused"), "this one is")
	e.Scale(harness.Deployment, "held", 2)
	e.WaitReadyPods("held", 2)
	e.Kubectl("-n", e.Apps, "rollout", "status", "deployment", "held")
	held := marksOf(e.Object(harness.Deployment, "held"))
	e.Kubectl("-n", e.Apps, "rollout", "undo", "deployment", "held")
	require.Equal(t, held, marksOf(e.Object(harness.Deployment, "held")),
		"an undo also restores the annotations of an old revision, but no marks of Slipway")
	require.Equal(t, harness.StableImage("held"), valueAt(e.Object(harness.Deployment, "held"),
		"/spec/template/spec/containers").([]any)[0].(map[string]any)["image"], "the rest of it goes through")
	require.NotEmpty(t, e.Object(harness.Deployment, "held").GetAnnotations()["deployment.kubernetes.io/revision"],
		"its controller may write its own annotation")
	out := e.TryKubectl("-n", e.Apps, "label", "deployment", "held", "slipway.io/claimed-")
	require.Contains(t, out, "slipway.io/claimed belongs to the running release rollout/default/shop/web")
	require.Contains(t, out, "slipway.io/repair=<your name>", "the error says how to take the workload over")
	e.Kubectl("-n", e.Apps, "delete", "deployment", "held")
}

// By default the guard lets exactly the service accounts of deploy/rbac edit: administrators of a namespace can act as
// every account in it.
func TestGuard_AdmitsServiceAccounts_OfRBACManifests(t *testing.T) {
	t.Parallel()
	s := harness.SharedStack(t)
	g := s.InstallGuardFor(t)
	namespace := s.Namespace(t, "guarded")
	g.EnforceOn(t, namespace)
	services := func(user string) dynamic.ResourceInterface {
		client, err := dynamic.NewForConfig(s.Impersonate(user))
		require.NoError(t, err)
		return client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "services"}).Namespace(namespace)
	}
	service := &unstructured.Unstructured{Object: routesToGuard()[0].object}
	service = service.DeepCopy()
	service.SetName("web")
	_, err := services("anna").Create(context.Background(), service, metav1.CreateOptions{})
	require.NoError(t, err)
	for i, c := range []struct {
		reason, user string
		passes       bool
	}{
		{"the engine", "system:serviceaccount:slipway:slipway", true},
		{"the party's worker", "system:serviceaccount:slipway-party:slipway-party", true},
		{"an account of that name in the released namespace", "system:serviceaccount:" + namespace + ":slipway-party",
			false},
		{"another account", "system:serviceaccount:" + namespace + ":default", false},
	} {
		want := fmt.Sprint("v", i)
		after, err := services(c.user).Patch(context.Background(), "web", types.MergePatchType,
			[]byte(`{"spec":{"selector":{"v":"`+want+`"}}}`), metav1.PatchOptions{})
		require.NoError(t, err, c.reason)
		require.Equal(t, c.passes, valueAt(after, "/spec/selector/v") == want, c.reason)
	}
}

// testBorrowedLabelIsKept checks that an edit that removes all labels leaves the borrowed one.
func testBorrowedLabelIsKept(t *testing.T, s harness.Stack, g *harness.Guard) {
	t.Helper()
	namespace := s.Namespace(t, "guarded")
	g.EnforceOn(t, namespace)
	object := heldObject("VirtualService", "networking.istio.io/v1", "virtualservices",
		map[string]any{"hosts": []any{"web"}}, map[string]any{jsonpatch.Label("tag"): nil})
	object.object["metadata"].(map[string]any)["labels"] = map[string]any{"tag": "ours", "team": "shop"}
	b := &borrowed{t: t, guarded: object, namespace: namespace, otherClient: s.Dynamic(t)}
	service := &unstructured.Unstructured{Object: object.object}
	service.SetName("web")
	service, err := b.in(b.otherClient).Create(context.Background(), service, metav1.CreateOptions{})
	require.NoError(t, err)
	after, err := b.patch(b.otherClient, service, jsonpatch.Remove("/metadata/labels"))
	require.NoError(t, err)
	require.Equal(t, map[string]string{"tag": "ours"}, after.GetLabels())
}

// With deploy/rbac/guard-reader.yaml a worker may read the guard's policies; without it, it may not.
func TestGuardReaderRole_AllowsReadingOnly(t *testing.T) {
	t.Parallel()
	s := harness.SharedStack(t)
	namespace := s.Namespace(t, "apps")
	worker := s.Account(t, "party.yaml", namespace)
	policies := "admissionregistration.k8s.io/mutatingadmissionpolicies"
	require.False(t, worker.May(t, "list", policies, ""))
	s.Grant(t, "guard-reader.yaml", namespace)
	require.Eventually(t, func() bool { return worker.May(t, "list", policies, "") }, harness.Patience, harness.Tick)
	require.False(t, worker.May(t, "update", policies, ""), "it may read, and no more")
}
