// Package admission decides which servings and builds a party accepts. The party's own worker applies it right before
// it writes, because a party does not rely on the checks of the centre.
package admission

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/podpolicy"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/strictyaml"
)

// Policy is what a party allows for the pods of servings and builds, in addition to its policy for all releases
// (podpolicy). The zero value allows everything except privileges, the tokens of service accounts, and in builds the
// features of pods that no build needs.
//
// There is a rule for every feature of such pods that reaches beyond them. Pods of a serving have no volumes except
// their configuration files, run as the namespace's default service account without its token, and share nothing with
// their node, regardless of the AppImage. Pods of a build are defined by the catalogue (CheckBuild).
type Policy struct {
	// ImagePrefixes are the repositories from which images may come; nil means any.
	ImagePrefixes []string
	// Privileged allows containers more privileges than a container runtime grants by default.
	Privileged bool
	// Secrets are the Secrets that pods may read; nil means any of the namespace, a non-nil empty list none.
	Secrets []string
	// ServiceAccounts are the service accounts that builds may use, with their tokens; all other builds run as the
	// default one, without its token.
	ServiceAccounts []string
	// Volumes are the types of volumes that builds may have; nil means buildVolumes, and any with Privileged.
	Volumes []string
	// PodFields are fields of pods that builds may set in addition to buildFields.
	PodFields []string
	// AnyFeature allows builds every field of pods, and the volumes of confined, that are no privilege.
	AnyFeature bool
}

// The names of the rules in policy documents and refusals; the others are podpolicy's.
const (
	rulePrivileged = "privileged"
	rulePodFields  = "podFields.allowed"
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

// lists returns the rules that are lists of what all pods may use.
func (p Policy) lists() podpolicy.Lists {
	return podpolicy.Lists{ImagePrefixes: p.ImagePrefixes, Secrets: p.Secrets}
}

// violations returns the rules that a container violates, as one clause each.
func (p Policy) violations(c corev1.Container) []string {
	broken := phrase.Each(p.lists().Container(c), podpolicy.Violation.String)
	requested := privileges(c.SecurityContext)
	for _, field := range slices.Sorted(maps.Keys(podpolicy.HostHandlers(c))) {
		requested.add(true, field+".host is set")
	}
	return append(broken, p.requests("container "+c.Name+": ", requested)...)
}

// requests returns the violations of a container or a pod by the privileges that it requests.
func (p Policy) requests(of string, privileges fields) (broken []string) {
	for _, privilege := range privileges {
		if !p.Privileged {
			broken = append(broken, violation(rulePrivileged, "%s%s", of, privilege))
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

// Decode parses a policy from YAML or JSON strictly and reports every error at once. A key without a value is an error,
// so that an unfinished rule is not taken for one that allows everything.
func Decode(data []byte) (Policy, strictyaml.Errors) {
	root, found, ok := strictyaml.Parse(data)
	if !ok {
		return Policy{}, found.Sorted()
	}
	m := root.Mapping("images", "privileged", "secrets", "serviceAccounts", "volumes", "podFields")
	lists := podpolicy.DecodeLists(found, m)
	p := Policy{Privileged: m.Field("privileged").Bool(), ImagePrefixes: lists.ImagePrefixes, Secrets: lists.Secrets,
		ServiceAccounts: lists.ServiceAccounts, Volumes: lists.Volumes}
	if pod := m.Field("podFields"); pod.Present() {
		p.PodFields = podpolicy.DecodeList(found, pod, "allowed", podpolicy.OneOf("a field of a pod's spec", podFields))
	}
	return p, found.Sorted()
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
