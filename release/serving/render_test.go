package serving_test

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

func render(t *testing.T, v serving.Version) serving.Objects {
	t.Helper()
	objects, err := serving.Render(v, 0)
	require.NoError(t, err)
	return objects
}

func TestRender_RefusesUnknownParty(t *testing.T) {
	t.Parallel()
	for _, index := range []int{-1, 2} {
		_, err := serving.Render(validVersion(), index)
		var refused *failure.Error
		require.ErrorAs(t, err, &refused)
		require.Equal(t, failure.Refused, refused.Kind)
		require.Zero(t, validVersion().Replicas(index))
		require.Nil(t, validVersion().Resources(index))
		require.Nil(t, serving.Endpoints(validVersion(), index))
	}
}

func TestEndpoints_MatchDocument(t *testing.T) {
	t.Parallel()
	v := version(t, filepath.Join("testdata", "render", "document"))
	require.Equal(t, []serving.Endpoint{
		{PortName: "service", Scope: "Cluster", Endpoint: "secretflow-serving-service.bob.svc", Port: 53509},
		{PortName: "internal", Scope: "Domain", Endpoint: "secretflow-serving-internal.bob.svc:53510", Port: 53510},
		{PortName: "brpc-builtin", Scope: "Domain", Endpoint: "secretflow-serving-brpc-builtin.bob.svc:53511",
			Port: 53511},
	}, serving.Endpoints(v, 1), "as in the document, in the order of the template")
}

func TestReplicas_TemplateIsSelectedByRole(t *testing.T) {
	t.Parallel()
	roles := func(list ...string) []kuscia.DeployTemplate {
		var all []kuscia.DeployTemplate
		for i, role := range list {
			all = append(all, kuscia.DeployTemplate{Role: role, Replicas: new(int32(i + 10))})
		}
		return all
	}
	cases := []struct {
		reason    string
		templates []kuscia.DeployTemplate
		role      string
		replicas  int32
	}{
		{"the first whose list has the role", roles("", "client, server", "server"), "server", 11},
		{"the last without a role, when no list has it", roles("", "client", ""), "server", 12},
		{"a party without a role has the first without one", roles("client", "", ""), "", 11},
		{"a party without a role has the first, when all have one", roles("client", "server"), "", 10},
		{"a comma at the end of a list is not a template without a role", roles("server,", "client,"), "client", 11},
		{"a prefix of a role is another role", roles("servers"), "server", 1},
	}
	for _, c := range cases {
		v := validVersion()
		image(&v, func(s *kuscia.AppImageSpec) { s.DeployTemplates = c.templates })
		alice(&v).Role = c.role
		require.Equal(t, c.replicas, v.Replicas(0), c.reason)
	}
}

func TestReplicas_Precedence(t *testing.T) {
	t.Parallel()
	v := validVersion()
	require.Equal(t, int32(1), v.Replicas(0), "the default")
	deploy(&v).Replicas = new(int32(3))
	require.Equal(t, int32(3), v.Replicas(0), "set by the AppImage")
	template(&v).Replicas = new(int32(0))
	require.Zero(t, v.Replicas(0), "set by the party; 0 is a valid number")
	require.Equal(t, int32(3), v.Replicas(1), "the other party is not affected")
	require.Zero(t, *render(t, v).Deployment.Spec.Replicas)
}

func TestResourcesOfAParty(t *testing.T) {
	t.Parallel()
	v := validVersion()
	container(&v).Resources = corev1.ResourceRequirements{Requests: amounts("cpu", "0.1", "memory", "1024Mi"),
		Limits: amounts("cpu", "2")}
	deploy(&v).Spec.Containers = append(deploy(&v).Spec.Containers, kuscia.Container{Name: "two"})
	own(&v, corev1.PodSpec{Containers: []corev1.Container{{Name: "main",
		Resources: corev1.ResourceRequirements{Limits: amounts("memory", "2Gi")}}}})
	require.Equal(t, []serving.ResourceRow{
		{Container: "main", MinCPU: "100m", MinMemory: "1Gi", MaxMemory: "2Gi"}, {Container: "two"},
	}, v.Resources(0), "a party's limits replace all limits of the template, its requests stay; quantities are "+
		"canonical")
	require.Equal(t, "2", v.Resources(1)[0].MaxCPU, "the other party is not affected")
	require.Equal(t, amounts("memory", "2Gi"), render(t,
		v).Deployment.Spec.Template.Spec.Containers[0].Resources.Limits)
}

