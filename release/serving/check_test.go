package serving_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

// sound returns a valid version: two parties, a container with two ports and a file.
func validVersion() serving.Version {
	party := func(domain string) kuscia.Party { return kuscia.Party{DomainID: domain, AppImageRef: "app"} }
	return serving.Version{
		ID: "s1", UID: "u1", AppType: kuscia.AppTypeServing,
		Spec: kuscia.KusciaDeploymentSpec{Initiator: "alice", Parties: []kuscia.Party{party("alice"), party("bob")}},
		AppImages: map[string]kuscia.AppImageSpec{"app": {
			Image:           kuscia.AppImageInfo{Name: "app", Tag: "1"},
			ConfigTemplates: map[string]string{"app.conf": "{{.SERVING_ID}}"},
			DeployTemplates: []kuscia.DeployTemplate{{Name: "all",
				Spec: kuscia.PodTemplate{Containers: []kuscia.Container{{
					Name:               "main",
					ConfigVolumeMounts: []kuscia.ConfigVolumeMount{{MountPath: "/app.conf", SubPath: "app.conf"}},
					Ports: []kuscia.ContainerPort{
						{Name: "service", Port: 8000, Scope: kuscia.ScopeCluster, Protocol: kuscia.ProtocolHTTP},
						{Name: "internal", Scope: kuscia.ScopeDomain},
					},
				}}}}},
		}},
	}
}

// The parts of a version that test cases change.
func alice(v *serving.Version) *kuscia.Party            { return &v.Spec.Parties[0] }
func template(v *serving.Version) *kuscia.PartyTemplate { return &v.Spec.Parties[0].Template }
func image(v *serving.Version, change func(*kuscia.AppImageSpec)) {
	spec := v.AppImages["app"]
	change(&spec)
	v.AppImages["app"] = spec
}
func deploy(v *serving.Version) *kuscia.DeployTemplate { return &v.AppImages["app"].DeployTemplates[0] }
func container(v *serving.Version) *kuscia.Container   { return &deploy(v).Spec.Containers[0] }
func own(v *serving.Version, spec corev1.PodSpec)      { template(v).Spec = &spec }

func rolling(surge, unavailable intstr.IntOrString) *appsv1.DeploymentStrategy {
	return &appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &surge, MaxUnavailable: &unavailable}}
}

