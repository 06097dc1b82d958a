// Package admission decides which servings and builds a party accepts. The party's own worker applies it right before
// it writes, because a party does not rely on the checks of the centre.
package admission

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/strictyaml"
)

// Policy is what a party allows for the pods of servings and builds. The zero value, that of a party without a policy,
// allows everything except privileges and the tokens of service accounts.
//
// There is a rule for every feature of such pods that reaches beyond them. Pods of a serving have no volumes except
// their configuration files, run as the namespace's default service account without its token, and share nothing with
// their node, regardless of the AppImage. Pods of a build are defined by the catalogue (CheckBuild).
type Policy struct {
	// ImagePrefixes are the repositories from which images may come; nil means any.
	ImagePrefixes []string
	// Privileged allows containers more privileges than a container runtime grants by default.
	Privileged bool
	// Secrets are the Secrets that containers may read; nil means any of the namespace, a non-nil empty list none.
	Secrets []string
	// ServiceAccounts are the service accounts that builds may use, with their tokens; all other builds run as the
	// default one, without its token.
	ServiceAccounts []string
}

// The names of the rules in policy documents and refusals.
const (
	ruleImages     = "images.allowedPrefixes"
	rulePrivileged = "privileged"
	ruleSecrets    = "secrets.allowed"
	ruleAccounts   = "serviceAccounts.allowed"
)

// Check refuses a Deployment that violates rules, and lists all violations.
func (p Policy) Check(d *appsv1.Deployment) error {
	var broken []string
	for _, c := range d.Spec.Template.Spec.Containers {
		broken = append(broken, p.violations(c)...)
	}
	return refusal("Deployment "+d.Namespace+"/"+d.Name, broken, "Change the AppImage")
}

// refusal returns the failure of an object that violates rules; nil if it violates none.
func refusal(object string, broken []string, change string) error {
	if len(broken) == 0 {
		return nil
	}
	return failure.New(failure.Refused, "the party's policy refuses %s: %s. %s, or ask the party to change its policy",
		object, strings.Join(broken, "; "), change)
}

// violations returns the rules that a container violates, as one clause each.
func (p Policy) violations(c corev1.Container) []string {
	var broken []string
	of := "container " + c.Name + ": "
	if p.ImagePrefixes != nil && !slices.ContainsFunc(p.ImagePrefixes, func(prefix string) bool {
		return comesFrom(c.Image, prefix)
	}) {
		broken = append(broken, violation(ruleImages, "%simage %s comes from none of %s", of, c.Image,
			strings.Join(p.ImagePrefixes, ", ")))
	}
	return append(broken, p.requests(of, privileges(c.SecurityContext), secretsOf(c))...)
}

// requests returns the rules that a container or a pod violates by the privileges and Secrets that it requests.
func (p Policy) requests(of string, privileges fields, secrets []reference) (broken []string) {
	if !p.Privileged {
		for _, privilege := range privileges {
			broken = append(broken, violation(rulePrivileged, "%s%s", of, privilege))
		}
	}
	for _, r := range secrets {
		if p.Secrets != nil && !slices.Contains(p.Secrets, r.secret) {
			broken = append(broken, violation(ruleSecrets, "%s%s reads Secret %s", of, r.field, r.secret))
		}
	}
	return broken
}

func violation(rule, format string, args ...any) string {
	return fmt.Sprintf(format, args...) + " (rule " + rule + ")"
}

// fields are fields that request something.
type fields []string

func (f *fields) add(is bool, field string) {
	if is {
		*f = append(*f, field)
	}
}

// comesFrom reports whether an image belongs to the repository that prefix names, or is below it: registry.example/risk
// covers registry.example/risk:1 and registry.example/risk/score:1, but not registry.example/risky:1. A prefix that
// ends with / covers only what is below it.
func comesFrom(image, prefix string) bool {
	repository, _, _ := strings.Cut(image, "@")
	repository = source.WithoutTag(repository)
	return repository == prefix || strings.HasPrefix(repository, strings.TrimSuffix(prefix, "/")+"/")
}

// defaultCapabilities are the capabilities that container runtimes grant by default: requesting one of them is no
// privilege.
var defaultCapabilities = []corev1.Capability{
	"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP",
	"SETGID", "SETPCAP",
	"SETUID", "SYS_CHROOT",
}

