package rollouts_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	"slipway.io/slipway/release/kruise/v1alpha1"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/test/routes"
)

// size is that of the workloads here, as in the status that the API specification prints.
const size = 10

// specimen is a document of the API specification, applied to a cluster.
type specimen struct {
	cluster
	t      *testing.T
	engine *harness.Engine
	object *unstructured.Unstructured
	kind   harness.Kind
	// wl is the workload's name, version that of the document, part the style's own part of the status.
	wl      string
	version schema.GroupVersionResource
	part    string
}

// document reads a file of test/documents, in a namespace of its own that one engine and its guard look after.
func document(t *testing.T, e *harness.Engine, g *harness.Guard, file string) *specimen {
	t.Helper()
	own := e.For(t)
	c := cluster{Stack: own.Stack, namespace: own.Apps, objects: own.Dynamic(t), warnings: &warnings{}}
	c.converting(t)
	g.Over(t, own.Apps)
	s := &specimen{cluster: c, t: t, engine: own, object: c.parse(t, read(t, file)), version: v1beta1.Resource, part: "canaryStatus", kind: harness.Deployment}
	path := []string{"spec", "workloadRef"}
	if strings.HasSuffix(s.object.GetAPIVersion(), "v1alpha1") {
		s.version, path = v1alpha1.Resource, []string{"spec", "objectRef", "workloadRef"}
	}
	ref, _, err := unstructured.NestedStringMap(s.object.Object, path...)
	require.NoError(t, err)
	if s.wl = ref["name"]; ref["kind"] == harness.StatefulSet.Kind {
		s.kind = harness.StatefulSet
	}
	if _, blueGreen, _ := unstructured.NestedMap(s.object.Object, "spec", "strategy", "blueGreen"); blueGreen {
		s.part = "blueGreenStatus"
	}
	return s
}

// apply creates the Rollout, as kubectl apply does.
func (s *specimen) apply() {
	s.t.Helper()
	_, err := s.as("owner", s.version).Create(testContext(s.t), s.object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	require.NoError(s.t, err)
	s.t.Cleanup(func() {
		_ = s.as("owner", v1beta1.Resource).Delete(context.Background(), s.object.GetName(), metav1.DeleteOptions{})
	})
}

// workload creates the workload, and returns when its pods are ready.
func (s *specimen) workload() {
	s.t.Helper()
	s.engine.Subject(s.kind, s.wl, func(o map[string]any) {
		require.NoError(s.t, unstructured.SetNestedField(o, int64(size), "spec", "replicas"))
	})
}

// steps are those that the document asks for.
func (s *specimen) steps() []any {
	strategy, _, err := unstructured.NestedMap(s.object.Object, "spec", "strategy")
	require.NoError(s.t, err)
	for _, part := range []string{"canary", "blueGreen"} {
		if of, is := strategy[part].(map[string]any); is {
			return of["steps"].([]any)
		}
	}
	return nil
}

// as is where the Rollouts are, as somebody reaches them in a version.
func (s *specimen) as(user string, version schema.GroupVersionResource) dynamic.ResourceInterface {
	s.t.Helper()
	client, err := dynamic.NewForConfig(s.As(user))
	require.NoError(s.t, err)
	return client.Resource(version).Namespace(s.namespace)
}

// statusIn is the status of an object, typed.
func statusIn(t *testing.T, o *unstructured.Unstructured) (status v1beta1.RolloutStatus) {
	t.Helper()
	raw, err := json.Marshal(o.Object["status"])
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &status))
	return status
}

// wait returns the object, as its own version says it, when it is so.
func (s *specimen) wait(what string, is func(v1beta1.RolloutStatus) bool) *unstructured.Unstructured {
	s.t.Helper()
	var last *unstructured.Unstructured
	if !poll(func() bool {
		found, err := s.as("reader", s.version).Get(context.Background(), s.object.GetName(), metav1.GetOptions{})
		if err != nil {
			return false
		}
		last = found
		return is(statusIn(s.t, last))
	}) {
		raw, _ := json.MarshalIndent(last.Object["status"], "", " ")
		s.t.Fatalf("%s was never %s: %s\n%s", s.object.GetName(), what, raw, s.engine.Processes[0].Output())
	}
	return last
}

