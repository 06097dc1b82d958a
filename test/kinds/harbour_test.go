package kinds_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admission "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	activities "slipway.io/slipway/activities/workload"
	"slipway.io/slipway/release/failure"
)

var (
	now       = time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	revisions = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "controllerrevisions"}
)

func template(image string) map[string]any {
	return map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "web"}},
		"spec": map[string]any{"containers": []any{map[string]any{"name": "app", "image": image}}}}
}

// fleet returns a Fleet of four pods, all of them ready.
func fleet(image string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Fleet",
		"metadata": map[string]any{"namespace": "shop", "name": "web", "uid": "u-web", "resourceVersion": "7",
			"generation": int64(1)},
		"spec": map[string]any{"replicas": int64(4), "template": template(image),
			"selector": map[string]any{"matchLabels": map[string]any{"app": "web"}}},
		"status": map[string]any{"observedGeneration": int64(1), "replicas": int64(4), "readyReplicas": int64(4),
			"availableReplicas": int64(4), "updatedReplicas": int64(4), "updateRevision": "web-aaa"}}}
}

var owner = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Fleet", Name: "web", UID: "u-web",
	Controller: new(true)}}

// revision returns a revision as the controller of CloneSets makes it.
func revision(name, image string, number int64) *unstructured.Unstructured {
	r := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "ControllerRevision",
		"data": map[string]any{"spec": map[string]any{"template": template(image)}}, "revision": number}}
	r.SetNamespace("shop")
	r.SetName(name)
	r.SetLabels(map[string]string{"app": "web"})
	r.SetOwnerReferences(owner)
	return r
}

func pod(name, hash string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, OwnerReferences: owner,
		Labels: map[string]string{"app": "web", "pod-template-hash": hash}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady,
			Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now)}}}}
}

// harbour is a cluster in memory with one Fleet.
type harbour struct {
	t       *testing.T
	kube    *fake.Clientset
	objects *dynamicfake.FakeDynamicClient
	acts    *activities.Activities
}

func newHarbour(t *testing.T) *harbour {
	lists := map[schema.GroupVersionResource]string{fleets: "FleetList", revisions: "ControllerRevisionList",
		admission.SchemeGroupVersion.WithResource("mutatingwebhookconfigurations"): "MutatingWebhookConfigurationList"}
	h := &harbour{t: t, kube: fake.NewClientset(pod("web-1", "aaa"), pod("web-2", "aaa"), pod("web-3", "aaa"),
		pod("web-4", "aaa")), objects: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists,
		fleet("x:1"), revision("web-aaa", "x:1", 1))}
	h.objects.PrependReactor("patch", "fleets", h.dryRun)
	h.acts = activities.New(h.kube, h.objects, activities.Options{ListenFor: 100 * time.Millisecond,
		Recorder: recorder{}})
	t.Cleanup(h.acts.Stop)
	return h
}

// dryRun answers a patch that is to change nothing, which the client in memory would carry out.
func (h *harbour) dryRun(action clienttesting.Action) (handled bool, after runtime.Object, err error) {
	asked := action.(clienttesting.PatchActionImpl)
	if len(asked.PatchOptions.DryRun) == 0 {
		return false, nil, nil
	}
	patch, err := jsonpatch.DecodePatch(asked.GetPatch())
	require.NoError(h.t, err)
	kept, err := h.objects.Tracker().Get(fleets, "shop", "web") // the client is locked meanwhile
	require.NoError(h.t, err)
	before, err := kept.(*unstructured.Unstructured).MarshalJSON()
	require.NoError(h.t, err)
	patched, err := patch.Apply(before)
	require.NoError(h.t, err)
	o := &unstructured.Unstructured{}
	return true, o, o.UnmarshalJSON(patched)
}

// recorder replaces the Temporal server.
type recorder struct{}

func (recorder) RecordActivityHeartbeat(context.Context, []byte, ...any) error { return nil }

func (h *harbour) fleet() *unstructured.Unstructured {
	h.t.Helper()
	o, err := h.objects.Resource(fleets).Namespace("shop").Get(h.t.Context(), "web", metav1.GetOptions{})
	require.NoError(h.t, err)
	return o
}

// replaceOne does what the Fleet's controller does when its template is new and the partition keeps three pods.
func (h *harbour) replaceOne() {
	h.t.Helper()
	o, ctx := h.fleet(), h.t.Context()
	containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	partition, _, _ := unstructured.NestedString(o.Object, "spec", "updateStrategy", "partition")
	current, _, _ := unstructured.NestedString(o.Object, "status", "updateRevision")
	if containers[0].(map[string]any)["image"] != "x:2" || partition != "75%" || current != "web-aaa" {
		return
	}
	_, err := h.objects.Resource(revisions).Namespace("shop").Create(ctx, revision("web-bbb", "x:2", 2),
		metav1.CreateOptions{})
	require.NoError(h.t, err)
	require.NoError(h.t, h.kube.CoreV1().Pods("shop").Delete(ctx, "web-4", metav1.DeleteOptions{}))
	_, err = h.kube.CoreV1().Pods("shop").Create(ctx, pod("web-5", "bbb"), metav1.CreateOptions{})
	require.NoError(h.t, err)
	require.NoError(h.t, unstructured.SetNestedField(o.Object, "web-bbb", "status", "updateRevision"))
	require.NoError(h.t, unstructured.SetNestedField(o.Object, int64(1), "status", "updatedReplicas"))
	_, err = h.objects.Resource(fleets).Namespace("shop").UpdateStatus(ctx, o, metav1.UpdateOptions{})
	require.NoError(h.t, err)
}

// call runs an activity attempt after attempt, as Temporal does; the Fleet's controller acts between them.
func (h *harbour) call(name string, req, result any) {
	h.t.Helper()
	var err error
	for range 20 {
		var suite testsuite.WorkflowTestSuite
		env := suite.NewTestActivityEnvironment()
		for name, f := range map[string]any{"begin": h.acts.Begin, "move": h.acts.Move} {
			env.RegisterActivityWithOptions(f, activity.RegisterOptions{Name: name})
		}
		value, failed := env.ExecuteActivity(name, req)
		if err = failed; err == nil {
			require.NoError(h.t, value.Get(result))
			return
		}
		var app *temporal.ApplicationError
		require.ErrorAs(h.t, err, &app)
		require.Equal(h.t, string(failure.NotReady), app.Type(), "%v", errors.Unwrap(err))
		h.replaceOne()
	}
	h.t.Fatalf("%s did not end: %v", name, err)
}