// confinedTypes are the SELinux types with which container runtimes confine containers.
var confinedTypes = []string{"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}

// privileges returns the fields of a security context that request more than a container runtime grants by default.
func privileges(sc *corev1.SecurityContext) (requested fields) {
	if sc == nil {
		return nil
	}
	add := func(is bool, field string) { requested.add(is, "securityContext."+field) }
	add(sc.Privileged != nil && *sc.Privileged, "privileged is true")
	add(sc.AllowPrivilegeEscalation != nil && *sc.AllowPrivilegeEscalation, "allowPrivilegeEscalation is true")
	if sc.Capabilities != nil {
		for _, capability := range sc.Capabilities.Add {
			add(!slices.Contains(defaultCapabilities, capability), "capabilities.add has "+string(capability))
		}
	}
	add(sc.ProcMount != nil && *sc.ProcMount != corev1.DefaultProcMount, "procMount is not Default")
	add(sc.SeccompProfile != nil && sc.SeccompProfile.Type == corev1.SeccompProfileTypeUnconfined,
		"seccompProfile is Unconfined")
	add(sc.AppArmorProfile != nil && sc.AppArmorProfile.Type == corev1.AppArmorProfileTypeUnconfined,
		"appArmorProfile is Unconfined")
	if se := sc.SELinuxOptions; se != nil {
		add(se.User != "" || se.Role != "", "seLinuxOptions has a user or a role")
		add(!slices.Contains(confinedTypes, se.Type), "seLinuxOptions.type is "+se.Type)
	}
	return requested
}

// reference is a Secret that a field of a container or a volume reads.
type reference struct{ field, secret string }

func secretsOf(c corev1.Container) []reference {
	var all []reference
	for i, from := range c.EnvFrom {
		if from.SecretRef != nil {
			all = append(all, reference{fmt.Sprintf("envFrom[%d]", i), from.SecretRef.Name})
		}
	}
	for _, e := range c.Env {
		if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
			all = append(all, reference{"env " + e.Name, e.ValueFrom.SecretKeyRef.Name})
		}
	}
	return all
}

// Decode parses a policy from YAML or JSON strictly and reports every error at once. A key without a value is an error,
// so that an unfinished rule is not taken for one that allows everything.
func Decode(data []byte) (Policy, strictyaml.Errors) {
	root, found, ok := strictyaml.Parse(data)
	if !ok {
		return Policy{}, found.Sorted()
	}
	m := root.Mapping("images", "privileged", "secrets", "serviceAccounts")
	p := Policy{Privileged: m.Field("privileged").Bool()}
	if images := m.Field("images"); images.Present() {
		p.ImagePrefixes = decodeList(found, images, "allowedPrefixes", wrongPrefix)
		if images.Has("allowedPrefixes") && len(p.ImagePrefixes) == 0 {
			found.Refuse(0, ruleImages, "allows no image, and so no pod: name at least one prefix, or leave out images")
		}
	}
	if secrets := m.Field("secrets"); secrets.Present() {
		p.Secrets = decodeList(found, secrets, "allowed", wrongName("Secret"))
	}
	if accounts := m.Field("serviceAccounts"); accounts.Present() {
		p.ServiceAccounts = decodeList(found, accounts, "allowed", wrongName("ServiceAccount"))
	}
	return p, found.Sorted()
}

// decodeList parses a rule that is a list of texts under one required key. wrong returns what is wrong with an entry,
// "" if nothing is. The result is never nil: only listed entries are allowed.
func decodeList(found *strictyaml.Findings, rule strictyaml.Value, key string, wrong func(string) string) []string {
	field := rule.Mapping(key).Field(key)
	if !field.Present() {
		found.Refuse(0, rule.Path(), "needs the key %s", key)
	}
	all := []string{}
	for _, entry := range field.List() {
		text := entry.Text()
		if reason := wrong(text); text != "" && reason != "" {
			found.Refuse(0, entry.Path(), "%s %s", strictyaml.Quote(text), reason)
		}
		all = append(all, text)
	}
	return all
}

