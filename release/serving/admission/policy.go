package admission

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"slipway.io/slipway/release/failure"
)

// Policy is what a party allows the pods of servings and of builds. The zero value, of a party that says nothing, allows everything but
// privileges and the tokens of service accounts.
//
// There is a rule for whatever such pods can have that reaches beyond them. Those of a serving have no volumes but their configuration files,
// run as the namespace's default service account without its token, and share nothing with their node, whatever an AppImage says. Those of a
// build are what the catalogue says (CheckBuild).
type Policy struct {
	// ImagePrefixes are the repositories that images may come from; nil: any.
	ImagePrefixes []string
	// Privileged lets containers ask for more than a container runtime gives by default.
	Privileged bool
	// Secrets are those that containers may read; nil: any of the namespace. Not nil and empty: none.
	Secrets []string
	// ServiceAccounts are those that builds may run as, with their tokens; without a name here they run as the default one, without its token.
	ServiceAccounts []string
}

// The rules, as a policy's document and refusals call them.
const (
	ruleImages     = "images.allowedPrefixes"
	rulePrivileged = "privileged"
	ruleSecrets    = "secrets.allowed"
	ruleAccounts   = "serviceAccounts.allowed"
)

// Check refuses a Deployment that breaks rules, and names all that it breaks.
func (p Policy) Check(d *appsv1.Deployment) error {
	var broken []string
	for _, c := range d.Spec.Template.Spec.Containers {
		broken = append(broken, p.brokenBy(c)...)
	}
	return refusal("Deployment "+d.Namespace+"/"+d.Name, broken, "Change the AppImage")
}

// refusal is the failure of an object that breaks rules; nil when it breaks none.
func refusal(object string, broken []string, change string) error {
	if len(broken) == 0 {
		return nil
	}
	return failure.New(failure.Refused, "the party's policy refuses %s: %s. %s, or ask the party to change its policy", object,
		strings.Join(broken, "; "), change)
}

// brokenBy are the rules that a container breaks, a clause each.
func (p Policy) brokenBy(c corev1.Container) []string {
	var broken []string
	refuse := func(rule, format string, args ...any) {
		broken = append(broken, fmt.Sprintf("container %s: %s (rule %s)", c.Name, fmt.Sprintf(format, args...), rule))
	}
	if p.ImagePrefixes != nil && !slices.ContainsFunc(p.ImagePrefixes, func(prefix string) bool { return comesFrom(c.Image, prefix) }) {
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

// comesFrom says whether an image is of the repository that prefix names, or below it: registry.example/risk covers
// registry.example/risk:1 and registry.example/risk/score:1, and not registry.example/risky:1. A prefix that ends with / covers what is
// below it.
func comesFrom(image, prefix string) bool {
	repository, _, _ := strings.Cut(image, "@")
	if at := tagAt(repository); at >= 0 {
		repository = repository[:at]
	}
	return repository == prefix || strings.HasPrefix(repository, strings.TrimSuffix(prefix, "/")+"/")
}

// tagAt is where the tag of an image begins, with its colon; -1 without one. A colon before a slash is that of a registry's port.
func tagAt(image string) int {
	if at := strings.LastIndexByte(image, ':'); at > strings.LastIndexByte(image, '/') {
		return at
	}
	return -1
}

// defaultCapabilities are those that container runtimes give by default: asking for one of them asks for nothing.
var defaultCapabilities = []corev1.Capability{
	"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP",
	"SETUID", "SYS_CHROOT",
}

// confinedTypes are the SELinux types that container runtimes confine containers with.
var confinedTypes = []string{"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}

// privileges are what a container asks for beyond what a container runtime gives by default, as the fields of its security context.
func privileges(sc *corev1.SecurityContext) []string {
	if sc == nil {
		return nil
	}
	var asked []string
	ask := func(is bool, field string) {
		if is {
			asked = append(asked, field)
		}
	}
	ask(sc.Privileged != nil && *sc.Privileged, "privileged is true")
	ask(sc.AllowPrivilegeEscalation != nil && *sc.AllowPrivilegeEscalation, "allowPrivilegeEscalation is true")
	if sc.Capabilities != nil {
		for _, capability := range sc.Capabilities.Add {
			ask(!slices.Contains(defaultCapabilities, capability), "capabilities.add has "+string(capability))
		}
	}
	ask(sc.ProcMount != nil && *sc.ProcMount != corev1.DefaultProcMount, "procMount is not Default")
	ask(sc.SeccompProfile != nil && sc.SeccompProfile.Type == corev1.SeccompProfileTypeUnconfined, "seccompProfile is Unconfined")
	ask(sc.AppArmorProfile != nil && sc.AppArmorProfile.Type == corev1.AppArmorProfileTypeUnconfined, "appArmorProfile is Unconfined")
	if se := sc.SELinuxOptions; se != nil {
		ask(se.User != "" || se.Role != "", "seLinuxOptions has a user or a role")
		ask(!slices.Contains(confinedTypes, se.Type), "seLinuxOptions.type is "+se.Type)
	}
	return asked
}

// reference is a Secret that a field of a container reads.
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
