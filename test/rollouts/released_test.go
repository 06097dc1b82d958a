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

// size is the number of replicas of the workloads, as in the example status of the API specification.
const size = 10

// appliedDocument is a document of the API specification that is applied to a cluster.
type appliedDocument struct {
	cluster
	t      *testing.T
	engine *harness.Engine
	object *unstructured.Unstructured
	kind   harness.Kind
	// workloadName is the name of the workload.
	workloadName string
	// version is the API version of the document.
	version schema.GroupVersionResource
	// part is the status field of the style: canaryStatus or blueGreenStatus.
	part string
}

// document reads a file of test/documents and gives it a separate namespace, which the engine and its guard serve.
func document(t *testing.T, e *harness.Engine, g *harness.Guard, file string) *appliedDocument {
	t.Helper()
	own := e.ForTest(t)
	c := cluster{Stack: own.Stack, namespace: own.Apps, objects: own.Dynamic(t), warnings: &warnings{}}
	c.startConverting(t)
	g.EnforceOn(t, own.Apps)
	s := &appliedDocument{cluster: c, t: t, engine: own, object: c.parse(t, read(t, file)), version: v1beta1.Resource,
		part: "canaryStatus", kind: harness.Deployment}
	path := []string{"spec", "workloadRef"}
	if strings.HasSuffix(s.object.GetAPIVersion(), "v1alpha1") {
		s.version, path = v1alpha1.Resource, []string{"spec", "objectRef", "workloadRef"}
	}
	ref, _, err := unstructured.NestedStringMap(s.object.Object, path...)
	require.NoError(t, err)
	if s.workloadName = ref["name"]; ref["kind"] == harness.StatefulSet.Kind {
		s.kind = harness.StatefulSet
	}
	if _, blueGreen, _ := unstructured.NestedMap(s.object.Object, "spec", "strategy", "blueGreen"); blueGreen {
		s.part = "blueGreenStatus"
	}
	return s
}

// apply creates the Rollout with strict validation, like kubectl apply.
func (s *appliedDocument) apply() {
	s.t.Helper()
	_, err := s.as("owner", s.version).Create(testContext(s.t), s.object,
		metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	require.NoError(s.t, err)
	s.t.Cleanup(func() {
		_ = s.as("owner", v1beta1.Resource).Delete(context.Background(), s.object.GetName(), metav1.DeleteOptions{})
	})
}

// workload creates the workload and waits until its pods are ready.
func (s *appliedDocument) workload() {
	s.t.Helper()
	s.engine.Subject(s.kind, s.workloadName, func(o map[string]any) {
		require.NoError(s.t, unstructured.SetNestedField(o, int64(size), "spec", "replicas"))
	})
}

// steps returns the steps of the document.
func (s *appliedDocument) steps() []any {
	strategy, _, err := unstructured.NestedMap(s.object.Object, "spec", "strategy")
	require.NoError(s.t, err)
	for _, part := range []string{"canary", "blueGreen"} {
		if of, is := strategy[part].(map[string]any); is {
			return of["steps"].([]any)
		}
	}
	return nil
}

// as returns a client for the Rollouts in a version, with the identity of the user.
func (s *appliedDocument) as(user string, version schema.GroupVersionResource) dynamic.ResourceInterface {
	s.t.Helper()
	client, err := dynamic.NewForConfig(s.Impersonate(user))
	require.NoError(s.t, err)
	return client.Resource(version).Namespace(s.namespace)
}

// statusIn returns the typed status of an object.
func statusIn(t *testing.T, o *unstructured.Unstructured) (status v1beta1.RolloutStatus) {
	t.Helper()
	raw, err := json.Marshal(o.Object["status"])
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &status))
	return status
}

