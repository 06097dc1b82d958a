package serving

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsapply "k8s.io/client-go/applyconfigurations/apps/v1"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes/fake"

	"slipway.io/slipway/release/serving"
)

// richDeployment returns a Deployment with everything that the API server merges in different ways: maps and lists by
// key, atomic lists, atomic structs, and empty values.
func richDeployment() *appsv1.Deployment {
	own := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	return &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "alice", Labels: map[string]string{"app": "web"},
			Annotations: map[string]string{"note": "a"}},
		Spec: appsv1.DeploymentSpec{Replicas: new(int32(2)), Selector: own, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: own.MatchLabels},
			Spec: corev1.PodSpec{
				Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
					{Weight: 100, PodAffinityTerm: corev1.PodAffinityTerm{LabelSelector: own,
						TopologyKey: corev1.LabelHostname}}}}},
				Containers: []corev1.Container{
					{Name: "main", Image: "app:one", Command: []string{"run"}, Args: []string{"-v", "-a"},
						Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80, Protocol: corev1.ProtocolTCP},
							{Name: "udp", ContainerPort: 80, Protocol: corev1.ProtocolUDP}},
						Env: []corev1.EnvVar{{Name: "B", Value: "2"}, {Name: "A"},
							{Name: "IP",
								ValueFrom: &corev1.EnvVarSource{
									FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}}},
						Resources: corev1.ResourceRequirements{
							Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m")}},
						ReadinessProbe: &corev1.Probe{PeriodSeconds: 5,
							ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString(
								"http"), Path: "/"}}},
						VolumeMounts: []corev1.VolumeMount{{Name: "conf", MountPath: "/conf"}}},
					{Name: "side", Image: "side:one"},
				},
				Volumes: []corev1.Volume{{Name: "conf",
					VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
			}}}}
}

// ExtractedDigest returns the digest of the fields that client-go extracts as Slipway's.
func ExtractedDigest(t *testing.T, is object) string {
	t.Helper()
	var fields any
	var err error
	switch o := is.(type) {
	case *appsv1.Deployment:
		fields, err = appsapply.ExtractDeployment(o, serving.FieldManager)
	case *corev1.Service:
		fields, err = coreapply.ExtractService(o, serving.FieldManager)
	case *corev1.ConfigMap:
		fields, err = coreapply.ExtractConfigMap(o, serving.FieldManager)
	}
	require.NoError(t, err)
	raw, err := json.Marshal(fields)
	require.NoError(t, err)
	var tree map[string]any
	require.NoError(t, json.Unmarshal(raw, &tree))
	digest, err := serving.AppliedDigest(tree)
	require.NoError(t, err)
	return digest
}

