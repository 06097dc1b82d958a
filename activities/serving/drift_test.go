package serving_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	partyservings "slipway.io/slipway/activities/serving"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/test/harness"
)

func (s *site) deployment() *appsv1.Deployment {
	s.t.Helper()
	d, err := s.kube.AppsV1().Deployments(s.domain).Get(s.t.Context(), "s1", metav1.GetOptions{})
	require.NoError(s.t, err)
	return d
}

// patch changes the Deployment as another client.
func (s *site) patch(manager, patch string) {
	s.t.Helper()
	_, err := s.kube.AppsV1().Deployments(s.domain).Patch(s.t.Context(), "s1", types.StrategicMergePatchType,
		[]byte(patch), metav1.PatchOptions{FieldManager: manager})
	require.NoError(s.t, err)
}

func image(tag string) string {
	return `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"app:` + tag + `"}]}}}}`
}

// patchesOfDeployments counts patches of Deployments.
func patchesOfDeployments() *harness.Counter {
	return &harness.Counter{Match: func(r *http.Request) bool {
		return r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/deployments/")
	}}
}

func TestApply_OwnsFields(t *testing.T) {
	s := newSite(t)
	patches := patchesOfDeployments()
	require.NoError(t, s.apply(s.step(1, false), patches.Wrap))
	require.Equal(t, 2, patches.Count(), "one write creates the Deployment and owns its fields, one releases the "+
		"claim: the API server stores what was sent")
	d := s.deployment()
	var ours []metav1.ManagedFieldsOperationType
	for _, entry := range d.ManagedFields {
		if entry.Manager == serving.FieldManager {
			ours = append(ours, entry.Operation)
		}
	}
	require.Equal(t, []metav1.ManagedFieldsOperationType{metav1.ManagedFieldsOperationApply}, ours,
		"they are owned by an apply, so that fields that a later version omits are removed")
	require.Equal(t, d.Annotations[serving.AnnotationApplied], partyservings.ExtractedDigest(t, d), "there is no drift")
	require.Empty(t, d.Annotations["slipway.io/claimed-by"])

	s.patch("kubectl-set", image("hacked"))
	d = s.deployment()
	require.NotEqual(t, d.Annotations[serving.AnnotationApplied], partyservings.ExtractedDigest(t, d))
	drift := serving.DriftOf("Deployment", d)
	require.Len(t, drift, 1)
	require.Equal(t, "Deployment/s1", drift[0].Object)
	require.Equal(t, "kubectl-set", drift[0].Manager)
	require.Equal(t, []string{`spec.template.spec.containers[name="main"].image`}, drift[0].Fields)
	require.NotNil(t, drift[0].At)
}

func TestApply_RevertsChangesByOtherClients(t *testing.T) {
	s := newSite(t)
	require.NoError(t, s.apply(s.step(1, false), nil))
	s.patch("kubectl-edit", `{"metadata":{"annotations":{"team":"risk"}},"spec":{"paused":true,"template":{"spec":{
		"containers":[{"name":"main","image":"app:hacked","env":[{"name":"EXTRA","value":"1"}]}]}}}}`)
	_, err := s.kube.CoreV1().ConfigMaps(s.domain).Patch(t.Context(), "s1-configtemplate", types.MergePatchType,
		[]byte(`{"data":{"app.conf":"hacked"}}`),
		metav1.PatchOptions{FieldManager: "kubectl-edit"})
	require.NoError(t, err)
	require.NoError(t, s.apply(s.step(2, false), nil))
	s.requireRuns("two")
	d := s.deployment()
	require.False(t, d.Spec.Paused, "a paused Deployment would never be updated")
	require.Equal(t, "risk", d.Annotations["team"], "what others have added stays")
	require.Contains(t, d.Spec.Template.Spec.Containers[0].Env, corev1.EnvVar{Name: "EXTRA", Value: "1"},
		"what others have added stays")
	require.Equal(t, d.Annotations[serving.AnnotationApplied], partyservings.ExtractedDigest(t, d))
}

