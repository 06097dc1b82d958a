package serving_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/workload"
)

func entry(manager, subresource, fields string, at time.Time) metav1.ManagedFieldsEntry {
	operation := metav1.ManagedFieldsOperationUpdate
	if manager == serving.FieldManager {
		operation = metav1.ManagedFieldsOperationApply
	}
	stamp := metav1.NewTime(at)
	return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, Subresource: subresource, Time: &stamp,
		FieldsType: "FieldsV1",
		FieldsV1:   metav1.NewFieldsV1(fields)}
}

const (
	imageField = `{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"main\"}":{"f:image":{}}}}}}}`
	sizeField  = `{"f:spec":{"f:replicas":{}}}`
	paths      = `spec.template.spec.containers[name="main"].image`
)

func TestDriftOf(t *testing.T) {
	t.Parallel()
	applied := entry(serving.FieldManager, "", `{"f:spec":{"f:paused":{}}}`, noon)
	later, edited := noon.Add(time.Minute), metav1.NewTime(noon.Add(time.Minute))
	for name, tc := range map[string]struct {
		reason  string
		entries []metav1.ManagedFieldsEntry
		want    []kuscia.Drift
	}{
		"set image": {"the manager that took over a field has changed it",
			[]metav1.ManagedFieldsEntry{applied, entry("kubectl-set", "", imageField, later)},
			[]kuscia.Drift{{Object: "Deployment/s1", Manager: "kubectl-set", Fields: []string{paths}, At: &edited}}},
		"removed": {"a removed field has no owner", []metav1.ManagedFieldsEntry{applied},
			[]kuscia.Drift{{Object: "Deployment/s1"}}},
		"controllers": {"status, size and annotations of other domains are no drift",
			[]metav1.ManagedFieldsEntry{applied, entry("kubectl-set", "", imageField, later),
				entry("kubectl-edit", "", sizeField, later), entry("autoscaler", "scale", sizeField, later),
				entry("kube-controller-manager", "status", `{"f:status":{"f:replicas":{}}}`, later),
				entry("kube-controller-manager", "",
					`{"f:metadata":{"f:annotations":{"f:deployment.kubernetes.io/revision":{}}}}`, later)},
			[]kuscia.Drift{{Object: "Deployment/s1", Manager: "kubectl-set", Fields: []string{paths}, At: &edited}}},
		"before": {"fields written before the last apply are no drift",
			[]metav1.ManagedFieldsEntry{applied, entry("injector", "", imageField, noon.Add(-time.Hour))},
			[]kuscia.Drift{{Object: "Deployment/s1"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, serving.DriftOf("Deployment",
				&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "s1", ManagedFields: tc.entries}}), tc.reason)
		})
	}
}

func TestKeepSize(t *testing.T) {
	t.Parallel()
	sized := func(asked string, entries ...metav1.ManagedFieldsEntry) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
			Annotations: map[string]string{serving.AnnotationReplicas: asked}, ManagedFields: entries},
			Spec: appsv1.DeploymentSpec{Replicas: new(int32(2))}}
	}
	ours := entry(serving.FieldManager, "", sizeField, noon)
	theirs := entry("autoscaler", "scale", sizeField, noon)
	for name, tc := range map[string]struct {
		reason string
		is     *appsv1.Deployment
		keeps  bool
	}{
		"ours": {"Slipway keeps the ownership of its own size: leaving it out would reset it to 1",
			sized("2", ours), false},
		"an autoscaler's":     {"a size set by another client is kept", sized("2", theirs), true},
		"another size":        {"the serving requests another size than before", sized("1", theirs), false},
		"of an earlier build": {"the previously requested size is unknown", sized("", theirs), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wanted := sized("2")
			serving.KeepSize(wanted, tc.is)
			require.Equal(t, tc.keeps, wanted.Spec.Replicas == nil, tc.reason)
		})
	}
}

func TestAppliedDigest(t *testing.T) {
	t.Parallel()
	of := func(change func(d *appsv1.Deployment)) string {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "s1", Labels: map[string]string{"a": "b"},
			Annotations: map[string]string{"c": "d"}},
			Spec: appsv1.DeploymentSpec{Replicas: new(int32(2)),
				Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{
					{Name: "main", Image: "app:one", Env: []corev1.EnvVar{{Name: "A", Value: "1"},
						{Name: "B", Value: "2"}}}}}}}}
		change(d)
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
		require.NoError(t, err)
		digest, err := serving.AppliedDigest(fields)
		require.NoError(t, err)
		again, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
		require.NoError(t, err)
		require.Equal(t, again, fields, "the fields are not modified")
		return digest
	}
	same := of(func(*appsv1.Deployment) {})
	require.Equal(t, "1b76b0b76f4a15c2", same, "objects applied by an earlier build do not count as changed")
	for name, tc := range map[string]struct {
		reason string
		change func(d *appsv1.Deployment)
		same   bool
	}{
		"image": {"Slipway owns the field", func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Image = "app:two"
		}, false},
		"label": {"Slipway owns the field", func(d *appsv1.Deployment) { d.Labels["a"] = "x" }, false},
		"size":  {"an autoscaler may set it", func(d *appsv1.Deployment) { d.Spec.Replicas = nil }, true},
		"claim": {"each operation sets and removes it", func(d *appsv1.Deployment) {
			d.Labels[workload.LabelClaimed], d.Annotations[workload.AnnotationClaimedBy] =
				workload.LabelClaimedValue, "me"
		}, true},
		"status": {"the controller writes it", func(d *appsv1.Deployment) {
			d.Status.Replicas, d.ResourceVersion, d.UID = 3, "7", "u"
		}, true},
		"order": {"the API server may keep lists in another order", func(d *appsv1.Deployment) {
			env := d.Spec.Template.Spec.Containers[0].Env
			env[0], env[1] = env[1], env[0]
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.same, of(tc.change) == same, tc.reason)
		})
	}
}

