package workload_test

import (
	"encoding/json"
	"strings"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/test/observer"
)

// deployment creates a Deployment with its pods ready.
func (b *bench) deployment(name string, replicas int32, change func(*appsv1.Deployment)) *appsv1.Deployment {
	b.t.Helper()
	template, selector := podTemplate(name)
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: selector, Template: template}}
	if change != nil {
		change(d)
	}
	_, err := b.kube.AppsV1().Deployments(b.namespace).Create(b.t.Context(), d, metav1.CreateOptions{})
	require.NoError(b.t, err)
	return d
}

func (b *bench) statefulSet(name string, replicas int32, change func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	b.t.Helper()
	template, selector := podTemplate(name)
	s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{Replicas: &replicas, Selector: selector, Template: template, ServiceName: name}}
	if change != nil {
		change(s)
	}
	_, err := b.kube.AppsV1().StatefulSets(b.namespace).Create(b.t.Context(), s, metav1.CreateOptions{})
	require.NoError(b.t, err)
	return s
}

func (b *bench) daemonSet(name string, change func(*appsv1.DaemonSet)) *appsv1.DaemonSet {
	b.t.Helper()
	template, selector := podTemplate(name)
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template}}
	if change != nil {
		change(d)
	}
	_, err := b.kube.AppsV1().DaemonSets(b.namespace).Create(b.t.Context(), d, metav1.CreateOptions{})
	require.NoError(b.t, err)
	return d
}

func podTemplate(name string) (corev1.PodTemplateSpec, *metav1.LabelSelector) {
	labels := map[string]string{"app": name}
	grace := int64(5)
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{Name: "app", Image: "x:good"}}},
	}, &metav1.LabelSelector{MatchLabels: labels}
}

// settled waits until a workload has exactly this number of pods, all ready, and its status shows it.
func (b *bench) settled(name observer.Name, pods int) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		list := b.pods(name.Name)
		for _, p := range list {
			if !isReady(p) || p.DeletionTimestamp != nil {
				return false
			}
		}
		return len(list) == pods && b.statusReady(name) == int32(pods)
	}, patience, tick, "%s never had %d ready pods", name, pods)
}

func (b *bench) statusReady(name observer.Name) int32 {
	b.t.Helper()
	switch name.Kind {
	case "Deployment":
		d, err := b.kube.AppsV1().Deployments(b.namespace).Get(b.t.Context(), name.Name, metav1.GetOptions{})
		require.NoError(b.t, err)
		if d.Status.Replicas > d.Status.AvailableReplicas { // the status still counts a deleted pod
			return -1
		}
		return lagging(d.Generation, d.Status.ObservedGeneration, d.Status.AvailableReplicas)
	case "StatefulSet":
		s, err := b.kube.AppsV1().StatefulSets(b.namespace).Get(b.t.Context(), name.Name, metav1.GetOptions{})
		require.NoError(b.t, err)
		return lagging(s.Generation, s.Status.ObservedGeneration, s.Status.AvailableReplicas)
	default:
		d, err := b.kube.AppsV1().DaemonSets(b.namespace).Get(b.t.Context(), name.Name, metav1.GetOptions{})
		require.NoError(b.t, err)
		return lagging(d.Generation, d.Status.ObservedGeneration, d.Status.NumberAvailable)
	}
}

func lagging(generation, observed int64, n int32) int32 {
	if observed < generation {
		return -1
	}
	return n
}

func (b *bench) pods(name string) []corev1.Pod {
	b.t.Helper()
	list, err := b.kube.CoreV1().Pods(b.namespace).List(b.t.Context(), metav1.ListOptions{LabelSelector: "app=" + name})
	require.NoError(b.t, err)
	return list.Items
}

func isReady(p corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// workloadState is the state of a workload in the API server: the relevant metadata, and its spec as JSON without the
// size and the restart marker.
type workloadState struct {
	generation  int64
	annotations map[string]string
	labels      map[string]string
	spec        string
	replicas    int64
	marker      string
}

func (b *bench) state(name observer.Name) workloadState {
	b.t.Helper()
	resource := strings.ToLower(name.Kind) + "s"
	raw, err := b.kube.AppsV1().RESTClient().Get().Namespace(b.namespace).Resource(resource).Name(name.Name).SetHeader(
		"Accept", "application/json").DoRaw(b.t.Context())
	require.NoError(b.t, err)
	var o struct {
		Metadata struct {
			Generation  int64
			Annotations map[string]string
			Labels      map[string]string
		}
		Spec map[string]any
	}
	require.NoError(b.t, json.Unmarshal(raw, &o))
	w := workloadState{generation: o.Metadata.Generation, annotations: o.Metadata.Annotations,
		labels: o.Metadata.Labels}
	if n, ok := o.Spec["replicas"].(float64); ok {
		w.replicas = int64(n)
	}
	delete(o.Spec, "replicas")
	meta := o.Spec["template"].(map[string]any)["metadata"].(map[string]any)
	if annotations, ok := meta["annotations"].(map[string]any); ok {
		w.marker, _ = annotations[workload.AnnotationRestartedBy].(string)
		delete(annotations, workload.AnnotationRestartedBy)
		if len(annotations) == 0 {
			delete(meta, "annotations")
		}
	}
	spec, err := json.Marshal(o.Spec)
	require.NoError(b.t, err)
	w.spec = string(spec)
	return w
}

// requireTidy checks that an operation has left nothing on a workload except its result.
func (b *bench) requireTidy(name observer.Name, before workloadState) workloadState {
	b.t.Helper()
	after := b.state(name)
	require.Equal(b.t, before.spec, after.spec, "its own settings must be restored")
	for _, key := range []string{workload.AnnotationClaimedBy, workload.AnnotationOriginal,
		workload.AnnotationLeftAt} {
		require.NotContains(b.t, after.annotations, key)
	}
	require.NotContains(b.t, after.labels, workload.LabelClaimed)
	return after
}

// merge applies a JSON merge patch as another client.
func (b *bench) merge(name observer.Name, patch string) {
	b.t.Helper()
	resource := strings.ToLower(name.Kind) + "s"
	err := b.kube.AppsV1().RESTClient().Patch(types.MergePatchType).Namespace(b.namespace).Resource(resource).Name(
		name.Name).Body([]byte(patch)).Do(b.t.Context()).Error()
	require.NoError(b.t, err)
}

// until waits for a state of a workload.
func (b *bench) until(name observer.Name, what string, reached func(workloadState) bool) {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return reached(b.state(name)) }, patience, tick, "%s: never %s", name, what)
}