func TestApply_KeepsSizeOfAutoscaler(t *testing.T) {
	s := newSite(t)
	s.sizes = map[string]int32{"one": 1, "two": 1, "wide": 2}
	for generation, tag := range []string{"one", "two", "wide"} {
		s.operation(int64(generation+1), tag, "one")
	}
	require.NoError(t, s.apply(s.step(1, false), nil))
	_, err := s.kube.AppsV1().Deployments(s.domain).UpdateScale(t.Context(), "s1",
		&autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "s1", Namespace: s.domain},
			Spec: autoscalingv1.ScaleSpec{Replicas: 3}}, metav1.UpdateOptions{FieldManager: "autoscaler"})
	require.NoError(t, err)
	d := s.deployment()
	require.Equal(t, d.Annotations[serving.AnnotationApplied], partyservings.ExtractedDigest(t, d),
		"an autoscaler changes no field that Slipway owns")
	require.NoError(t, s.apply(s.step(2, false), nil))
	s.requireRuns("two")
	require.Equal(t, int32(3), *s.deployment().Spec.Replicas,
		"an update that requests the same size as before keeps it")
	require.NoError(t, s.apply(s.step(3, false), nil))
	require.Equal(t, int32(2), *s.deployment().Spec.Replicas, "one that requests another size sets it")
}

// Fields that an earlier build wrote without an apply are adopted: those that are not wanted any more are removed.
func TestApply_AdoptsFieldsOfEarlierBuild(t *testing.T) {
	s := newSite(t)
	require.NoError(t, s.apply(s.step(1, false), nil))
	d := s.deployment()
	require.NoError(t, s.kube.AppsV1().Deployments(s.domain).Delete(t.Context(), "s1", metav1.DeleteOptions{}))
	raw, err := json.Marshal(d)
	require.NoError(t, err)
	old := &appsv1.Deployment{}
	require.NoError(t, json.Unmarshal(raw, old))
	old.ObjectMeta = metav1.ObjectMeta{Name: d.Name, Labels: d.Labels, Annotations: map[string]string{}}
	for key, value := range d.Annotations {
		if key != serving.AnnotationApplied && key != serving.AnnotationReplicas {
			old.Annotations[key] = value
		}
	}
	old.Spec.Template.Spec.Containers[0].Env = append(old.Spec.Template.Spec.Containers[0].Env,
		corev1.EnvVar{Name: "OLD", Value: "1"})
	_, err = s.kube.AppsV1().Deployments(s.domain).Create(t.Context(), old,
		metav1.CreateOptions{FieldManager: serving.FieldManager})
	require.NoError(t, err)
	require.NoError(t, s.apply(s.step(2, false), nil))
	s.requireRuns("two")
	d = s.deployment()
	for _, env := range d.Spec.Template.Spec.Containers[0].Env {
		require.NotEqual(t, "OLD", env.Name, "the version does not have it")
	}
	require.Equal(t, d.Annotations[serving.AnnotationApplied], partyservings.ExtractedDigest(t, d))
}

// A worker that was killed after its write finds its work done, and writes nothing.
func TestApply_WritesNothing_WhenUpToDate(t *testing.T) {
	s := newSite(t)
	require.NoError(t, s.apply(s.step(1, false), nil))
	versions := func() (all []string) {
		services, err := s.kube.CoreV1().Services(s.domain).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		files, err := s.kube.CoreV1().ConfigMaps(s.domain).Get(t.Context(), "s1-configtemplate", metav1.GetOptions{})
		require.NoError(t, err)
		for _, one := range services.Items {
			all = append(all, one.ResourceVersion)
		}
		return append(all, files.ResourceVersion)
	}
	before := versions()
	require.NoError(t, s.apply(s.step(1, false), nil))
	require.Equal(t, before, versions())
}
