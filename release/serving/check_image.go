package serving

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// checkImage checks the party's template except for its ports.
func (d renderInput) checkImage(f *findings) {
	refuse := f.about(ReasonBuildPartyKitInfoFailed,
		fmt.Sprintf("%s: AppImage %s, deploy template %q: ", partyName(d.party), d.party.AppImageRef, d.template.Name))
	if d.image.Name == "" || d.image.Tag == "" {
		refuse("its image needs a name and a tag, and is %q:%q", d.image.Name, d.image.Tag)
	}
	if len(d.template.Spec.Containers) == 0 {
		refuse("it has no container: add one")
	}
	seen, metrics := map[string]bool{}, 0
	for _, c := range d.template.Spec.Containers {
		refuse.unless(validation.IsDNS1123Label(c.Name), "container %q does not have a legal name", c.Name)
		if seen[c.Name] {
			refuse("container %s appears twice: rename one", c.Name)
		}
		seen[c.Name] = true
		d.checkEnv(refuse, c)
		d.checkMounts(refuse, c)
		checkResources(f.about(ReasonValidateFailed, fmt.Sprintf("%s: container %s ", partyName(d.party), c.Name)),
			c.Resources)
		if c.MetricProbe != nil {
			metrics++
		}
	}
	if metrics > 1 {
		refuse("%d containers have a metricProbe, and a pod can have one: keep one of them", metrics)
	}
	for _, name := range slices.Sorted(maps.Keys(d.configs)) {
		refuse.unless(validation.IsConfigMapKey(name), "config template %q does not have a legal name", name)
	}
}

// checkEnv refuses variables that are set twice: which value an application reads would be undefined.
func (d renderInput) checkEnv(refuse refusal, c kuscia.Container) {
	ours, seen := map[string]bool{}, map[string]bool{}
	for _, g := range d.injectedVariables(nil) {
		ours[g.name] = true
	}
	for _, e := range c.Env {
		switch {
		case ours[e.Name]:
			refuse("container %s sets %s, which is injected into every container of a serving: leave it out", c.Name,
				e.Name)
		case seen[e.Name]:
			refuse("container %s sets %s twice: keep one of them", c.Name, e.Name)
		case e.Name == "":
			refuse("container %s has an environment variable without a name: name it", c.Name)
		}
		seen[e.Name] = true
	}
}

func (d renderInput) checkMounts(refuse refusal, c kuscia.Container) {
	places := map[string]bool{}
	for _, m := range c.ConfigVolumeMounts {
		if _, found := d.configs[m.SubPath]; !found {
			refuse("container %s mounts the config template %q, which does not exist: name one of the "+
				"configTemplates as subPath", c.Name, m.SubPath)
		}
		if m.MountPath == "" || places[m.MountPath] {
			refuse("container %s mounts %s at %q: give each file its own path", c.Name, m.SubPath, m.MountPath)
		}
		places[m.MountPath] = true
	}
}

// checkResources checks the requests and limits of a container, merged with the party's own values.
func checkResources(refuse refusal, resources corev1.ResourceRequirements) {
	negative := func(kind string, list corev1.ResourceList) {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			if q := list[name]; q.Sign() < 0 {
				refuse("has negative %s of %s: %s", kind, name, q.String())
			}
		}
	}
	negative("requests", resources.Requests)
	negative("limits", resources.Limits)
	for _, name := range slices.Sorted(maps.Keys(resources.Requests)) {
		least := resources.Requests[name]
		if most, bounded := resources.Limits[name]; bounded && least.Cmp(most) > 0 {
			refuse("asks for %s of %s and may use only %s: the minimum must not be above the maximum", least.String(),
				name, most.String())
		}
	}
}

// checkPorts checks the ports of the pod, and all references to them.
func (d renderInput) checkPorts(refuse refusal) {
	if len(d.ports) > maxPorts {
		refuse("it has %d ports, and at most %d are possible", len(d.ports), maxPorts)
		return
	}
	names, numbers := map[string]bool{}, map[int32]string{}
	for _, p := range d.ports {
		bad := validation.IsValidPortName(p.Name)
		refuse.unless(bad, "port %q does not have a legal name", p.Name)
		if names[p.Name] {
			refuse("duplicate port %q: port names must be unique in a pod, also across containers", p.Name)
		}
		if len(bad) > 0 || names[p.Name] {
			continue
		}
		names[p.Name] = true
		if other, taken := numbers[p.Port]; taken {
			refuse("ports %s and %s both have number %d: give one of them another, or none", other, p.Name, p.Port)
		}
		numbers[p.Port] = p.Name
		d.checkPort(refuse, p)
	}
	d.checkReferences(refuse, names)
}

func (d renderInput) checkPort(refuse refusal, p kuscia.ContainerPort) {
	if p.Port < 1 || p.Port > 65535 {
		refuse("port %s has number %d: use a number from 1 to 65535, or 0 or none to have one allocated", p.Name,
			p.Port)
	}
	if p.Protocol != kuscia.ProtocolHTTP && p.Protocol != kuscia.ProtocolGRPC {
		refuse("port %s has protocol %q: use %s or %s", p.Name, p.Protocol, kuscia.ProtocolHTTP, kuscia.ProtocolGRPC)
	}
	switch p.Scope {
	case kuscia.ScopeLocal:
	case kuscia.ScopeCluster, kuscia.ScopeDomain:
		name := serviceName(d.party, d.name, p.Name)
		refuse.unless(validation.IsDNS1035Label(name),
			"the Service of port %s would be called %q, which is not a legal name", p.Name, name)
	default:
		refuse("port %s has scope %q: use %s, %s or %s", p.Name, p.Scope, kuscia.ScopeCluster, kuscia.ScopeDomain,
			kuscia.ScopeLocal)
	}
}

// checkReferences checks the ports that probes and the network policy reference.
func (d renderInput) checkReferences(refuse refusal, names map[string]bool) {
	for _, c := range d.template.Spec.Containers {
		own := map[string]bool{}
		for _, p := range c.Ports {
			own[p.Name] = true
		}
		check := func(kind string, probe *corev1.Probe) {
			if name, found := probePort(probe); found && !own[name] {
				refuse("%s of container %s uses port %q, which that container does not have: name one of its ports",
					kind, c.Name, name)
			}
		}
		check("livenessProbe", c.LivenessProbe)
		check("readinessProbe", c.ReadinessProbe)
		check("startupProbe", c.StartupProbe)
		if c.MetricProbe != nil && !names[c.MetricProbe.Port] {
			refuse("metricProbe of container %s uses port %q, which does not exist: name one of the ports", c.Name,
				c.MetricProbe.Port)
		}
	}
	if d.template.NetworkPolicy == nil {
		return
	}
	for _, in := range d.template.NetworkPolicy.Ingresses {
		for _, p := range in.Ports {
			if !names[p.Port] {
				refuse("networkPolicy names port %q, which does not exist: name one of the ports", p.Port)
			}
		}
	}
}

// probePort returns the name of the port that a probe uses; false if it uses none by name.
func probePort(probe *corev1.Probe) (string, bool) {
	var port intstr.IntOrString
	switch {
	case probe == nil:
		return "", false
	case probe.HTTPGet != nil:
		port = probe.HTTPGet.Port
	case probe.TCPSocket != nil:
		port = probe.TCPSocket.Port
	}
	return port.StrVal, port.Type == intstr.String
}
