package serving

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/test/race"
)

// ownDeployment returns a Deployment whose label, annotation and image Slipway owns.
func ownDeployment() *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "alice", UID: "u1",
		ResourceVersion: "7", Generation: 2, Labels: map[string]string{"app": "web"},
		Annotations: map[string]string{"note": "a"},
		ManagedFields: owning(`{"f:metadata":{"f:annotations":{"f:note":{}},"f:labels":{"f:app":{}}},` +
			`"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{".":{},"f:name":{},"f:image":{}}}}}}}`)},
		Spec: appsv1.DeploymentSpec{
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app",
				Image: "app:v1"}}}}}}
}

func ownConfigMap() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "alice", UID: "u2",
		ResourceVersion: "7",
		ManagedFields:   owning(`{"f:data":{"f:app.conf":{}}}`)}, Data: map[string]string{"app.conf": "a"}}
}

func owning(fields string) []metav1.ManagedFieldsEntry {
	return []metav1.ManagedFieldsEntry{{Manager: serving.FieldManager, Operation: metav1.ManagedFieldsOperationApply,
		APIVersion: "v1", FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(fields)}}
}

// Whatever has changed in an object since it was last seen: its digest is the same as without a cache.
func TestDigests_MatchCurrentObject(t *testing.T) {
	deployment := func(change func(d *appsv1.Deployment)) object {
		d := ownDeployment()
		d.ResourceVersion = "8"
		change(d)
		return d
	}
	for _, c := range []struct {
		reason  string
		met     object
		now     object
		differs bool
	}{
		{"the status does not count", ownDeployment(), deployment(func(d *appsv1.Deployment) {
			d.Status.ReadyReplicas = 1
		}), false},
		{"nor does a label of another client", ownDeployment(), deployment(func(d *appsv1.Deployment) {
			d.Labels["team"] = "a"
		}), false},
		{"nor an annotation of the controller", ownDeployment(), deployment(func(d *appsv1.Deployment) {
			d.Annotations["deployment.kubernetes.io/revision"] = "1"
		}), false},
		{"a change of the spec changes the generation", ownDeployment(), deployment(func(d *appsv1.Deployment) {
			d.Generation, d.Spec.Template.Spec.Containers[0].Image = 3, "app:v2"
		}), true},
		{"a changed annotation", ownDeployment(), deployment(func(d *appsv1.Deployment) {
			d.Generation, d.Annotations["note"] = 3, "b"
		}), true},
		{"a status update can change annotations without a new generation", ownDeployment(),
			deployment(func(d *appsv1.Deployment) { d.Annotations["note"] = "b" }), true},
		{"labels do not change the generation", ownDeployment(), deployment(func(d *appsv1.Deployment) {
			d.Labels["app"] = "other"
		}), true},
		{"nor do owned fields", ownDeployment(), deployment(func(d *appsv1.Deployment) {
			d.ManagedFields = owning(`{"f:metadata":{"f:labels":{"f:app":{}}}}`)
		}), true},
		{"another object of the same name", ownDeployment(), deployment(func(d *appsv1.Deployment) {
			d.UID, d.Spec.Template.Spec.Containers[0].Image = "u9", "app:v2"
		}), true},
		{"the result of a dry run has no generation", ownDeployment(), deployment(func(d *appsv1.Deployment) {
			d.UID, d.Generation, d.ResourceVersion, d.Spec.Template.Spec.Containers[0].Image = "", 0, "", "app:v2"
		}), true},
		{"a ConfigMap has only a resourceVersion", ownConfigMap(), func() object {
			c := ownConfigMap()
			c.ResourceVersion, c.Data["app.conf"] = "8", "b"
			return c
		}(), true},
	} {
		t.Run(c.reason, func(t *testing.T) {
			d := newDigests()
			before, err := d.of(c.met)
			require.NoError(t, err)
			now, err := d.of(c.now)
			require.NoError(t, err)
			wanted, err := appliedDigest(c.now)
			require.NoError(t, err)
			require.Equal(t, wanted, now)
			require.Equal(t, c.differs, before != now)
		})
	}
}

// The status of a Deployment changes five times while it starts, and the watch delivers again what was written.
func TestDigests_AreCached(t *testing.T) {
	race.SkipBounds(t)
	d := newDigests()
	for _, is := range []object{ownDeployment(), ownConfigMap()} {
		_, err := d.of(is)
		require.NoError(t, err)
	}
	for _, again := range []object{ownDeployment(), ownConfigMap()} {
		made := testing.AllocsPerRun(10, func() { _, _ = appliedDigest(again) })
		if deployment, is := again.(*appsv1.Deployment); is {
			deployment.ResourceVersion, deployment.Status.ReadyReplicas,
				deployment.Annotations["deployment.kubernetes.io/revision"] = "9", 1, "1"
		}
		require.Less(t, testing.AllocsPerRun(10, func() { _, _ = d.of(again) }), made/4)
	}
}
