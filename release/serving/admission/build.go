package admission

import (
	"cmp"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// defaultAccount is the service account that every namespace has.
const defaultAccount = "default"

// CheckBuild refuses the Job of a build that violates rules, and lists all violations. The catalogue defines the
// complete pod, so more fields are checked than for servings: init containers, volumes, the node, the service account.
func (p Policy) CheckBuild(job *batchv1.Job) error {
	pod := job.Spec.Template.Spec
	var broken []string
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		broken = append(broken, p.violations(c)...)
	}
	refuse := func(rule, format string, args ...any) {
		broken = append(broken, fmt.Sprintf("%s (rule %s)", fmt.Sprintf(format, args...), rule))
	}
	if !p.Privileged {
		for _, privilege := range podPrivileges(pod) {
			refuse(rulePrivileged, "%s", privilege)
		}
	}
	if p.Secrets != nil {
		for _, r := range secretVolumes(pod.Volumes) {
			if !slices.Contains(p.Secrets, r.secret) {
				refuse(ruleSecrets, "%s reads Secret %s", r.field, r.secret)
			}
		}
	}
	if account := accountOf(pod); !slices.Contains(p.ServiceAccounts, account) {
		for _, field := range accountUses(pod, account) {
			refuse(ruleAccounts, "%s needs service account %s", field, account)
		}
	}
	return refusal("Job "+job.Namespace+"/"+job.Name, broken, "Change build.jobTemplate in the catalogue")
}

func accountOf(pod corev1.PodSpec) string {
	return cmp.Or(pod.ServiceAccountName, pod.DeprecatedServiceAccount, defaultAccount)
}

// accountUses returns the fields by which a pod uses the permissions of its service account.
func accountUses(pod corev1.PodSpec, account string) []string {
	var uses []string
	if account != defaultAccount {
		uses = append(uses, "serviceAccountName")
	}
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
		uses = append(uses, "automountServiceAccountToken")
	}
	for _, v := range pod.Volumes {
		if v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
			return s.ServiceAccountToken != nil
		}) {
			uses = append(uses, "volume "+v.Name)
		}
	}
	return uses
}

// podPrivileges returns the privileges that a pod requests in addition to those that privileges finds in its
// containers, by field.
func podPrivileges(pod corev1.PodSpec) []string {
	var requested []string
	add := func(is bool, field string) {
		if is {
			requested = append(requested, field)
		}
	}
	add(pod.HostNetwork, "hostNetwork is true")
	add(pod.HostPID, "hostPID is true")
	add(pod.HostIPC, "hostIPC is true")
	add(pod.NodeName != "", "nodeName is set")
	add(len(pod.ResourceClaims) > 0, "resourceClaims is set")
	if sc := pod.SecurityContext; sc != nil {
		requested = append(requested, privilegesOfPod(sc)...)
	}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		add(slices.ContainsFunc(c.Ports, func(port corev1.ContainerPort) bool {
			return port.HostPort != 0
		}), "container "+c.Name+": hostPort is set")
		add(isHostProcess(c.SecurityContext), "container "+c.Name+
			": securityContext.windowsOptions.hostProcess is true")
	}
	for _, v := range pod.Volumes {
		add(!confined(v.VolumeSource), "volume "+v.Name+" is of a type that reaches beyond the namespace")
	}
	return requested
}

func privilegesOfPod(sc *corev1.PodSecurityContext) []string {
	var requested []string
	for _, field := range privileges(&corev1.SecurityContext{SELinuxOptions: sc.SELinuxOptions,
		SeccompProfile:  sc.SeccompProfile,
		AppArmorProfile: sc.AppArmorProfile}) {
		requested = append(requested, "securityContext."+field)
	}
	if len(sc.Sysctls) > 0 {
		requested = append(requested, "securityContext.sysctls is set")
	}
	if o := sc.WindowsOptions; o != nil && o.HostProcess != nil && *o.HostProcess {
		requested = append(requested, "securityContext.windowsOptions.hostProcess is true")
	}
	return requested
}

func isHostProcess(sc *corev1.SecurityContext) bool {
	return sc != nil && sc.WindowsOptions != nil && sc.WindowsOptions.HostProcess != nil &&
		*sc.WindowsOptions.HostProcess
}

// confined reports whether a volume only gives access to objects of the namespace.
func confined(v corev1.VolumeSource) bool {
	return v.EmptyDir != nil || v.Secret != nil || v.ConfigMap != nil || v.DownwardAPI != nil || v.Projected != nil ||
		v.PersistentVolumeClaim != nil || v.Ephemeral != nil || v == corev1.VolumeSource{}
}

// secretVolumes returns the Secrets that the volumes of a pod contain.
func secretVolumes(volumes []corev1.Volume) []reference {
	var all []reference
	for _, v := range volumes {
		if v.Secret != nil {
			all = append(all, reference{"volume " + v.Name, v.Secret.SecretName})
		}
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.Secret != nil {
				all = append(all, reference{"volume " + v.Name, s.Secret.Name})
			}
		}
	}
	return all
}