func amounts(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

type refusal struct {
	reason  string
	change  func(*serving.Version)
	party   int
	word    string
	message string
}

const (
	word1 = serving.ReasonValidateFailed
	word2 = serving.ReasonBuildPartyKitInfoFailed
	word3 = serving.ReasonAllocatePortsFailed
	word4 = serving.ReasonCreateConfigMapFailed
)

var wholeRefusals = []refusal{
	{"an ID has to be a valid Kubernetes name", func(v *serving.Version) {
		v.ID = "a..b"
	}, -1, word1, `serving ID "a..b" is not a legal name`},
	{"an ID is a label of all objects, which is shorter than a name", func(v *serving.Version) {
		v.ID = strings.Repeat("a", 64)
	}, -1, word1, "cannot be a label"},
	{"the app type is a label too", func(v *serving.Version) {
		v.AppType = "a b"
	}, -1, word1, `app type "a b" cannot be a label`},
	{"an unknown affinity mode is refused", func(v *serving.Version) {
		v.AffinityMode = "near"
	}, -1, word1, `affinity mode "near" is not known: use none, affinity or anti-affinity`},
	{"an input config has to fit into an environment variable", func(v *serving.Version) {
		v.Spec.InputConfig = strings.Repeat("x", serving.MaxInputConfig+1)
	}, -1, word1, "has 122881 bytes, and at most 122880 fit"},
	{"an environment variable ends at a NUL byte", func(v *serving.Version) {
		v.Spec.InputConfig = "a\x00b"
	}, -1, word1, "NUL byte"},
	{"a serving needs parties", func(v *serving.Version) {
		v.Spec.Parties = nil
	}, -1, word1, "parties can not be empty"},
	{"a serving needs an initiator", func(v *serving.Version) {
		v.Spec.Initiator = ""
	}, -1, word1, "initiator can not be empty"},
	{"the initiator is a party", func(v *serving.Version) {
		v.Spec.Initiator = "carol"
	}, -1, word1, "initiator carol should be one of the parties"},
	{"two parties of one domain and role would share a Deployment", func(v *serving.Version) {
		v.Spec.Parties[1].DomainID = "alice"
	}, -1, word1, "parties[1] is party alice again, like parties[0]"},
	{"two parties with one prefix would share a Service", func(v *serving.Version) {
		v.Spec.Parties[1] = kuscia.Party{DomainID: "alice", Role: "second", AppImageRef: "app", ServiceNamePrefix: "s1"}
	}, -1, serving.ReasonCreateServiceFailed, "Service s1-service of port service of party alice/second is also that " +
		"of port service of party alice"},
	{"CLUSTER_DEFINE has to fit into an environment variable", func(v *serving.Version) {
		for i := range 1500 {
			v.Spec.Parties = append(v.Spec.Parties,
				kuscia.Party{DomainID: fmt.Sprintf("domain-%d", i), AppImageRef: "app"})
		}
		image(v, func(spec *kuscia.AppImageSpec) { spec.ConfigTemplates = nil })
		container(v).ConfigVolumeMounts = nil
	}, -1, serving.ReasonFillPartyClusterDefinesFailed, "has to fit an environment variable"},
}

var partyRefusals = []refusal{
	{"a domain is a namespace", func(v *serving.Version) {
		alice(v).DomainID, v.Spec.Initiator = "Alice", "Alice"
	}, 0, word1, `domain ID "Alice" is not a legal name of a namespace`},
	{"a prefix begins a name", func(v *serving.Version) {
		alice(v).ServiceNamePrefix = "9ab"
	}, 0, word1,
		`service name prefix "9ab" is invalid: regex used for validation is "^[a-z]([-a-z0-9]{0,46}[a-z0-9])?$"`},
	{"replicas cannot be negative", func(v *serving.Version) {
		template(v).Replicas = new(int32(-1))
	}, 0, word1, "replicas must not be negative, but -1 are requested"},
	{"replicas of an AppImage cannot be negative", func(v *serving.Version) {
		deploy(v).Replicas = new(int32(-2))
	}, 0, word1, "but -2 are requested"},
	{"a role is part of names", func(v *serving.Version) {
		alice(v).Role = "Server"
	}, 0, word1, `its Deployment would be called "s1-Server", which is not a legal name`},
	{"a Deployment's name is a label", func(v *serving.Version) {
		alice(v).Role = strings.Repeat("r", 61)
	}, 0, word1, "which is not a legal name: must be no more than 63"},
	{"there are two strategies", func(v *serving.Version) {
		template(v).Strategy = &appsv1.DeploymentStrategy{Type: "OnDelete"}
	}, 0, word1, "update strategy type should be Recreate or RollingUpdate for party/role alice/"},
	{"Recreate replaces all pods at once", func(v *serving.Version) {
		template(v).Strategy = &appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDeployment{}}
	}, 0, word1, "its strategy is Recreate, which has no rollingUpdate"},
	{"without surge and unavailability no pod can be replaced", func(v *serving.Version) {
		template(v).Strategy = rolling(intstr.FromInt32(0), intstr.FromString("0%"))
	}, 0, word1, "maxSurge and maxUnavailable are both 0"},
	{"a maximum is a number or a percentage", func(v *serving.Version) {
		template(v).Strategy = rolling(intstr.FromString("1"), intstr.FromInt32(1))
	}, 0, word1, `maxSurge must be a number like 1 or a percentage like 25%, not "1"`},
	{"a maximum is not negative", func(v *serving.Version) {
		template(v).Strategy = rolling(intstr.FromInt32(1), intstr.FromInt32(-1))
	}, 0, word1, `maxUnavailable must be a number like 1`},
	{"at most 100% of the pods can be unavailable", func(v *serving.Version) {
		template(v).Strategy = rolling(intstr.FromInt32(1), intstr.FromString("101%"))
	}, 0, word1, "maxUnavailable must not be more than 100%"},
	{"an unsupported field of a party's pod is refused", func(v *serving.Version) {
		own(v, corev1.PodSpec{HostNetwork: true})
	}, 0, word1, "template.spec.hostNetwork is not supported"},
	{"an unsupported field of a party's container is refused", func(v *serving.Version) {
		own(v, corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "other:2"}}})
	}, 0, word1, "image of a container in template.spec is not supported"},
	{"resource claims are not supported", func(v *serving.Version) {
		own(v, corev1.PodSpec{Containers: []corev1.Container{{Name: "main",
			Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}}}}})
	}, 0, word1, "resources.claims of container main"},
	{"the effective resources would be ambiguous", func(v *serving.Version) {
		own(v, corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}, {Name: "main"}}})
	}, 0, word1, `names container "main" twice`},
	{"resources of a container that does not exist would be ignored", func(v *serving.Version) {
		own(v, corev1.PodSpec{Containers: []corev1.Container{{Name: "zz"}}})
	}, 0, word2, `template.spec has a container "zz", which AppImage app does not have: it has main.`},
	{"the minimum is not above the maximum", func(v *serving.Version) {
		container(v).Resources.Limits = amounts("cpu", "1")
		own(v, corev1.PodSpec{Containers: []corev1.Container{{Name: "main",
			Resources: corev1.ResourceRequirements{Requests: amounts("cpu", "2")}}}})
	}, 0, word1, "container main asks for 2 of cpu and may use only 1"},
	{"requests cannot be negative", func(v *serving.Version) {
		container(v).Resources.Requests = amounts("memory", "-1Mi")
	}, 0, word1, "negative requests of memory: -1Mi"},
	{"an AppImage has to exist", func(v *serving.Version) {
		alice(v).AppImageRef = "x"
	}, 0, word2, `can not get appimage x from cluster, appimages.kuscia.secretflow "x" not found`},
}