// poll says whether something came to be.
func poll(is func() bool) bool {
	for end := time.Now().Add(harness.Patience); time.Now().Before(end); time.Sleep(harness.Tick) {
		if is() {
			return true
		}
	}
	return is()
}

func (s *specimen) healthy() *unstructured.Unstructured {
	s.t.Helper()
	return s.wait("Healthy", func(st v1beta1.RolloutStatus) bool { return st.Phase == v1beta1.PhaseHealthy })
}

// commonIn is what both styles tell.
func commonIn(s v1beta1.RolloutStatus) v1beta1.CommonStatus {
	switch {
	case s.BlueGreenStatus != nil:
		return s.BlueGreenStatus.CommonStatus
	case s.CanaryStatus != nil:
		return s.CanaryStatus.CommonStatus
	}
	return v1beta1.CommonStatus{}
}

// setImage is what begins a release.
func (s *specimen) setImage() {
	s.t.Helper()
	require.True(s.t, poll(func() bool { return s.engine.Object(s.kind, s.wl).GetLabels()["slipway.io/gate"] == s.object.GetName() }), "it is never marked")
	client, err := dynamic.NewForConfig(s.As("alice"))
	require.NoError(s.t, err)
	patch := fmt.Sprintf(`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":%q}]`, harness.NewImage(s.wl))
	_, err = client.Resource(s.kind.GVR).Namespace(s.namespace).Patch(testContext(s.t), s.wl, types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(s.t, err)
}

// approve is `kubectl kruise rollout approve` of the document's version.
func (s *specimen) approve() {
	s.t.Helper()
	patch := fmt.Sprintf(`{"status":{%q:{"currentStepState":"StepReady"}}}`, s.part)
	_, err := s.as("approver", s.version).Patch(testContext(s.t), s.object.GetName(), types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	require.NoError(s.t, err)
	s.wait("approved", func(st v1beta1.RolloutStatus) bool { return commonIn(st).CurrentStepState != "StepPaused" })
}

// newPods is how many pods of the new version there are, and the labels of one.
func (s *specimen) newPods() (count int, labels map[string]string) {
	s.t.Helper()
	pods, err := s.engine.Kube.CoreV1().Pods(s.namespace).List(testContext(s.t), metav1.ListOptions{LabelSelector: "app=" + s.wl})
	require.NoError(s.t, err)
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil && p.Spec.Containers[0].Image == harness.NewImage(s.wl) {
			count++
			labels = p.Labels
		}
	}
	return count, labels
}

// both reads the object in both versions, as it is at one moment.
func (s *specimen) both() (beta, alpha *unstructured.Unstructured) {
	s.t.Helper()
	require.True(s.t, poll(func() bool {
		var err error
		beta, err = s.as("reader", v1beta1.Resource).Get(testContext(s.t), s.object.GetName(), metav1.GetOptions{})
		require.NoError(s.t, err)
		alpha, err = s.as("reader", v1alpha1.Resource).Get(testContext(s.t), s.object.GetName(), metav1.GetOptions{})
		require.NoError(s.t, err)
		return beta.GetResourceVersion() == alpha.GetResourceVersion()
	}), "the object never rests")
	return beta, alpha
}

// told returns when the object tells of the workload as it is: while a step rests that is all that the engine still writes.
func (s *specimen) told() {
	s.t.Helper()
	s.wait("told of its workload", func(st v1beta1.RolloutStatus) bool {
		return commonIn(st).ObservedWorkloadGeneration == s.engine.Object(s.kind, s.wl).GetGeneration()
	})
}

// otherwise reads the object as the other version, and writes it back with a label: nothing of the release may change.
func (s *specimen) otherwise(label string) {
	s.t.Helper()
	s.told()
	before, alpha := s.both()
	requireSame(s.t, before, alpha)
	other := v1alpha1.Resource
	if s.version == other {
		other = v1beta1.Resource
	}
	require.NoError(s.t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		found, err := s.as("old-pipeline", other).Get(testContext(s.t), s.object.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		labels := found.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels["read-at"] = label
		found.SetLabels(labels)
		_, err = s.as("old-pipeline", other).Update(testContext(s.t), found, metav1.UpdateOptions{})
		return err
	}))
	after, alphaAfter := s.both()
	requireSame(s.t, after, alphaAfter)
	require.Equal(s.t, before.Object["spec"], after.Object["spec"], "a label is a label")
	require.Equal(s.t, before.GetGeneration(), after.GetGeneration())
	require.Equal(s.t, before.Object["status"], after.Object["status"])
	require.Equal(s.t, label, after.GetLabels()["read-at"])
}

