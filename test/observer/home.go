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

// snapshot is what users have declared, by kind and name, without the fields that the API server and the native
// controllers write.
type snapshot map[string]map[string]any

// ignoredAnnotations are annotations that native controllers maintain, and those of a workload that a Rollout names.
var ignoredAnnotations = []string{"deployment.kubernetes.io/revision", "deprecated.daemonset.template.generation",
	gate.AnnotationWhy, gate.AnnotationBy}

func (w world) snapshot() snapshot {
	s := snapshot{}
	for key, obj := range w {
		if !derived(obj) {
			s[key] = Declared(obj)
		}
	}
	return s
}

// derived reports whether an object belongs to a native controller, which creates it from declared objects and alone
// deletes it.
func derived(obj runtime.Object) bool {
	switch obj.(type) {
	case *corev1.Pod, *appsv1.ReplicaSet, *discoveryv1.EndpointSlice:
		return true
	}
	return false
}

// Declared returns an object without the fields that the API server and the native controllers write.
func Declared(obj runtime.Object) map[string]any {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj.DeepCopyObject())
	if err != nil {
		return map[string]any{"error": err.Error()}
	}
	delete(object, "status")
	for _, field := range []string{"resourceVersion", "managedFields", "generation"} {
		unstructured.RemoveNestedField(object, "metadata", field)
	}
	for _, annotation := range ignoredAnnotations {
		unstructured.RemoveNestedField(object, "metadata", "annotations", annotation)
	}
	unstructured.RemoveNestedField(object, "metadata", "labels", gate.Label)
	// null, which OpenKruise's webhook for defaults adds
	unstructured.RemoveNestedField(object, "spec", "template", "metadata", "creationTimestamp")
	for _, field := range []string{"annotations", "labels"} {
		if m, _, _ := unstructured.NestedMap(object, "metadata", field); len(m) == 0 {
			unstructured.RemoveNestedField(object, "metadata", field)
		}
	}
	return object
}

// End is the expected end of a rollout.
type End struct {
	// Images are the new version's images by container; nil: the workload must be of the stable version.
	Images map[string]string
	// Size is the size to which the workload was scaled meanwhile; 0: it was not scaled.
	Size int64
	// Released is true if the release ended without waiting: the workload's own controller moves the pods to one
	// revision in its own time.
	Released bool
}

// RequireFinalised fails the test unless everything is as before the rollout except for the released change: pods of
// one revision only, all ready; no object of the rollout is left; every borrowed object is restored, field by field.
func (w *RolloutWatch) RequireFinalised(t *testing.T, end End) {
	t.Helper()
	now := w.now(t)
	want, key := maps.Clone(w.before), w.spec.Workload.Kind+"/"+w.spec.Workload.Name
	want[key] = runtime.DeepCopyJSON(want[key])
	setImages(want[key], end.Images)
	if end.Size > 0 {
		require.NoError(t, unstructured.SetNestedField(want[key], end.Size, "spec", "replicas"))
	}
	have := now.snapshot()
	// a release by a Rollout object says of an Advanced DaemonSet that it is not paused
	paused := []string{"spec", "updateStrategy", "rollingUpdate", "paused"}
	if is, said, _ := unstructured.NestedBool(have[key], paused...); said && !is &&
		w.spec.Workload.Kind == "DaemonSet.apps.kruise.io" {
		require.NoError(t, unstructured.SetNestedField(want[key], false, paused...))
	}
	require.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(have)),
		"objects before and after: none may be missing, none of the rollout may be left")
	for _, name := range slices.Sorted(maps.Keys(want)) {
		require.Equal(t, want[name], have[name], "%s must be restored", name)
	}
	if end.Released {
		name := w.spec.Workload
		require.Eventually(t, func() bool {
			now := w.now(t)
			revisions, size := now.revisions(name), sizeOf(now.workload(name))
			return len(revisions) == 1 && now.count(name, revisions[0]) == Count{Stable: size, StableReady: size}
		}, time.Minute, 50*time.Millisecond, "the workload's own controller did not move every pod to one revision")
	}
	w.requireOneRevision(t, end.Images != nil)
}

func (w *RolloutWatch) requireOneRevision(t *testing.T, isNew bool) {
	t.Helper()
	name := w.spec.Workload
	now := w.now(t)
	revisions, size := now.revisions(name), sizeOf(now.workload(name))
	require.Len(t, revisions, 1, "the pods must have one revision")
	require.Equal(t, isNew, revisions[0] != w.stable, "the pods have revision %s, the revision before was %s",
		revisions[0], w.stable)
	c := now.count(name, revisions[0])
	require.Equal(t, Count{Stable: size, StableReady: size}, c, "the workload must have its size, with all pods ready")
	require.Eventually(t, func() bool {
		return len(w.now(t).podsOf(w.spec.extraWorkload())) == 0
	}, 30*time.Second, 50*time.Millisecond, "pods of the extra workload still exist")
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

// isGateMark reports whether a name is one of the marks of a workload that a Rollout names. A hold has other names.
func isGateMark(name string) bool {
	return name == gate.Label || name == gate.AnnotationWhy || name == gate.AnnotationBy
}

// RequireNoLeftovers fails the test if a declared object still has an annotation or label of Slipway. Excused objects
// ("Deployment/order") may have some: another client has restored them.
func (w *RolloutWatch) RequireNoLeftovers(t *testing.T, excused ...string) {
	t.Helper()
	for key, obj := range w.now(t) {
		if derived(obj) || slices.Contains(excused, key) {
			continue
		}
		for name := range metaOf(obj).GetAnnotations() {
			require.False(t, strings.HasPrefix(name, "slipway.io/") && !isGateMark(name), "%s carries %s", key, name)
		}
		for name := range metaOf(obj).GetLabels() {
			require.False(t, strings.HasPrefix(name, "slipway.io/") && !isGateMark(name), "%s carries %s", key, name)
		}
	}
}