var imageRefusals = []refusal{
	{"a role needs a template", func(v *serving.Version) {
		deploy(v).Role = "server"
		alice(v).Role = "client"
	}, 0, word2, `AppImage app has no deploy template for role "client"`},
	{"an AppImage has a template", func(v *serving.Version) {
		image(v, func(s *kuscia.AppImageSpec) { s.DeployTemplates = nil })
	}, 0, word2, `no deploy template for role ""`},
	{"an image has a tag", func(v *serving.Version) {
		image(v, func(s *kuscia.AppImageSpec) { s.Image.Tag = "" })
	}, 0, word2, `its image needs a name and a tag, and is "app":""`},
	{"a pod has a container", func(v *serving.Version) {
		deploy(v).Spec.Containers = nil
	}, 0, word2, "it has no container"},
	{"a container has a legal name", func(v *serving.Version) {
		container(v).Name = "a_b"
	}, 0, word2, `container "a_b" does not have a legal name`},
	{"container names are unique", func(v *serving.Version) {
		deploy(v).Spec.Containers = append(deploy(v).Spec.Containers, kuscia.Container{Name: "main"})
	}, 0, word2, "container main appears twice"},
	{"injected variables cannot be overridden", func(v *serving.Version) {
		container(v).Env = []corev1.EnvVar{{Name: "SERVING_ID"}}
	}, 0, word2, "container main sets SERVING_ID, which is injected into every container of a serving"},
	{"the effective value would be ambiguous", func(v *serving.Version) {
		container(v).Env = []corev1.EnvVar{{Name: "A"}, {Name: "A"}}
	}, 0, word2, "container main sets A twice"},
	{"a variable has a name", func(v *serving.Version) {
		container(v).Env = []corev1.EnvVar{{Value: "1"}}
	}, 0, word2, "an environment variable without a name"},
	{"a mounted file exists", func(v *serving.Version) {
		container(v).ConfigVolumeMounts[0].SubPath = "zz"
	}, 0, word2, `mounts the config template "zz", which does not exist`},
	{"a file has a mount path", func(v *serving.Version) {
		container(v).ConfigVolumeMounts[0].MountPath = ""
	}, 0, word2, `mounts app.conf at ""`},
	{"a pod has one metrics endpoint", func(v *serving.Version) {
		container(v).MetricProbe = &kuscia.MetricProbe{Port: "service"}
		deploy(v).Spec.Containers = append(deploy(v).Spec.Containers,
			kuscia.Container{Name: "two", MetricProbe: &kuscia.MetricProbe{Port: "service"}})
	}, 0, word2, "2 containers have a metricProbe"},
	{"a file has a name that a ConfigMap can hold", func(v *serving.Version) {
		image(v, func(s *kuscia.AppImageSpec) { s.ConfigTemplates["a b"] = "" })
	}, 0, word2, `config template "a b" does not have a legal name`},
	{"a port has a valid Kubernetes port name", func(v *serving.Version) {
		container(v).Ports[0].Name = "brpc_builtin"
	}, 0, word3, `port "brpc_builtin" does not have a legal name`},
	{"port names are unique in a pod", func(v *serving.Version) {
		deploy(v).Spec.Containers = append(deploy(v).Spec.Containers,
			kuscia.Container{Name: "two", Ports: []kuscia.ContainerPort{{Name: "service"}}})
	}, 0, word3, `duplicate port "service"`},
	{"port numbers are unique", func(v *serving.Version) {
		container(v).Ports[1].Port = 8000
	}, 0, word3, "ports service and internal both have number 8000"},
	{"a port number is in range", func(v *serving.Version) {
		container(v).Ports[0].Port = 65536
	}, 0, word3, "port service has number 65536"},
	{"a protocol is one of Kuscia", func(v *serving.Version) {
		container(v).Ports[0].Protocol = "TCP"
	}, 0, word3, `port service has protocol "TCP": use HTTP or GRPC`},
	{"a scope is one of Kuscia", func(v *serving.Version) {
		container(v).Ports[0].Scope = "World"
	}, 0, word3, `port service has scope "World"`},
	{"a Service's name fits a label", func(v *serving.Version) {
		alice(v).ServiceNamePrefix = strings.Repeat("p", 48)
		container(v).Ports[0].Name = "fifteen-letters"
	}, 0, word3, "the Service of port fifteen-letters would be called"},
	{"the number of ports is limited", func(v *serving.Version) {
		for i := range 260 {
			container(v).Ports = append(container(v).Ports, kuscia.ContainerPort{Name: fmt.Sprintf("p%d", i)})
		}
	}, 0, word3, "it has 262 ports, and at most 256 are possible"},
	{"a probe uses a port of its container", func(v *serving.Version) {
		container(v).ReadinessProbe =
			&corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString(
				"zz")}}}
	}, 0, word3, `readinessProbe of container main uses port "zz"`},
	{"metrics come from a port of the pod", func(v *serving.Version) {
		container(v).MetricProbe = &kuscia.MetricProbe{Port: "zz"}
	}, 0, word3, `metricProbe of container main uses port "zz"`},
	{"a network policy names existing ports", func(v *serving.Version) {
		deploy(v).NetworkPolicy =
			&kuscia.NetworkPolicy{Ingresses: []kuscia.Ingress{{Ports: []kuscia.IngressPort{{Port: "zz"}}}}}
	}, 0, word3, `networkPolicy names port "zz"`},
	{"a configuration file that cannot be rendered is reported before anything is written", func(v *serving.Version) {
		image(v, func(s *kuscia.AppImageSpec) { s.ConfigTemplates["app.conf"] = "{{.X" })
	}, 0, word4, "party alice: config template app.conf of AppImage app does not parse"},
	{"files have to fit a ConfigMap together", func(v *serving.Version) {
		image(v, func(s *kuscia.AppImageSpec) {
			s.ConfigTemplates["app.conf"] = strings.Repeat("x", 600<<10)
			s.ConfigTemplates["b"] = strings.Repeat("x", 600<<10)
		})
	}, 0, word4, "become larger than 1048576 bytes together"},
	{"a file of one container does not take the name of another file", func(v *serving.Version) {
		image(v, func(s *kuscia.AppImageSpec) {
			s.ConfigTemplates = map[string]string{"f": "{{.A}}", "two.f": "x"}
		})
		mount := []kuscia.ConfigVolumeMount{{MountPath: "/f", SubPath: "f"}}
		container(v).ConfigVolumeMounts = mount
		deploy(v).Spec.Containers = append(deploy(v).Spec.Containers,
			kuscia.Container{Name: "two", Env: []corev1.EnvVar{{Name: "A", Value: "1"}}, ConfigVolumeMounts: mount})
	}, 0, word4, "differs for container two, and the name two.f is taken"},
}

