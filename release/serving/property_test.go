package serving_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

// drawVersion draws versions that are mostly valid; invalid ones show that Check and Render agree.
func drawVersion(t *rapid.T) serving.Version {
	id := rapid.StringMatching(`[a-z0-9]([a-z0-9.-]{0,50}[a-z0-9])?`)
	v := serving.Version{
		ID: id.Draw(t, "id"), UID: "u", AppType: rapid.SampledFrom([]string{"", "serving"}).Draw(t, "app type"),
		AffinityMode: rapid.SampledFrom([]string{"", "none", "affinity", "anti-affinity"}).Draw(t, "mode"),
		AppImages:    map[string]kuscia.AppImageSpec{},
	}
	v.Spec.InputConfig = rapid.String().Draw(t, "input")
	for i := range rapid.IntRange(1, 3).Draw(t, "images") {
		v.AppImages[fmt.Sprintf("image-%d", i)] = drawImage(t)
	}
	seen := map[string]bool{}
	for range rapid.IntRange(1, 4).Draw(t, "parties") {
		p := kuscia.Party{
			DomainID:          rapid.SampledFrom([]string{"alice", "bob", "carol"}).Draw(t, "domain"),
			Role:              rapid.SampledFrom([]string{"", "server", "client", "x-y"}).Draw(t, "role"),
			AppImageRef:       fmt.Sprintf("image-%d", rapid.IntRange(0, len(v.AppImages)-1).Draw(t, "image")),
			ServiceNamePrefix: rapid.SampledFrom([]string{"", "", "mine"}).Draw(t, "prefix"),
		}
		if key := p.DomainID + "/" + p.Role; !seen[key] {
			seen[key] = true
			v.Spec.Parties = append(v.Spec.Parties, p)
		}
	}
	v.Spec.Initiator = v.Spec.Parties[0].DomainID
	return v
}