// Slipway's fields of an object are those that client-go extracts, whether the API server merges them by key or
// atomically, and whatever other clients add or remove. Digests stored by earlier builds depend on that.
func TestAppliedDigest_MatchesClientGo(t *testing.T) {
	t.Parallel()
	service := &corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "alice"},
		Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"},
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}}}}
	config := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "alice"},
		Data:       map[string]string{"app.conf": "a", "empty": ""}, BinaryData: map[string][]byte{"bin": {0, 1, 255}}}
	deployment := func(change func(d *appsv1.Deployment)) object {
		d := richDeployment()
		change(d)
		return d
	}
	pod := func(d *appsv1.Deployment) *corev1.PodSpec { return &d.Spec.Template.Spec }
	for _, c := range []struct {
		reason  string
		applied object
		// patch is the change by another client; "" for none.
		patch   string
		differs bool
	}{
		{"a Deployment as it was applied", richDeployment(), "", false},
		{"a Service as it was applied", service, "", false},
		{"a ConfigMap as it was applied", config, "", false},
		{"another image", richDeployment(), image("two"), true},
		{"an additional container", richDeployment(),
			`{"spec":{"template":{"spec":{"containers":[{"name":"more","image":"more"}]}}}}`, false},
		{"a removed variable", richDeployment(),
			`{"spec":{"template":{"spec":{"containers":[{"name":"main","env":[{"name":"B","$patch":"delete"}]}]}}}}`,
			true},
		{"an additional limit", richDeployment(),
			`{"spec":{"template":{"spec":{"containers":[{"name":"main","resources":{"limits":{"memory":"1Gi"}}}]}}}}`,
			false},
		{"a first limit", richDeployment(),
			`{"spec":{"template":{"spec":{"containers":[{"name":"side","resources":{"limits":{"memory":"1Gi"}}}]}}}}`,
			false},
		{"a size limit of an empty directory", richDeployment(),
			`{"spec":{"template":{"spec":{"volumes":[{"name":"conf","emptyDir":{"sizeLimit":"1Gi"}}]}}}}`, false},
		{"a list that is merged atomically", richDeployment(),
			`{"spec":{"template":{"spec":{"containers":[{"name":"main","args":["-v"]}]}}}}`, true},
		{"a label of another client", richDeployment(), `{"metadata":{"labels":{"team":"a"}}}`, false},
		{"another size", richDeployment(), `{"spec":{"replicas":7}}`, false},
		{"removed affinity", richDeployment(), `{"spec":{"template":{"spec":{"affinity":null}}}}`, true},
		{"another port of a Service", service, `{"spec":{"ports":[{"port":80,"targetPort":9090}]}}`, true},
		{"another type of a Service", service, `{"spec":{"type":"NodePort"}}`, false},
		{"another file", config, `{"data":{"app.conf":"b"}}`, true},
		{"an additional file", config, `{"data":{"more":"b"}}`, false},
		{"only labels in common", deployment(func(d *appsv1.Deployment) {
			*pod(d) = corev1.PodSpec{}
		}), image("two"), false},
	} {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			is := appliedAndPatched(t, c.applied, c.patch)
			digest, err := appliedDigest(is)
			require.NoError(t, err)
			require.Equal(t, ExtractedDigest(t, is), digest)
			require.Equal(t, c.differs, digest != is.GetAnnotations()[serving.AnnotationApplied],
				"whether it differs from what was applied")
		})
	}
}

func image(name string) string {
	return `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"app:` + name + `"}]}}}}`
}

// appliedAndPatched returns an object as applied by Slipway and then changed by another client.
func appliedAndPatched(t *testing.T, wanted object, patch string) object {
	t.Helper()
	wanted = wanted.DeepCopyObject().(object)
	if wanted.GetAnnotations() == nil {
		wanted.SetAnnotations(map[string]string{"note": "a"})
	}
	body, err := applyBody(wanted, nil, "")
	require.NoError(t, err)
	client := fake.NewClientset()
	write := func(kind types.PatchType, body []byte, manager string) (is object) {
		options := metav1.PatchOptions{FieldManager: manager}
		switch wanted.(type) {
		case *appsv1.Deployment:
			is, err = client.AppsV1().Deployments("alice").Patch(t.Context(), "web", kind, body, options)
		case *corev1.Service:
			is, err = client.CoreV1().Services("alice").Patch(t.Context(), "web", kind, body, options)
		case *corev1.ConfigMap:
			is, err = client.CoreV1().ConfigMaps("alice").Patch(t.Context(), "web", kind, body, options)
		}
		require.NoError(t, err)
		return is
	}
	is := write(types.ApplyPatchType, body, serving.FieldManager)
	if patch != "" {
		is = write(types.StrategicMergePatchType, []byte(patch), "kubectl")
	}
	return is
}

// Objects that Slipway has never applied have no fields of it; neither do kinds that it does not create.
func TestAppliedDigest_OfObjectsNeverApplied(t *testing.T) {
	t.Parallel()
	is := ownDeployment()
	is.ManagedFields = nil
	digest, err := appliedDigest(is)
	require.NoError(t, err)
	require.Equal(t, ExtractedDigest(t, is), digest)

	is.ManagedFields = owning(`{"f:spec":`)
	_, err = appliedDigest(is)
	require.ErrorContains(t, err, "Deployment alice/web")
	_, err = appliedDigest(&corev1.Pod{})
	require.ErrorContains(t, err, "a Pod is not an object of a serving")
}