func TestStrategyOfTheDeployment(t *testing.T) {
	t.Parallel()
	quarter, one := intstr.FromString("25%"), intstr.FromInt32(1)
	cases := []struct {
		reason   string
		own      *appsv1.DeploymentStrategy
		expected appsv1.DeploymentStrategy
	}{
		{"the default", nil, *rolling(quarter, quarter)},
		{"without a type it is RollingUpdate", &appsv1.DeploymentStrategy{}, *rolling(quarter, quarter)},
		{"partly set", &appsv1.DeploymentStrategy{Type: "RollingUpdate",
			RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &one}}, *rolling(one, quarter)},
		{"Recreate", &appsv1.DeploymentStrategy{Type: "Recreate"}, appsv1.DeploymentStrategy{Type: "Recreate"}},
	}
	for _, c := range cases {
		v := validVersion()
		template(&v).Strategy = c.own
		require.Equal(t, c.expected, render(t, v).Deployment.Spec.Strategy, c.reason)
	}
}

func TestRender_ReplacesPods_WhenFilesChange(t *testing.T) {
	t.Parallel()
	v := validVersion()
	before := render(t, v).Deployment.Spec.Template
	image(&v, func(s *kuscia.AppImageSpec) { s.ConfigTemplates["app.conf"] = "other" })
	after := render(t, v).Deployment.Spec.Template
	require.NotEqual(t, before, after, "a file that is mounted by subPath is not refreshed in a running pod")
	delete(before.Annotations, serving.AnnotationConfigDigest)
	delete(after.Annotations, serving.AnnotationConfigDigest)
	require.Equal(t, before, after, "nothing else of the pod has changed")
}

func TestRender_KeepsSelector(t *testing.T) {
	t.Parallel()
	v := validVersion()
	before := render(t, v).Deployment
	v.AppType, v.AffinityMode, v.Spec.InputConfig, v.Spec.Initiator = "other", "none", "other", "bob"
	alice(&v).ServiceNamePrefix = "other"
	image(&v, func(s *kuscia.AppImageSpec) { s.Image.Tag = "2" })
	after := render(t, v).Deployment
	require.Equal(t, before.Spec.Selector, after.Spec.Selector, "the selector is immutable")
	require.Equal(t, before.Name, after.Name)
	require.NotEqual(t, before.Spec.Template, after.Spec.Template)
}

func TestRender_SetsServingID_OnlyForServings(t *testing.T) {
	t.Parallel()
	names := func(v serving.Version) []string {
		var all []string
		for _, e := range render(t, v).Deployment.Spec.Template.Spec.Containers[0].Env {
			all = append(all, e.Name)
		}
		return all
	}
	v := validVersion()
	container(&v).Env = []corev1.EnvVar{{Name: "Z"}, {Name: "A"}}
	expected := []string{"Z", "A", "KUSCIA_DOMAIN_ID", "CLUSTER_DEFINE", "ALLOCATED_PORTS", "INPUT_CONFIG",
		"KUSCIA_PORT_SERVICE_NUMBER", "KUSCIA_PORT_INTERNAL_NUMBER", "SERVING_ID"}
	require.Equal(t, expected, names(v),
		"the container's own variables first, then the injected ones in Kuscia's order")
	v.AppType = "other"
	require.Equal(t, expected[:len(expected)-1], names(v), "another type of application has no serving ID")
}

