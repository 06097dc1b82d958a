package observer

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"slipway.io/slipway/release/gate"
)

// snapshot is what people have declared, by kind and name, without what the API server and the native controllers write.
type snapshot map[string]map[string]any

// notOurs are annotations that native controllers keep, and what a workload carries for as long as a Rollout names it.
var notOurs = []string{"deployment.kubernetes.io/revision", "deprecated.daemonset.template.generation", gate.AnnotationWhy, gate.AnnotationBy}

func (w world) snapshot() snapshot {
	s := snapshot{}
	for key, obj := range w {
		if !derived(obj) {
			s[key] = Declared(obj)
		}
	}
	return s
}

// derived says whether an object is a native controller's: it copies names from what people and Slipway make, and it, and nobody else, takes it away.
func derived(obj runtime.Object) bool {
	switch obj.(type) {
	case *corev1.Pod, *appsv1.ReplicaSet, *discoveryv1.EndpointSlice:
		return true
	}
	return false
}

// Declared is an object without what the API server and the native controllers write.
func Declared(obj runtime.Object) map[string]any {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj.DeepCopyObject())
	if err != nil {
		return map[string]any{"error": err.Error()}
	}
	delete(object, "status")
	for _, field := range []string{"resourceVersion", "managedFields", "generation"} {
		unstructured.RemoveNestedField(object, "metadata", field)
	}
	for _, annotation := range notOurs {
		unstructured.RemoveNestedField(object, "metadata", "annotations", annotation)
	}
	unstructured.RemoveNestedField(object, "metadata", "labels", gate.Label)
	for _, field := range []string{"annotations", "labels"} {
		if m, _, _ := unstructured.NestedMap(object, "metadata", field); len(m) == 0 {
			unstructured.RemoveNestedField(object, "metadata", field)
		}
	}
	return object
}

// End is how a rollout is to have ended.
type End struct {
	// Images are the new version's, by container; nil: the workload is to be of the stable version.
	Images map[string]string
	// Size is what the workload was scaled to meanwhile; 0: it was not.
	Size int64
	// LetGo says that the release has let go: the workload's own controller brings the pods to one revision in its own time.
	LetGo bool
}

// RequireHome fails the test unless everything is as it was before the rollout but for what the release changes: pods of one revision only, all ready;
// nothing that the rollout made is left; every object that it borrowed is equal to what it was, field by field.
func (w *RolloutWatch) RequireHome(t *testing.T, end End) {
	t.Helper()
	now := w.now(t)
	want, key := maps.Clone(w.before), w.asked.Workload.Kind+"/"+w.asked.Workload.Name
	want[key] = runtime.DeepCopyJSON(want[key])
	setImages(want[key], end.Images)
	if end.Size > 0 {
		require.NoError(t, unstructured.SetNestedField(want[key], end.Size, "spec", "replicas"))
	}
	have := now.snapshot()
	require.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(have)), "objects of before and after: nothing is missing, nothing of the rollout's is left")
	for _, name := range slices.Sorted(maps.Keys(want)) {
		require.Equal(t, want[name], have[name], "%s is what it was", name)
	}
	if end.LetGo {
		name := w.asked.Workload
		require.Eventually(t, func() bool {
			now := w.now(t)
			revisions, size := now.revisions(name), sizeOf(now.workload(name))
			return len(revisions) == 1 && now.count(name, revisions[0]) == Count{Stable: size, StableReady: size}
		}, time.Minute, 50*time.Millisecond, "the workload's own controller brings every pod to one revision")
	}
	w.requireOneRevision(t, end.Images != nil)
}

func (w *RolloutWatch) requireOneRevision(t *testing.T, isNew bool) {
	t.Helper()
	name := w.asked.Workload
	now := w.now(t)
	revisions, size := now.revisions(name), sizeOf(now.workload(name))
	require.Len(t, revisions, 1, "pods of one revision only")
	require.Equal(t, isNew, revisions[0] != w.stable, "pods of revision %s, that of before was %s", revisions[0], w.stable)
	c := now.count(name, revisions[0])
	require.Equal(t, Count{Stable: size, StableReady: size}, c, "as many pods as asked for, all ready")
	require.Eventually(t, func() bool { return len(w.now(t).podsOf(w.asked.extra())) == 0 }, 30*time.Second, 50*time.Millisecond, "pods of the extra workload are left")
}

// setImages changes a workload's template as a release of these images does.
func setImages(object map[string]any, images map[string]string) {
	for _, list := range []string{"containers", "initContainers"} {
		containers, found, _ := unstructured.NestedSlice(object, "spec", "template", "spec", list)
		if !found {
			continue
		}
		for _, c := range containers {
			container, _ := c.(map[string]any)
			name, _ := container["name"].(string)
			if image, changes := images[name]; changes {
				container["image"] = image
			}
		}
		_ = unstructured.SetNestedSlice(object, containers, "spec", "template", "spec", list)
	}
}

// ofGate says whether a name is one that a workload carries for as long as a Rollout names it. What is held is no such name.
func ofGate(name string) bool {
	return name == gate.Label || name == gate.AnnotationWhy || name == gate.AnnotationBy
}

// RequireNothingOfOurs fails the test when an object that people or Slipway have made still carries a name of Slipway's. Of the objects that are excused
// ("Deployment/order") somebody else has brought it back.
func (w *RolloutWatch) RequireNothingOfOurs(t *testing.T, excused ...string) {
	t.Helper()
	for key, obj := range w.now(t) {
		if derived(obj) || slices.Contains(excused, key) {
			continue
		}
		for name := range metaOf(obj).GetAnnotations() {
			require.False(t, strings.HasPrefix(name, "slipway.io/") && !ofGate(name), "%s carries %s", key, name)
		}
		for name := range metaOf(obj).GetLabels() {
			require.False(t, strings.HasPrefix(name, "slipway.io/") && !ofGate(name), "%s carries %s", key, name)
		}
	}
}