// wrongPrefix returns why no image can match a prefix; "" if one can.
func wrongPrefix(prefix string) string {
	switch {
	case strings.Contains(prefix, "://"):
		return "is a URL: leave out the scheme before the registry's name"
	case strings.Contains(prefix, "@"):
		return "names a digest: leave out the @ and everything after it"
	case source.WithoutTag(prefix) != prefix:
		return "names a tag: leave out the colon and everything after it; a registry with a port ends with /, as in " +
			"localhost:5000/"
	case strings.ContainsAny(prefix, " \t\n*?") || strings.HasPrefix(prefix, "/") || strings.Contains(prefix, "//"):
		return "is not a prefix of an image name: write it like registry.example/team/, without blanks and wildcards"
	}
	return ""
}

// wrongName returns a function that returns why a text is not the name of an object of that kind; "" if it is one.
func wrongName(kind string) func(string) string {
	return func(name string) string {
		if bad := validation.IsDNS1123Subdomain(name); len(bad) > 0 {
			return "is not the name of a " + kind + ": " + bad[0]
		}
		return ""
	}
}

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
	broken = append(broken, p.requests("", podPrivileges(pod), secretVolumes(pod.Volumes))...)
	account := cmp.Or(pod.ServiceAccountName, pod.DeprecatedServiceAccount, defaultAccount)
	if !slices.Contains(p.ServiceAccounts, account) {
		for _, field := range accountUses(pod, account) {
			broken = append(broken, violation(ruleAccounts, "%s needs service account %s", field, account))
		}
	}
	return refusal("Job "+job.Namespace+"/"+job.Name, broken, "Change build.jobTemplate in the catalogue")
}

// accountUses returns the fields by which a pod uses the permissions of its service account.
func accountUses(pod corev1.PodSpec, account string) (uses fields) {
	uses.add(account != defaultAccount, "serviceAccountName")
	uses.add(ptr.Deref(pod.AutomountServiceAccountToken, true), "automountServiceAccountToken")
	for _, v := range pod.Volumes {
		uses.add(slices.ContainsFunc(projections(v), func(s corev1.VolumeProjection) bool {
			return s.ServiceAccountToken != nil
		}), "volume "+v.Name)
	}
	return uses
}

func projections(v corev1.Volume) []corev1.VolumeProjection {
	return ptr.Deref(v.Projected, corev1.ProjectedVolumeSource{}).Sources
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

// secretVolumes returns the Secrets that the volumes of a pod contain.
func secretVolumes(volumes []corev1.Volume) []reference {
	var all []reference
	for _, v := range volumes {
		if v.Secret != nil {
			all = append(all, reference{"volume " + v.Name, v.Secret.SecretName})
		}
		for _, s := range projections(v) {
			if s.Secret != nil {
				all = append(all, reference{"volume " + v.Name, s.Secret.Name})
			}
		}
	}
	return all
}

// LabelServings of a namespace invites servings if its value is ServingsAllowed.
const (
	LabelServings   = "slipway.io/servings"
	ServingsAllowed = "allowed"
)

// NeedsInvitation reports whether a step needs the namespace's invitation. is is the current Deployment of that name,
// nil if there is none. A serving that runs in the namespace was invited: its version may be restored, and an update of
// it rolled back, even if the label was removed since. Otherwise withdrawing an invitation could leave half an update
// behind.
func NeedsInvitation(is *appsv1.Deployment, step serving.PartyRequest) bool {
	if is == nil || serving.OwnerOf(is, step.ID, step.UID) != serving.OwnerSame {
		return true
	}
	return !step.Source.Previous && is.Annotations[serving.AnnotationVersion] != step.Version
}

// CheckInvitation refuses a serving in a namespace that does not invite servings.
func CheckInvitation(namespace *corev1.Namespace) error {
	value, labelled := namespace.Labels[LabelServings]
	if value == ServingsAllowed {
		return nil
	}
	lacks, overwrite := "it has no label "+LabelServings+"="+ServingsAllowed, ""
	if labelled {
		lacks, overwrite = fmt.Sprintf("its label %s is %q, not %q", LabelServings, value, ServingsAllowed),
			" --overwrite"
	}
	return failure.New(failure.Refused, "namespace %[1]s does not take servings: %[2]s. To invite servings, run "+
		"`kubectl label namespace %[1]s %[3]s=%[4]s%[5]s`, then send the serving again", namespace.Name, lacks,
		LabelServings, ServingsAllowed, overwrite)
}