func TestCheck_RefusesInvalidVersion(t *testing.T) {
	t.Parallel()
	require.Empty(t, validVersion().Check(), "the version that the cases change is valid")
	for _, group := range [][]refusal{wholeRefusals, partyRefusals, imageRefusals} {
		for _, c := range group {
			t.Run(c.reason, func(t *testing.T) {
				t.Parallel()
				v := validVersion()
				c.change(&v)
				var found []string
				for _, p := range v.Check() {
					if p.Party == c.party && p.Reason == c.word && strings.Contains(p.Message, c.message) {
						found = append(found, p.Message)
					}
				}
				require.Len(t, found, 1, "%s: %+v", c.reason, v.Check())

				_, err := serving.Render(v, 0)
				var refused *failure.Error
				require.ErrorAs(t, err, &refused, "a version with problems is not rendered")
				require.Equal(t, failure.Refused, refused.Kind)
				require.Contains(t, refused.Message, "serving "+v.ID)
			})
		}
	}
}

func TestCheck_ReportsAllProblems(t *testing.T) {
	t.Parallel()
	v := validVersion()
	v.AffinityMode = "near"
	v.Spec.Parties[0].Template.Replicas = new(int32(-1))
	v.Spec.Parties[1].ServiceNamePrefix = "9" // invalidates the names of two Services
	image(&v, func(s *kuscia.AppImageSpec) { s.ConfigTemplates["app.conf"] = "{{end}}" })
	var parties []int
	for _, p := range v.Check() {
		parties = append(parties, p.Party)
	}
	require.Equal(t, []int{serving.WholeServing, 0, 0, 1, 1, 1, 1}, parties,
		"first the whole serving, then party by party, so that all problems can be fixed at once")
}

