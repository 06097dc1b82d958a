package kuscia_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/api/kuscia"
	objects "slipway.io/slipway/release/kuscia/v1alpha1"
)

// expressibleAppImage is an AppImage without fields that a request cannot express.
func expressibleAppImage() *objects.AppImage {
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/health",
		Port: intstr.FromInt32(53511)}}, PeriodSeconds: 10}
	return &objects.AppImage{ObjectMeta: metav1.ObjectMeta{Name: "image"}, Spec: objects.AppImageSpec{
		Image:           objects.AppImageInfo{Name: "x", Tag: "v1", ID: "abc", Sign: "def"},
		ConfigTemplates: map[string]string{"a.conf": "{{.SERVING_ID}}"},
		DeployTemplates: []objects.DeployTemplate{{Name: "t", Role: "server", Replicas: new(int32(2)),
			Spec: objects.PodTemplate{
				RestartPolicy: corev1.RestartPolicyNever,
				Containers: []objects.Container{{Name: "c", Command: []string{"sh"}, WorkingDir: "/root",
					ReadinessProbe:     probe,
					ConfigVolumeMounts: []objects.ConfigVolumeMount{{MountPath: "/etc/a.conf", SubPath: "a.conf"}},
					Ports: []objects.ContainerPort{{Name: "service", Protocol: objects.ProtocolHTTP,
						Scope: objects.ScopeCluster}},
					Env: []corev1.EnvVar{{Name: "A", Value: "b"}},
					Resources: corev1.ResourceRequirements{
						Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("0.1")}}}}}}},
	}}
}

func TestAppImageRequest_ReportsLostFields(t *testing.T) {
	t.Parallel()
	container := func(image *objects.AppImage) *objects.Container {
		return &image.Spec.DeployTemplates[0].Spec.Containers[0]
	}
	const path = "spec.deployTemplates[0]"
	cases := []struct {
		reason string
		change func(image *objects.AppImage)
		lost   []string
	}{
		{"nothing; a numeric port of a probe becomes text", func(*objects.AppImage) {}, nil},
		{"the number of a port", func(i *objects.AppImage) {
			container(i).Ports[0].Port = 53509
		}, []string{path + ".spec.containers[0].ports[0].port"}},
		{"the network policy", func(i *objects.AppImage) {
			i.Spec.DeployTemplates[0].NetworkPolicy = &objects.NetworkPolicy{}
		}, []string{path + ".networkPolicy"}},
		{"the affinity", func(i *objects.AppImage) {
			i.Spec.DeployTemplates[0].Spec.Affinity = &corev1.Affinity{}
		}, []string{path + ".spec.affinity"}},
		{"security context and metric probe of a container", func(i *objects.AppImage) {
			container(i).SecurityContext, container(i).MetricProbe = &corev1.SecurityContext{},
				&objects.MetricProbe{Port: "service"}
		}, []string{path + ".spec.containers[0].metricProbe", path + ".spec.containers[0].securityContext"}},
		{"the source of an environment variable", func(i *objects.AppImage) {
			container(i).Env[0] = corev1.EnvVar{Name: "A",
				ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}}
		}, []string{path + ".spec.containers[0].env[0].valueFrom"}},
		{"0 replicas, which a request cannot distinguish from unset", func(i *objects.AppImage) {
			i.Spec.DeployTemplates[0].Replicas = new(int32(0))
		}, []string{path + ".replicas"}},
		{"resources other than CPU and memory", func(i *objects.AppImage) {
			container(i).Resources.Limits["nvidia.com/gpu"] = resource.MustParse("1")
		}, []string{path + ".spec.containers[0].resources.limits.nvidia.com/gpu"}},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			image := expressibleAppImage()
			c.change(image)
			request, lost := kuscia.AppImageRequest(image)
			require.Equal(t, c.lost, lost)
			require.Equal(t, "image", request.GetName())
			require.Equal(t, "53511",
				request.GetDeployTemplates()[0].GetContainers()[0].GetReadinessProbe().GetHttpGet().GetPort())
		})
	}
}
