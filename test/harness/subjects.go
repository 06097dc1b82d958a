package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/dynamic"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/test/observer"
)

// Kind is a kind of workload that a rollout can release.
type Kind struct {
	// Title is unique and is part of subtest names.
	Title string
	GVR   schema.GroupVersionResource
	Kind  string
}

// The six kinds of workload.
var (
	Deployment = Kind{"Deployment", schema.GroupVersionResource{Group: "apps", Version: "v1",
		Resource: "deployments"}, "Deployment"}
	StatefulSet = Kind{"StatefulSet", schema.GroupVersionResource{Group: "apps", Version: "v1",
		Resource: "statefulsets"}, "StatefulSet"}
	DaemonSet = Kind{"DaemonSet", schema.GroupVersionResource{Group: "apps", Version: "v1",
		Resource: "daemonsets"}, "DaemonSet"}
	CloneSet = Kind{"CloneSet", schema.GroupVersionResource{Group: "apps.kruise.io", Version: "v1alpha1",
		Resource: "clonesets"}, "CloneSet"}
	AdvancedStatefulSet = Kind{"AdvancedStatefulSet",
		schema.GroupVersionResource{Group: "apps.kruise.io", Version: "v1beta1", Resource: "statefulsets"},
		"StatefulSet"}
	AdvancedDaemonSet = Kind{"AdvancedDaemonSet",
		schema.GroupVersionResource{Group: "apps.kruise.io", Version: "v1alpha1", Resource: "daemonsets"}, "DaemonSet"}
)

// Kinds are all kinds of workload.
var Kinds = []Kind{Deployment, StatefulSet, DaemonSet, CloneSet, AdvancedStatefulSet, AdvancedDaemonSet}

// Custom reports whether the kind is not built into Kubernetes: its definition and its controller must be installed
// first (test/kruise).
func (k Kind) Custom() bool { return k.GVR.Group != "apps" }

// Ref returns the workloadRef of a workload of that name.
func (k Kind) Ref(name string) catalog.WorkloadRef {
	return catalog.WorkloadRef{APIVersion: k.GVR.GroupVersion().String(), Kind: k.Kind, Name: name}
}

// ObserverName returns the name by which the observer identifies the workload.
func (k Kind) ObserverName(name string) observer.Name {
	if k.Custom() {
		return observer.Name{Kind: k.Kind + "." + k.GVR.Group, Name: name}
	}
	return observer.Name{Kind: k.Kind, Name: name}
}

// SubjectSize is the size of every workload that Subject makes: a DaemonSet has a pod on each of the stack's four
// nodes.
const SubjectSize = 4

// StableImage returns the image that the container "app" of a Subject runs at first.
func StableImage(name string) string { return "registry.test/" + name + ":v1" }

// NewImage returns the image that a test releases.
func NewImage(name string) string { return "registry.test/" + name + ":v2" }

// Dynamic returns a client for objects of any kind.
func (s Stack) Dynamic(t testing.TB) dynamic.Interface {
	t.Helper()
	d, err := dynamic.NewForConfig(s.REST)
	require.NoError(t, err)
	return d
}

// Subject creates a workload of a kind with SubjectSize pods and waits until they are ready. maxUnavailable is 1, and
// so is maxSurge where the kind supports it. change, if not nil, may alter the object first.
func (e *Engine) Subject(kind Kind, name string, change func(object map[string]any)) {
	e.t.Helper()
	object := e.SubjectObject(kind, name)
	if change != nil {
		change(object.Object)
	}
	_, err := e.Dynamic(e.t).Resource(kind.GVR).Namespace(e.Apps).Create(context.Background(), object,
		metav1.CreateOptions{})
	require.NoError(e.t, err)
	size := SubjectSize
	if n, found, _ := unstructured.NestedInt64(object.Object, "spec", "replicas"); found {
		size = int(n)
	}
	e.WaitReadyPods(name, size)
}

// SubjectObject returns the object that Subject creates.
func (e *Engine) SubjectObject(kind Kind, name string) *unstructured.Unstructured {
	pods, selector := template(name, StableImage(name))
	template, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&pods)
	require.NoError(e.t, err)
	unstructured.RemoveNestedField(template, "metadata", "creationTimestamp")
	labels, err := runtime.DefaultUnstructuredConverter.ToUnstructured(selector)
	require.NoError(e.t, err)
	spec := map[string]any{"selector": labels, "template": template}
	if kind.Kind != "DaemonSet" {
		spec["replicas"] = int64(SubjectSize)
	}
	if kind.Kind == "StatefulSet" {
		spec["serviceName"] = name
	}
	rolling := map[string]any{"maxUnavailable": int64(1)}
	switch kind {
	case Deployment:
		rolling["maxSurge"] = int64(1)
		spec["strategy"] = map[string]any{"type": string(appsv1.RollingUpdateDeploymentStrategyType),
			"rollingUpdate": rolling}
	case StatefulSet:
		delete(rolling, "maxUnavailable") // the API server drops it unless its feature gate is on
		spec["updateStrategy"] = map[string]any{"type": "RollingUpdate"}
	case DaemonSet, AdvancedDaemonSet, AdvancedStatefulSet:
		spec["updateStrategy"] = map[string]any{"type": "RollingUpdate", "rollingUpdate": rolling}
	case CloneSet:
		spec["updateStrategy"] = map[string]any{"type": "ReCreate", "maxUnavailable": int64(1), "maxSurge": int64(1)}
	}
	ref := kind.Ref(name)
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": ref.APIVersion, "kind": ref.Kind,
		"metadata": map[string]any{"name": name, "annotations": map[string]any{"team": "shop"}}, "spec": spec}}
}