func TestCheck_AcceptsValidEdgeCases(t *testing.T) {
	t.Parallel()
	cases := []struct {
		reason string
		change func(*serving.Version)
	}{
		{"an input config of the largest size fits", func(v *serving.Version) {
			v.Spec.InputConfig = strings.Repeat("x", serving.MaxInputConfig)
		}},
		{"zero values in a party's template are ignored", func(v *serving.Version) {
			own(v, corev1.PodSpec{NodeSelector: map[string]string{},
				Containers: []corev1.Container{{Name: "main", Env: []corev1.EnvVar{}}}})
		}},
		{"a serving may have no pods", func(v *serving.Version) { template(v).Replicas = new(int32(0)) }},
		{"a strategy without a type is RollingUpdate, as in Kubernetes", func(v *serving.Version) {
			template(v).Strategy = &appsv1.DeploymentStrategy{}
		}},
		{"one of the two maxima may be 0", func(v *serving.Version) {
			template(v).Strategy = rolling(intstr.FromInt32(1), intstr.FromInt32(0))
		}},
		{"requests may equal limits", func(v *serving.Version) {
			container(v).Resources = corev1.ResourceRequirements{Requests: amounts("cpu", "1"),
				Limits: amounts("cpu", "1000m")}
		}},
		{"an ID may have dots and begin with a digit", func(v *serving.Version) { v.ID = "9.a" }},
		{"two domains may have the same prefix", func(v *serving.Version) {
			v.Spec.Parties[0].ServiceNamePrefix, v.Spec.Parties[1].ServiceNamePrefix = "p", "p"
		}},
	}
	for _, c := range cases {
		v := validVersion()
		c.change(&v)
		require.Empty(t, v.Check(), c.reason)
	}
}
