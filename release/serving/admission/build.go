package admission

import (
	"reflect"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/podpolicy"
)

// CheckBuild refuses the Job of a build that violates rules, and lists all violations. The catalogue defines the
// complete pod, so more is checked than for servings: init containers, volumes, the node, the service account, and
// every field of the pod.
func (p Policy) CheckBuild(job *batchv1.Job) error {
	template := job.Spec.Template
	pod := template.Spec
	var broken []string
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		broken = append(broken, p.violations(c)...)
	}
	lists := p.lists()
	lists.ServiceAccounts, lists.Volumes = p.ServiceAccounts, p.volumes()
	found := append(lists.Pod(&pod), lists.Accounts(&pod)...)
	broken = append(broken, phrase.Each(found, podpolicy.Violation.String)...)
	broken = append(broken, p.requests("", append(podPrivileges(pod), appArmor(template.Annotations)...))...)
	for _, field := range p.surplusFields(pod) {
		broken = append(broken, violation(rulePodFields, "%s is set", field))
	}
	return refusal("Job "+job.Namespace+"/"+job.Name, broken, "Change build.jobTemplate in the catalogue")
}

// buildVolumes are the types of volumes that builds may have without a rule.
var buildVolumes = []string{"emptyDir", "secret", "configMap", "downwardAPI", "projected"}

// volumes returns the types of volumes that builds may have; nil means those that are no privilege.
func (p Policy) volumes() []string {
	if p.Volumes != nil || p.AnyFeature || p.Privileged {
		return p.Volumes
	}
	return buildVolumes
}

// buildFields are the fields of a pod that builds may set without a rule. Those of them that can reach beyond the pod
// have rules of their own.
var buildFields = []string{"volumes", "initContainers", "containers", "restartPolicy", "terminationGracePeriodSeconds",
	"activeDeadlineSeconds", "dnsPolicy", "dnsConfig", "nodeSelector", "serviceAccountName", "serviceAccount",
	"automountServiceAccountToken", "shareProcessNamespace", "securityContext", "imagePullSecrets", "hostname",
	"subdomain", "affinity", "hostAliases", "enableServiceLinks", "topologySpreadConstraints", "setHostnameAsFQDN",
	"os", "hostUsers", "resources",
	// judged by podPrivileges
	"hostNetwork", "hostPID", "hostIPC", "nodeName", "resourceClaims"}

// podFields are all fields of a pod's spec.
var podFields = func() (names []string) {
	for field := range reflect.TypeFor[corev1.PodSpec]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}()

// surplusFields returns the fields that a pod sets although the policy does not allow that. It is a list of what is
// allowed, so that a field that Kubernetes adds later is refused until a party allows it.
func (p Policy) surplusFields(pod corev1.PodSpec) (set fields) {
	if p.AnyFeature {
		return nil
	}
	if pod.SchedulerName == corev1.DefaultSchedulerName {
		pod.SchedulerName = ""
	}
	value := reflect.ValueOf(pod)
	for i, name := range podFields {
		set.add(!value.Field(i).IsZero() && !slices.Contains(buildFields, name) && !slices.Contains(p.PodFields, name),
			name)
	}
	return set
}

// appArmor returns the annotations that take the AppArmor profile of the container runtime from a container.
func appArmor(annotations map[string]string) (requested fields) {
	for name, profile := range annotations {
		container, is := strings.CutPrefix(name, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix)
		requested.add(is && profile != "" && profile != corev1.DeprecatedAppArmorBetaProfileRuntimeDefault &&
			!strings.HasPrefix(profile, corev1.DeprecatedAppArmorBetaProfileNamePrefix),
			"container "+container+": the annotation "+name+" is "+profile)
	}
	slices.Sort(requested)
	return requested
}

// podPrivileges returns the privileges that a pod requests in addition to those that privileges finds in its
// containers, by field.
func podPrivileges(pod corev1.PodSpec) (requested fields) {
	add := requested.add
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
		add(c.SecurityContext != nil && isHostProcess(c.SecurityContext.WindowsOptions), "container "+c.Name+
			": securityContext.windowsOptions.hostProcess is true")
	}
	for _, v := range pod.Volumes {
		add(!confined(v.VolumeSource), "volume "+v.Name+" is of a type that reaches beyond the namespace")
	}
	return requested
}

func privilegesOfPod(sc *corev1.PodSecurityContext) fields {
	requested := privileges(&corev1.SecurityContext{SELinuxOptions: sc.SELinuxOptions,
		SeccompProfile: sc.SeccompProfile, AppArmorProfile: sc.AppArmorProfile})
	requested.add(len(sc.Sysctls) > 0, "securityContext.sysctls is set")
	requested.add(isHostProcess(sc.WindowsOptions), "securityContext.windowsOptions.hostProcess is true")
	return requested
}

func isHostProcess(o *corev1.WindowsSecurityContextOptions) bool {
	return o != nil && ptr.Deref(o.HostProcess, false)
}

// confined reports whether a volume only gives access to objects of the namespace.
func confined(v corev1.VolumeSource) bool {
	return v.EmptyDir != nil || v.Secret != nil || v.ConfigMap != nil || v.DownwardAPI != nil || v.Projected != nil ||
		v.PersistentVolumeClaim != nil || v.Ephemeral != nil || v == corev1.VolumeSource{}
}