// DeploymentStrategy returns a change for Subject that sets a Deployment's maxUnavailable and maxSurge.
func DeploymentStrategy(unavailable, surge intstr.IntOrString) func(map[string]any) {
	value := func(v intstr.IntOrString) any {
		if v.Type == intstr.String {
			return v.StrVal
		}
		return int64(v.IntVal)
	}
	return func(object map[string]any) {
		_ = unstructured.SetNestedMap(object, map[string]any{"type": "RollingUpdate",
			"rollingUpdate": map[string]any{"maxUnavailable": value(unavailable), "maxSurge": value(surge)}}, "spec",
			"strategy")
	}
}

// Object reads a workload of Subject.
func (e *Engine) Object(kind Kind, name string) *unstructured.Unstructured {
	e.t.Helper()
	object, err := e.Dynamic(e.t).Resource(kind.GVR).Namespace(e.Apps).Get(context.Background(), name,
		metav1.GetOptions{})
	require.NoError(e.t, err)
	return object
}

// PatchObject changes a workload of Subject with a JSON merge patch, as another client would.
func (e *Engine) PatchObject(kind Kind, name, patch string) {
	e.t.Helper()
	_, err := e.Dynamic(e.t).Resource(kind.GVR).Namespace(e.Apps).Patch(context.Background(), name,
		types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(e.t, err)
}

// Scale sets the size of a workload of Subject.
func (e *Engine) Scale(kind Kind, name string, replicas int) {
	e.t.Helper()
	e.PatchObject(kind, name, fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
}

// SetImage changes the image of a workload's container, as another client would.
func (e *Engine) SetImage(kind Kind, name, image string) {
	e.t.Helper()
	patch := fmt.Sprintf(`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":%q}]`, image)
	_, err := e.Dynamic(e.t).Resource(kind.GVR).Namespace(e.Apps).Patch(context.Background(), name, types.JSONPatchType,
		[]byte(patch), metav1.PatchOptions{})
	require.NoError(e.t, err)
}

// Autoscaler creates a HorizontalPodAutoscaler for a workload of Subject.
func (e *Engine) Autoscaler(kind Kind, name string) {
	e.t.Helper()
	ref, least := kind.Ref(name), int32(2)
	_, err := e.Kube.AutoscalingV2().HorizontalPodAutoscalers(e.Apps).Create(context.Background(),
		&autoscalingv2.HorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MinReplicas: &least, MaxReplicas: 8,
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: ref.APIVersion, Kind: ref.Kind,
					Name: ref.Name}},
		}, metav1.CreateOptions{})
	require.NoError(e.t, err)
}

// Kubectl runs kubectl against the test's cluster; the command must succeed.
func (e *Engine) Kubectl(args ...string) string {
	e.t.Helper()
	out, err := exec.Command(e.Binary("kubectl"), append(args, "--kubeconfig", e.Kubeconfig)...).CombinedOutput()
	require.NoError(e.t, err, "kubectl %v: %s", args, out)
	return string(out)
}

// TryKubectl returns the output of kubectl, whether it succeeds or not.
func (e *Engine) TryKubectl(args ...string) string {
	out, _ := exec.Command(e.Binary("kubectl"), append(args, "--kubeconfig", e.Kubeconfig)...).CombinedOutput()
	return string(out)
}

// Replace replaces an object with kubectl, as a client that writes whole objects does, and again if its controller has
// written while kubectl read and wrote.
func (e *Engine) Replace(o *unstructured.Unstructured) {
	e.t.Helper()
	raw, err := o.MarshalJSON()
	require.NoError(e.t, err)
	file := filepath.Join(e.t.TempDir(), "object.json")
	require.NoError(e.t, os.WriteFile(file, raw, 0o600))
	require.Eventually(e.t, func() bool {
		out := e.TryKubectl("replace", "-f", file)
		require.Regexp(e.t, "replaced|Conflict", out)
		return !strings.Contains(out, "Conflict")
	}, Patience, Tick)
}

// ReadObject reads an object in the namespace of the workloads.
func (e *Engine) ReadObject(gvr schema.GroupVersionResource, name string) *unstructured.Unstructured {
	e.t.Helper()
	object, err := e.Dynamic(e.t).Resource(gvr).Namespace(e.Apps).Get(context.Background(), name, metav1.GetOptions{})
	require.NoError(e.t, err)
	return object
}

// MakePodsReady sets the pods of a workload that run an image to ready, as if the cause of their failure had
// disappeared. The local stack's stage for a bad image does not change pods that are ready.
func (e *Engine) MakePodsReady(name, image string) {
	e.t.Helper()
	pods, err := e.Kube.CoreV1().Pods(e.Apps).List(context.Background(),
		metav1.ListOptions{LabelSelector: "app=" + name})
	require.NoError(e.t, err)
	for i, pod := range pods.Items {
		if pod.Spec.Containers[0].Image != image {
			continue
		}
		ip := fmt.Sprintf("10.99.0.%d", i+1)
		patch := `{"status":{"phase":"Running","podIP":"` + ip + `","podIPs":[{"ip":"` + ip +
			`"}],"conditions":[{"type":"Ready","status":"True","reason":null,"message":null},{"type":"ContainersReady","status":"True","reason":null,"message":null}],` +
			`"containerStatuses":[{"name":"app","ready":true,"started":true,"image":"` + image + `","imageID":"` +
			image + `","restartCount":0,"state":{"running":{"startedAt":"2026-01-01T00:00:00Z"}}}]}}`
		_, err := e.Kube.CoreV1().Pods(e.Apps).Patch(context.Background(), pod.Name, types.StrategicMergePatchType,
			[]byte(patch), metav1.PatchOptions{}, "status")
		require.NoError(e.t, err)
	}
}