// drifting returns a serving in which kubectl-set has changed bob's image.
func drifting(restorations ...kuscia.Restoration) *kuscia.KusciaDeployment {
	kd := pair(&kuscia.Operation{Kind: serving.KindUpdate, Generation: 2, Done: true}, whole, whole)
	kd.Generation, kd.Finalizers, kd.Status.Served = 2, []string{kuscia.Finalizer}, &kuscia.Served{Digest: "old"}
	at := metav1.NewTime(noon)
	kd.Status.PartyDeploymentStatuses["bob"]["s1"] = changedFields(*whole, func(e *kuscia.PartyDeploymentStatus) {
		e.Drift = []kuscia.Drift{{Object: "Deployment/s1", Manager: "kubectl-set", Fields: []string{paths}, At: &at}}
		e.Restorations = restorations
	})
	return kd
}

func TestDecide_RevertsDrift(t *testing.T) {
	t.Parallel()
	last := metav1.NewTime(noon.Add(time.Minute))
	why := `party bob: kubectl-set has changed Deployment/s1 (` + paths + `) at 2026-03-01T12:00:00Z`
	for name, tc := range map[string]struct {
		reason string
		known  []kuscia.Restoration
		wait   time.Time
	}{
		"first": {"it is reverted at once", nil, time.Time{}},
		"third": {"the third time is reverted at once, too",
			[]kuscia.Restoration{{Manager: "kubectl-set", Count: 2, LastAt: last}}, time.Time{}},
		"fourth": {"repeated changes by one manager are reverted with a pause",
			[]kuscia.Restoration{{Manager: "kubectl-set", Count: 3, LastAt: last}}, last.Add(5 * time.Minute)},
		"sixth": {"each pause is twice as long",
			[]kuscia.Restoration{{Manager: "kubectl-set", Count: 5, LastAt: last}}, last.Add(20 * time.Minute)},
		"hundredth": {"the longest pause is one hour",
			[]kuscia.Restoration{{Manager: "kubectl-set", Count: 99, LastAt: last}}, last.Add(time.Hour)},
		"another": {"each manager is counted separately",
			[]kuscia.Restoration{{Manager: "flux", Count: 99, LastAt: last}}, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, serving.NextAction{Do: serving.DoStart, Kind: serving.KindRecreate, Reason: why,
				NotBefore: tc.wait}, serving.Decide(drifting(tc.known...)), tc.reason)
		})
	}
	kd := drifting()
	kd.Status.Operation.Done = false
	require.Equal(t, serving.DoNothing, serving.Decide(kd).Do, "a running operation comes first")
}

func TestUpdatePhases_ReportsDrift(t *testing.T) {
	t.Parallel()
	kd := drifting()
	serving.UpdatePhases(kd)
	require.Equal(t, []any{kuscia.PhaseProgressing, serving.ReasonObjectsDrifted},
		[]any{kd.Status.Phase, kd.Status.Reason})
	require.Equal(t, `party bob: kubectl-set has changed Deployment/s1 (`+paths+`) at 2026-03-01T12:00:00Z`,
		kd.Status.Message)
	require.Equal(t, 1, kd.Status.AvailableParties)
	kd = drifting(kuscia.Restoration{Manager: "kubectl-set", Count: 3, LastAt: metav1.NewTime(noon)})
	serving.UpdatePhases(kd)
	require.Contains(t, kd.Status.Message, "already restored 3 times, next at 2026-03-01T12:05:00Z: stop "+
		"kubectl-set, or change the serving instead")
}

func TestRecordRestoration_CountsPerManager(t *testing.T) {
	t.Parallel()
	kd := drifting()
	of := func() []kuscia.Restoration { return kd.Status.PartyDeploymentStatuses["bob"]["s1"].Restorations }
	serving.RecordRestoration(kd, noon)
	serving.RecordRestoration(kd, noon.Add(time.Minute))
	require.Equal(t, []kuscia.Restoration{{Manager: "kubectl-set", Count: 2,
		LastAt: metav1.NewTime(noon.Add(time.Minute))}}, of())
	require.Empty(t, kd.Status.PartyDeploymentStatuses["alice"]["s1-host"].Restorations, "nothing of alice was changed")
	serving.RecordRestoration(kd, noon.Add(24*time.Hour))
	require.Equal(t, []kuscia.Restoration{{Manager: "kubectl-set", Count: 1,
		LastAt: metav1.NewTime(noon.Add(24 * time.Hour))}}, of(), "the count restarts after two hours without a change")
}

func TestExpectedOf(t *testing.T) {
	t.Parallel()
	kd := drifting()
	bob := kd.Status.PartyDeploymentStatuses["bob"]["s1"]
	bob.Queue, bob.DeploymentUID, bob.DeploymentVersion = "q", "d1", "7"
	kd.Status.PartyDeploymentStatuses["bob"]["s1"] = bob
	expected := serving.ExpectedOf(kd, "q")
	require.Len(t, expected, 1, "alice is on another queue")
	absent := expected[0].Deleted()
	require.Equal(t, []string{"bob", "s1", "d1", "7"},
		[]string{absent.Domain, absent.Deployment, absent.Snapshot.DeploymentUID, absent.Snapshot.ResourceVersion})
	require.Equal(t, []string{"Deployment/s1"}, absent.Snapshot.Missing)
	require.True(t, serving.Observe(kd, []serving.Observation{absent}, noon), "the deletion is new")
	require.Empty(t, serving.ExpectedOf(kd, "q"), "a Deployment known to be missing is not expected")
}
