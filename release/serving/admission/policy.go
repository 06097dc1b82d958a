package admission

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"slipway.io/slipway/release/failure"
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
		object,
		strings.Join(broken, "; "), change)
}

// violations returns the rules that a container violates, as one clause each.
func (p Policy) violations(c corev1.Container) []string {
	var broken []string
	refuse := func(rule, format string, args ...any) {
		broken = append(broken, fmt.Sprintf("container %s: %s (rule %s)", c.Name, fmt.Sprintf(format, args...), rule))
	}
	if p.ImagePrefixes != nil && !slices.ContainsFunc(p.ImagePrefixes, func(prefix string) bool {
		return comesFrom(c.Image, prefix)
	}) {
		refuse(ruleImages, "image %s comes from none of %s", c.Image, strings.Join(p.ImagePrefixes, ", "))
	}
	if !p.Privileged {
		for _, privilege := range privileges(c.SecurityContext) {
			refuse(rulePrivileged, "securityContext.%s", privilege)
		}
	}
	if p.Secrets != nil {
		for _, r := range secretsOf(c) {
			if !slices.Contains(p.Secrets, r.secret) {
				refuse(ruleSecrets, "%s reads Secret %s", r.field, r.secret)
			}
		}
	}
	return broken
}

// comesFrom reports whether an image belongs to the repository that prefix names, or is below it: registry.example/risk
// covers registry.example/risk:1 and registry.example/risk/score:1, but not registry.example/risky:1. A prefix that
// ends with / covers only what is below it.
func comesFrom(image, prefix string) bool {
	repository, _, _ := strings.Cut(image, "@")
	if at := tagAt(repository); at >= 0 {
		repository = repository[:at]
	}
	return repository == prefix || strings.HasPrefix(repository, strings.TrimSuffix(prefix, "/")+"/")
}

// tagAt returns the index of the colon before the tag of an image; -1 if there is no tag. A colon before a slash
// belongs to a registry's port.
func tagAt(image string) int {
	if at := strings.LastIndexByte(image, ':'); at > strings.LastIndexByte(image, '/') {
		return at
	}
	return -1
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
func privileges(sc *corev1.SecurityContext) []string {
	if sc == nil {
		return nil
	}
	var requested []string
	add := func(is bool, field string) {
		if is {
			requested = append(requested, field)
		}
	}
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
