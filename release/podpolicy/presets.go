package podpolicy

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/pod-security-admission/api"
	standards "k8s.io/pod-security-admission/policy" // the API server's own implementation
)

// check is one check of the Pod Security Standards.
type check struct {
	id  standards.CheckID
	pod standards.CheckPodFn
	// inherits is true if the security context of the pod counts for containers that set none. Other checks judge it
	// separately.
	inherits bool
	// rule is the check's name in refusals.
	rule string
}

// checks are those of the presets, in the newest version of the standards that the library knows.
var checks = map[Preset][]check{Baseline: checksOf(api.LevelBaseline), Restricted: checksOf(api.LevelRestricted)}

// checksOf returns the checks of a level in the order of their names. A check of the level restricted replaces those of
// baseline that it overrides.
func checksOf(level api.Level) (all []check) {
	var overridden []standards.CheckID
	for _, c := range standards.DefaultChecks() {
		if c.Level != api.LevelBaseline && c.Level != level {
			continue
		}
		newest := c.Versions[len(c.Versions)-1]
		overridden = append(overridden, newest.OverrideCheckIDs...)
		all = append(all, check{id: c.ID, pod: newest.CheckPod, inherits: c.Level == api.LevelRestricted,
			rule: string(c.Level) + "." + string(c.ID)})
	}
	all = slices.DeleteFunc(all, func(c check) bool { return slices.Contains(overridden, c.id) })
	slices.SortFunc(all, func(a, b check) int { return strings.Compare(a.rule, b.rule) })
	return all
}

// presetViolations returns the violations of the preset. Each check sees the pod without its parts, and then each
// container and each volume alone, so that every violation belongs to one of them.
func (p Policy) presetViolations(t *corev1.PodTemplateSpec) (broken []Violation) {
	alone := t.Spec
	alone.InitContainers, alone.Containers, alone.EphemeralContainers, alone.Volumes = nil, nil, nil, nil
	for _, c := range checks[p.preset()] {
		run := func(meta metav1.ObjectMeta, pod corev1.PodSpec, fields any) {
			if result := c.pod(&meta, &pod); !result.Allowed {
				broken = append(broken, violation(c.rule, fields, "%s: %s", result.ForbiddenReason,
					result.ForbiddenDetail))
			}
		}
		run(t.ObjectMeta, alone, c.podFields(t.Spec.SecurityContext))
		for _, container := range containersOf(&t.Spec) {
			pod := corev1.PodSpec{OS: t.Spec.OS, HostUsers: t.Spec.HostUsers,
				Containers: []corev1.Container{container}}
			if c.inherits {
				pod.SecurityContext = t.Spec.SecurityContext
			}
			run(metav1.ObjectMeta{}, pod, c.containerFields(container))
		}
		for _, volume := range t.Spec.Volumes {
			run(metav1.ObjectMeta{}, corev1.PodSpec{OS: t.Spec.OS, Volumes: []corev1.Volume{volume}}, volume)
		}
	}
	return broken
}

// podFields returns the fields of a pod whose values the messages of a check do not contain.
func (c check) podFields(sc *corev1.PodSecurityContext) any {
	switch {
	case sc == nil:
	case c.id == "sysctls":
		return sc.Sysctls
	case c.id == "seLinuxOptions":
		return sc.SELinuxOptions
	}
	return nil
}

// containerFields returns the fields of a container whose values the messages of a check do not contain.
func (c check) containerFields(container corev1.Container) any {
	switch c.id {
	case "hostPorts":
		return slices.DeleteFunc(slices.Clone(container.Ports), func(p corev1.ContainerPort) bool {
			return p.HostPort == 0
		})
	case "hostProbesAndHostLifecycle":
		return HostHandlers(container)
	case "seLinuxOptions":
		if sc := container.SecurityContext; sc != nil {
			return sc.SELinuxOptions
		}
	}
	return nil
}

// HostHandlers returns the probes and lifecycle hooks of a container that name a host, by field: the kubelet would ask
// that host from the network of its node.
func HostHandlers(c corev1.Container) map[string]any {
	found := map[string]any{}
	add := func(field string, http *corev1.HTTPGetAction, tcp *corev1.TCPSocketAction) {
		if http != nil && http.Host != "" {
			found[field+".httpGet"] = http
		}
		if tcp != nil && tcp.Host != "" {
			found[field+".tcpSocket"] = tcp
		}
	}
	for field, probe := range map[string]*corev1.Probe{"livenessProbe": c.LivenessProbe,
		"readinessProbe": c.ReadinessProbe, "startupProbe": c.StartupProbe} {
		if probe != nil {
			add(field, probe.HTTPGet, probe.TCPSocket)
		}
	}
	if c.Lifecycle != nil {
		for field, hook := range map[string]*corev1.LifecycleHandler{"lifecycle.postStart": c.Lifecycle.PostStart,
			"lifecycle.preStop": c.Lifecycle.PreStop} {
			if hook != nil {
				add(field, hook.HTTPGet, hook.TCPSocket)
			}
		}
	}
	return found
}