// wait waits until the status satisfies is and returns the object in the version of the document.
func (s *appliedDocument) wait(what string, is func(v1beta1.RolloutStatus) bool) *unstructured.Unstructured {
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

// poll reports whether is became true within harness.Patience.
func poll(is func() bool) bool {
	for end := time.Now().Add(harness.Patience); time.Now().Before(end); time.Sleep(harness.Tick) {
		if is() {
			return true
		}
	}
	return is()
}

func (s *appliedDocument) healthy() *unstructured.Unstructured {
	s.t.Helper()
	return s.wait("Healthy", func(st v1beta1.RolloutStatus) bool { return st.Phase == v1beta1.PhaseHealthy })
}

// commonIn returns the status fields that both styles have.
func commonIn(s v1beta1.RolloutStatus) v1beta1.CommonStatus {
	switch {
	case s.BlueGreenStatus != nil:
		return s.BlueGreenStatus.CommonStatus
	case s.CanaryStatus != nil:
		return s.CanaryStatus.CommonStatus
	}
	return v1beta1.CommonStatus{}
}

// setImage changes the image of the workload, which starts a release.
func (s *appliedDocument) setImage() {
	s.t.Helper()
	require.True(s.t, poll(func() bool {
		return s.engine.Object(s.kind, s.workloadName).GetLabels()["slipway.io/gate"] == s.object.GetName()
	}), "the workload never gets the label slipway.io/gate")
	client, err := dynamic.NewForConfig(s.Impersonate("alice"))
	require.NoError(s.t, err)
	patch := fmt.Sprintf(`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":%q}]`,
		harness.NewImage(s.workloadName))
	_, err = client.Resource(s.kind.GVR).Namespace(s.namespace).Patch(testContext(s.t), s.workloadName,
		types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(s.t, err)
}

// approve sends the patch of `kubectl kruise rollout approve` in the version of the document.
func (s *appliedDocument) approve() {
	s.t.Helper()
	patch := fmt.Sprintf(`{"status":{%q:{"currentStepState":"StepReady"}}}`, s.part)
	_, err := s.as("approver", s.version).Patch(testContext(s.t), s.object.GetName(), types.MergePatchType,
		[]byte(patch), metav1.PatchOptions{}, "status")
	require.NoError(s.t, err)
	s.wait("approved", func(st v1beta1.RolloutStatus) bool { return commonIn(st).CurrentStepState != "StepPaused" })
}

// newPods returns the number of pods of the new version, and the labels of one of them.
func (s *appliedDocument) newPods() (count int, labels map[string]string) {
	s.t.Helper()
	pods, err := s.engine.Kube.CoreV1().Pods(s.namespace).List(testContext(s.t),
		metav1.ListOptions{LabelSelector: "app=" + s.workloadName})
	require.NoError(s.t, err)
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil && p.Spec.Containers[0].Image == harness.NewImage(s.workloadName) {
			count++
			labels = p.Labels
		}
	}
	return count, labels
}

// both reads the object in both versions, at the same resourceVersion.
func (s *appliedDocument) both() (beta, alpha *unstructured.Unstructured) {
	s.t.Helper()
	require.True(s.t, poll(func() bool {
		var err error
		beta, err = s.as("reader", v1beta1.Resource).Get(testContext(s.t), s.object.GetName(), metav1.GetOptions{})
		require.NoError(s.t, err)
		alpha, err = s.as("reader", v1alpha1.Resource).Get(testContext(s.t), s.object.GetName(), metav1.GetOptions{})
		require.NoError(s.t, err)
		return beta.GetResourceVersion() == alpha.GetResourceVersion()
	}), "the object changes all the time")
	return beta, alpha
}

// waitObserved waits until the status has the current generation of the workload: while a step waits, the engine writes
// nothing else.
func (s *appliedDocument) waitObserved() {
	s.t.Helper()
	s.wait("up to date with the generation of its workload", func(st v1beta1.RolloutStatus) bool {
		return commonIn(st).ObservedWorkloadGeneration == s.engine.Object(s.kind, s.workloadName).GetGeneration()
	})
}

// updateInOtherVersion reads the object in the other version and writes it back with a label; spec and status must not
// change.
func (s *appliedDocument) updateInOtherVersion(label string) {
	s.t.Helper()
	s.waitObserved()
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
	require.Equal(s.t, before.Object["spec"], after.Object["spec"], "the label changes nothing else")
	require.Equal(s.t, before.GetGeneration(), after.GetGeneration())
	require.Equal(s.t, before.Object["status"], after.Object["status"])
	require.Equal(s.t, label, after.GetLabels()["read-at"])
}

// requireSame requires both versions of an object to have the same content.
func requireSame(t *testing.T, beta, alpha *unstructured.Unstructured) {
	t.Helper()
	require.Equal(t, beta.Object["status"], alpha.Object["status"], "both versions have the same status")
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
		require.Equal(t, at(beta, "spec", "strategy", part, field), at(alpha, "spec", "strategy", "canary", field),
			field)
	}
	if ref := at(beta, "spec", "strategy", part, "trafficRoutingRef"); ref != nil {
		require.Equal(t, ref, alpha.GetAnnotations()["rollouts.kruise.io/trafficrouting"])
	}
	newer, older := at(beta, "spec", "strategy", part, "steps").([]any),
		at(alpha, "spec", "strategy", "canary", "steps").([]any)
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
			require.Equal(t, b["traffic"], b["replicas"], "step %d has the same percentage of pods and requests", i+1)
		}
	}
}

// route creates the Service and, for each provider, the object that routes to it.
func (s *appliedDocument) route(name string, providers ...harness.Provider) {
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

// routing applies the TrafficRouting of the specification.
func (s *appliedDocument) routing() {
	s.t.Helper()
	_, err := s.Dynamic(s.t).Resource(trafficRoutings).Namespace(s.namespace).Create(testContext(s.t),
		s.parse(s.t, read(s.t, "trafficrouting")),
		metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	require.NoError(s.t, err)
}

// routes returns the specs and annotations of all Services and routing objects in the namespace.
func (s *appliedDocument) routes() map[string]any {
	s.t.Helper()
	all := map[string]any{}
	for _, resource := range []schema.GroupVersionResource{{Version: "v1", Resource: "services"},
		{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"},
		harness.HTTPRoutes, harness.VirtualServices} {
		list, err := s.Dynamic(s.t).Resource(resource).Namespace(s.namespace).List(testContext(s.t),
			metav1.ListOptions{})
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

var trafficRoutings = schema.GroupVersionResource{Group: v1alpha1.GroupVersion.Group,
	Version: v1alpha1.GroupVersion.Version, Resource: "trafficroutings"}