func drawImage(t *rapid.T) kuscia.AppImageSpec {
	spec := kuscia.AppImageSpec{
		Image: kuscia.AppImageInfo{Name: "image", Tag: "1"},
		ConfigTemplates: rapid.MapOfN(rapid.StringMatching(`[a-z]{1,8}`),
			rapid.SampledFrom([]string{"plain", "{{.INPUT_CONFIG}} {{.ALLOCATED_PORTS}}", "{{.ME}}"}), 0, 4).Draw(t,
			"templates"),
	}
	template := kuscia.DeployTemplate{Name: "t"}
	names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]([a-z0-9]{0,13}[a-z0-9])?`), 0, 12,
		rapid.ID[string]).Draw(t, "ports")
	for i := range rapid.IntRange(1, 3).Draw(t, "containers") {
		c := kuscia.Container{Name: fmt.Sprintf("c%d", i), Env: []corev1.EnvVar{{Name: "ME", Value: fmt.Sprint(i)}}}
		for j, name := range names {
			if j%3 != i {
				continue
			}
			c.Ports = append(c.Ports, kuscia.ContainerPort{
				Name:     name,
				Port:     rapid.SampledFrom([]int32{0, 0, int32(20000 + j), int32(53000 + j)}).Draw(t, "number"),
				Scope:    rapid.SampledFrom([]kuscia.PortScope{"", "Local", "Domain", "Cluster"}).Draw(t, "scope"),
				Protocol: rapid.SampledFrom([]kuscia.PortProtocol{"", "HTTP", "GRPC"}).Draw(t, "protocol"),
			})
		}
		for file := range spec.ConfigTemplates {
			c.ConfigVolumeMounts = append(c.ConfigVolumeMounts,
				kuscia.ConfigVolumeMount{MountPath: "/" + file, SubPath: file})
		}
		template.Spec.Containers = append(template.Spec.Containers, c)
	}
	spec.DeployTemplates = []kuscia.DeployTemplate{template}
	return spec
}

func TestRender_HoldsInvariants(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := drawVersion(t)
		problems := v.Check()
		packed, err := v.Pack()
		require.NoError(t, err)
		// The copy has other maps with the same content, whose iteration order may differ.
		again, err := serving.Unpack(packed)
		require.NoError(t, err)
		for i := range v.Spec.Parties {
			objects, err := serving.Render(v, i)
			if len(problems) > 0 {
				require.Error(t, err, "a version with problems is not rendered: %+v", problems)
				continue
			}
			require.NoError(t, err, "a version without problems is rendered")
			second, err := serving.Render(again, i)
			require.NoError(t, err)
			one, err := json.Marshal(objects)
			require.NoError(t, err)
			two, err := json.Marshal(second)
			require.NoError(t, err)
			require.Equal(t, string(one), string(two), "the same version gives the same bytes")
			checkNames(t, objects, v.Spec.Parties[i].DomainID)
			checkPorts(t, objects, serving.Endpoints(v, i))
		}
	})
}

func checkNames(t require.TestingT, objects serving.Objects, namespace string) {
	require.Empty(t, validation.IsDNS1123Subdomain(objects.Deployment.Name))
	require.Equal(t, namespace, objects.Deployment.Namespace)
	for key, value := range objects.Deployment.Spec.Template.Labels {
		require.Empty(t, validation.IsQualifiedName(key))
		require.Empty(t, validation.IsValidLabelValue(value))
	}
	for key, value := range objects.Deployment.Spec.Selector.MatchLabels {
		require.Equal(t, value, objects.Deployment.Spec.Template.Labels[key], "the Deployment selects its pods")
	}
	for _, s := range objects.Services {
		require.Empty(t, validation.IsDNS1035Label(s.Name))
		require.Equal(t, namespace, s.Namespace)
		for key, value := range s.Spec.Selector {
			require.Equal(t, value, objects.Deployment.Spec.Template.Labels[key], "the Service selects the pods")
		}
	}
	if objects.ConfigMap != nil {
		require.Empty(t, validation.IsDNS1123Subdomain(objects.ConfigMap.Name))
		require.Equal(t, namespace, objects.ConfigMap.Namespace)
		for key := range objects.ConfigMap.Data {
			require.Empty(t, validation.IsConfigMapKey(key))
		}
	}
}

// checkPorts requires that a pod's port numbers are unique, that its Services target them, and that the endpoints match
// the Services.
func checkPorts(t require.TestingT, objects serving.Objects, endpoints []serving.Endpoint) {
	numbers, byName := map[int32]bool{}, map[string]int32{}
	for _, c := range objects.Deployment.Spec.Template.Spec.Containers {
		mounted := map[string]bool{}
		for _, m := range c.VolumeMounts {
			require.Contains(t, objects.ConfigMap.Data, m.SubPath, "a mounted file exists")
			mounted[m.MountPath] = true
		}
		require.Len(t, mounted, len(c.VolumeMounts))
		for _, p := range c.Ports {
			require.Empty(t, validation.IsValidPortNum(int(p.ContainerPort)))
			require.False(t, numbers[p.ContainerPort], "port %d appears twice", p.ContainerPort)
			numbers[p.ContainerPort] = true
			byName[p.Name] = p.ContainerPort
		}
	}
	require.Len(t, endpoints, len(objects.Services))
	for i, s := range objects.Services {
		require.Equal(t, byName[s.Spec.Ports[0].TargetPort.StrVal], s.Spec.Ports[0].Port)
		expected := s.Name + "." + s.Namespace + ".svc"
		if endpoints[i].Scope == "Domain" {
			expected = fmt.Sprintf("%s:%d", expected, s.Spec.Ports[0].Port)
		}
		require.Equal(t, expected, endpoints[i].Endpoint)
	}
}

func TestRender_KeepsPortNumber_WhenOtherPortsChange(t *testing.T) {
	t.Parallel()
	number := func(v serving.Version, name string) int32 {
		objects, err := serving.Render(v, 0)
		require.NoError(t, err)
		for _, p := range objects.Deployment.Spec.Template.Spec.Containers[0].Ports {
			if p.Name == name {
				return p.ContainerPort
			}
		}
		return 0
	}
	v := validVersion()
	before := number(v, "internal")
	require.GreaterOrEqual(t, before, int32(20000))
	require.Less(t, before, int32(32767))

	more := validVersion()
	for i := range 40 {
		container(&more).Ports = append([]kuscia.ContainerPort{{Name: fmt.Sprintf("a%d", i)}},
			container(&more).Ports...)
	}
	more.Spec.InputConfig = "other"
	more.UID = "other"
	require.Equal(t, before, number(more, "internal"),
		"additional ports, before it in order and in name, do not change a port's number")

	clash := validVersion()
	container(&clash).Ports[0].Port = before
	require.NotEqual(t, before, number(clash, "internal"), "a number declared by another port is not allocated")

	other := validVersion()
	other.ID = "s2"
	require.NotEqual(t, before, number(other, "internal"), "another serving has other numbers")
}