func TestAffinity(t *testing.T) {
	t.Parallel()
	affinity := func(v serving.Version) *corev1.Affinity { return render(t, v).Deployment.Spec.Template.Spec.Affinity }
	v := validVersion()
	for _, mode := range []string{"", "anti-affinity"} {
		v.AffinityMode = mode
		term := affinity(v).PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0]
		require.Equal(t, int32(100), term.Weight)
		require.Equal(t, "kubernetes.io/hostname", term.PodAffinityTerm.TopologyKey)
		require.Equal(t, map[string]string{kuscia.LabelWorkload: "s1"}, term.PodAffinityTerm.LabelSelector.MatchLabels)
	}
	v.AffinityMode = "affinity"
	require.Nil(t, affinity(v).PodAntiAffinity)
	require.Equal(t, int32(100), affinity(v).PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].Weight)
	v.AffinityMode = "none"
	require.Nil(t, affinity(v))

	node := &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}
	deploy(&v).Spec.Affinity = node
	require.Equal(t, node, affinity(v), "a template's own affinity wins over the mode")
	own(&v, corev1.PodSpec{Affinity: &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}}})
	require.Nil(t, affinity(v).NodeAffinity, "a party's own affinity wins over the template's")
}

func TestRender_ShortensServiceNames(t *testing.T) {
	t.Parallel()
	v := validVersion()
	v.ID = strings.Repeat("a", 30) + "." + strings.Repeat("b", 30)
	var names []string
	for _, s := range render(t, v).Services {
		names = append(names, s.Name)
	}
	require.Equal(t, []string{
		"svc-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-bbb-0d5805a5e7271251-service",
		"svc-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-bb-0d5805a5e7271251-internal",
	}, names, "63 characters, with a hash of the full name to keep names unique")
}

func TestRender_DoesNotModifyVersion(t *testing.T) {
	t.Parallel()
	v := validVersion()
	before, err := v.Digest()
	require.NoError(t, err)
	objects := render(t, v)
	objects.Deployment.Spec.Template.Spec.Containers[0].Env[0].Value = "changed"
	maps.DeleteFunc(objects.ConfigMap.Data, func(string, string) bool { return true })
	slices.Reverse(objects.Services)
	after, err := v.Digest()
	require.NoError(t, err)
	require.Equal(t, before, after, "objects share no memory with their version")
	require.Equal(t, written(t, render(t, validVersion())), written(t, render(t, v)))
}

func TestRender_AccessDomains(t *testing.T) {
	t.Parallel()
	party := func(domain, role string) kuscia.Party {
		return kuscia.Party{DomainID: domain, Role: role, AppImageRef: "app"}
	}
	policy := func(port string, roles ...string) *kuscia.NetworkPolicy {
		return &kuscia.NetworkPolicy{Ingresses: []kuscia.Ingress{{From: kuscia.IngressFrom{Roles: roles},
			Ports: []kuscia.IngressPort{{Port: port}}}}}
	}
	cases := []struct {
		reason            string
		parties           []kuscia.Party
		policy            *kuscia.NetworkPolicy
		service, internal string
	}{
		{"all domains may call a Cluster port, in the order of the spec, each once",
			[]kuscia.Party{party("carol", "a"), party("alice", "b"), party("carol", "b")}, nil, "carol,alice", ""},
		{"a single domain needs no permission", []kuscia.Party{party("alice", "a"), party("alice", "b")}, nil, "", ""},
		{"a policy allows the domains that have one of its roles",
			[]kuscia.Party{party("alice", "a"), party("bob", "b"), party("carol", "b")},
			policy("service", "b", "c"), "bob,carol", ""},
		{"a policy may allow a Domain port, and then denies the others",
			[]kuscia.Party{party("alice", "a"), party("bob", "b")},
			policy("internal", "a", "b"), "", "alice,bob"},
	}
	for _, c := range cases {
		v := validVersion()
		v.Spec.Parties, v.Spec.Initiator = c.parties, c.parties[0].DomainID
		deploy(&v).NetworkPolicy = c.policy
		services := render(t, v).Services
		require.Equal(t, c.service, services[0].Annotations["kuscia.secretflow/access-domain"], c.reason)
		require.Equal(t, c.internal, services[1].Annotations["kuscia.secretflow/access-domain"], c.reason)
	}
}