// requireSame fails unless an object says the same in both versions.
func requireSame(t *testing.T, beta, alpha *unstructured.Unstructured) {
	t.Helper()
	require.Equal(t, beta.Object["status"], alpha.Object["status"], "the status is one")
	at := func(o *unstructured.Unstructured, path ...string) any {
		value, _, err := unstructured.NestedFieldNoCopy(o.Object, path...)
		require.NoError(t, err)
		return value
	}
	require.Equal(t, at(beta, "spec", "workloadRef"), at(alpha, "spec", "objectRef", "workloadRef"))
	part := "canary"
	if at(beta, "spec", "strategy", "blueGreen") != nil {
		part = "blueGreen"
	}
	for _, field := range []string{"trafficRoutings", "patchPodTemplateMetadata", "failureThreshold"} {
		require.Equal(t, at(beta, "spec", "strategy", part, field), at(alpha, "spec", "strategy", "canary", field), field)
	}
	if ref := at(beta, "spec", "strategy", part, "trafficRoutingRef"); ref != nil {
		require.Equal(t, ref, alpha.GetAnnotations()["rollouts.kruise.io/trafficrouting"])
	}
	newer, older := at(beta, "spec", "strategy", part, "steps").([]any), at(alpha, "spec", "strategy", "canary", "steps").([]any)
	require.Len(t, older, len(newer))
	for i := range newer {
		b, a := newer[i].(map[string]any), older[i].(map[string]any)
		for _, field := range []string{"pause", "matches"} {
			require.Equal(t, b[field], a[field], "%s of step %d", field, i+1)
		}
		if weight, there := a["weight"]; there {
			require.Equal(t, fmt.Sprintf("%d%%", weight), b["traffic"], "step %d", i+1)
		}
		if replicas, there := a["replicas"]; there {
			require.Equal(t, replicas, b["replicas"], "step %d", i+1)
		} else {
			require.Equal(t, b["traffic"], b["replicas"], "step %d has as many pods as requests", i+1)
		}
	}
}

// route makes what routes to the Service of a name.
func (s *specimen) route(name string, providers ...harness.Provider) {
	s.t.Helper()
	s.engine.Service(name)
	for _, p := range providers {
		switch p {
		case harness.Nginx:
			s.engine.Ingress(name)
		case harness.Gateway:
			routes.Install(s.t, s.REST)
			s.engine.HTTPRoute(name)
		case harness.Istio:
			routes.Install(s.t, s.REST)
			s.engine.VirtualService(name)
		}
	}
}

// routing applies the TrafficRouting that the specification prints.
func (s *specimen) routing() {
	s.t.Helper()
	_, err := s.Dynamic(s.t).Resource(trafficRoutings).Namespace(s.namespace).Create(testContext(s.t), s.parse(s.t, read(s.t, "trafficrouting")),
		metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	require.NoError(s.t, err)
}

// routes are what routes in the namespace, as its owner has written it.
func (s *specimen) routes() map[string]any {
	s.t.Helper()
	all := map[string]any{}
	for _, resource := range []schema.GroupVersionResource{{Version: "v1", Resource: "services"}, {Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"},
		harness.HTTPRoutes, harness.VirtualServices} {
		list, err := s.Dynamic(s.t).Resource(resource).Namespace(s.namespace).List(testContext(s.t), metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			continue // the cluster has no such kind
		}
		require.NoError(s.t, err)
		for _, o := range list.Items {
			all[resource.Resource+"/"+o.GetName()] = []any{o.Object["spec"], o.GetAnnotations()}
		}
	}
	return all
}

var trafficRoutings = schema.GroupVersionResource{Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Resource: "trafficroutings"}
