package serving

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// bad refuses something about the AppImage of a party.
func (d deployed) bad(f *findings, format string, args ...any) {
	f.refuse(ReasonBuildPartyKitInfoFailed, "%s: AppImage %s, deploy template %q: "+format,
		append([]any{partyName(d.party), d.party.AppImageRef, d.template.Name}, args...)...)
}

// checkImage is what concerns the party's template, ports apart.
func (d deployed) checkImage(f *findings) {
	if d.image.Name == "" || d.image.Tag == "" {
		d.bad(f, "its image needs a name and a tag, and is %q:%q", d.image.Name, d.image.Tag)
	}
	if len(d.template.Spec.Containers) == 0 {
		d.bad(f, "it has no container: add one")
	}
	seen, metrics := map[string]bool{}, 0
	for _, c := range d.template.Spec.Containers {
		if bad := validation.IsDNS1123Label(c.Name); len(bad) > 0 {
			d.bad(f, "container %q does not have a legal name: %s", c.Name, strings.Join(bad, "; "))
		}
		if seen[c.Name] {
			d.bad(f, "container %s is there twice: rename one", c.Name)
		}
		seen[c.Name] = true
		d.checkEnv(f, c)
		d.checkMounts(f, c)
		d.checkResources(f, c)
		if c.MetricProbe != nil {
			metrics++
		}
	}
	if metrics > 1 {
		d.bad(f, "%d containers have a metricProbe, and a pod can have one: keep one of them", metrics)
	}
	for _, name := range slices.Sorted(maps.Keys(d.configs)) {
		if bad := validation.IsConfigMapKey(name); len(bad) > 0 {
			d.bad(f, "config template %q does not have a legal name: %s", name, strings.Join(bad, "; "))
		}
	}
}

// checkEnv refuses variables that are there twice: it would be chance which of them an application reads.
func (d deployed) checkEnv(f *findings, c kuscia.Container) {
	seen := map[string]bool{}
	for _, g := range d.given(nil) {
		seen[g.name] = true
	}
	ours := maps.Clone(seen)
	for _, e := range c.Env {
		switch {
		case ours[e.Name]:
			d.bad(f, "container %s sets %s, which every serving's containers are given: leave it out", c.Name, e.Name)
		case seen[e.Name]:
			d.bad(f, "container %s sets %s twice: keep one of them", c.Name, e.Name)
		case e.Name == "":
			d.bad(f, "container %s has an environment variable without a name: name it", c.Name)
		}
		seen[e.Name] = true
	}
}

func (d deployed) checkMounts(f *findings, c kuscia.Container) {
	places := map[string]bool{}
	for _, m := range c.ConfigVolumeMounts {
		if _, found := d.configs[m.SubPath]; !found {
			d.bad(f, "container %s mounts the config template %q, which is not there: name one of the configTemplates as subPath", c.Name, m.SubPath)
		}
		if m.MountPath == "" || places[m.MountPath] {
			d.bad(f, "container %s mounts %s at %q: give each file a path of its own", c.Name, m.SubPath, m.MountPath)
		}
		places[m.MountPath] = true
	}
}

// checkResources looks at what a container asks for and may use, with the party's own values.
func (d deployed) checkResources(f *findings, c kuscia.Container) {
	type amount struct {
		kind string
		list corev1.ResourceList
	}
	for _, a := range []amount{{"requests", c.Resources.Requests}, {"limits", c.Resources.Limits}} {
		for _, name := range slices.Sorted(maps.Keys(a.list)) {
			if q := a.list[name]; q.Sign() < 0 {
				f.refuse(ReasonValidateFailed, "%s: container %s has negative %s of %s: %s", partyName(d.party), c.Name, a.kind, name, q.String())
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Resources.Requests)) {
		least := c.Resources.Requests[name]
		most, bounded := c.Resources.Limits[name]
		if bounded && least.Cmp(most) > 0 {
			f.refuse(ReasonValidateFailed, "%s: container %s asks for %s of %s and may use only %s: the minimum must not be above the maximum",
				partyName(d.party), c.Name, least.String(), name, most.String())
		}
	}
}

// checkPorts is what concerns the ports of the pod, and all that names one.
func (d deployed) checkPorts(f *findings) {
	refuse := func(format string, args ...any) {
		f.refuse(ReasonAllocatePortsFailed, "%s: AppImage %s: "+format, append([]any{partyName(d.party), d.party.AppImageRef}, args...)...)
	}
	if len(d.ports) > maxPorts {
		refuse("it has %d ports, and at most %d are possible", len(d.ports), maxPorts)
		return
	}
	names, numbers := map[string]bool{}, map[int32]string{}
	for _, p := range d.ports {
		if bad := validation.IsValidPortName(p.Name); len(bad) > 0 {
			refuse("port %q does not have a legal name: %s", p.Name, strings.Join(bad, "; "))
			continue
		}
		if names[p.Name] {
			refuse("duplicate port %q: a pod's ports need names of their own, whichever container they are of", p.Name)
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

func (d deployed) checkPort(refuse func(string, ...any), p kuscia.ContainerPort) {
	if p.Port < 1 || p.Port > 65535 {
		refuse("port %s has number %d: a number is from 1 to 65535, and 0 or none has one allocated", p.Name, p.Port)
	}
	if p.Protocol != kuscia.ProtocolHTTP && p.Protocol != kuscia.ProtocolGRPC {
		refuse("port %s has protocol %q: use %s or %s", p.Name, p.Protocol, kuscia.ProtocolHTTP, kuscia.ProtocolGRPC)
	}
	switch p.Scope {
	case kuscia.ScopeLocal:
	case kuscia.ScopeCluster, kuscia.ScopeDomain:
		name := serviceName(d.party, d.name, p.Name)
		if bad := validation.IsDNS1035Label(name); len(bad) > 0 {
			refuse("the Service of port %s would be called %q, which is not a legal name: %s", p.Name, name, strings.Join(bad, "; "))
		}
	default:
		refuse("port %s has scope %q: use %s, %s or %s", p.Name, p.Scope, kuscia.ScopeCluster, kuscia.ScopeDomain, kuscia.ScopeLocal)
	}
}

// checkReferences looks for the ports that probes and the network policy name.
func (d deployed) checkReferences(refuse func(string, ...any), names map[string]bool) {
	for _, c := range d.template.Spec.Containers {
		own := map[string]bool{}
		for _, p := range c.Ports {
			own[p.Name] = true
		}
		for _, probe := range []struct {
			name string
			*corev1.Probe
		}{{"livenessProbe", c.LivenessProbe}, {"readinessProbe", c.ReadinessProbe}, {"startupProbe", c.StartupProbe}} {
			if name, found := probePort(probe.Probe); found && !own[name] {
				refuse("%s of container %s asks port %q, which that container does not have: name one of its ports", probe.name, c.Name, name)
			}
		}
		if c.MetricProbe != nil && !names[c.MetricProbe.Port] {
			refuse("metricProbe of container %s asks port %q, which is not there: name one of the ports", c.Name, c.MetricProbe.Port)
		}
	}
	if d.template.NetworkPolicy == nil {
		return
	}
	for _, in := range d.template.NetworkPolicy.Ingresses {
		for _, p := range in.Ports {
			if !names[p.Port] {
				refuse("networkPolicy names port %q, which is not there: name one of the ports", p.Port)
			}
		}
	}
}

// probePort is the name of the port that a probe asks, if it asks one by name.
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
