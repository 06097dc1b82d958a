package podpolicy

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"slipway.io/slipway/release/source"
)

// Lists are what pods may use. A nil list allows everything of its kind, a non-nil empty one nothing.
type Lists struct {
	// ImagePrefixes are the repositories from which images may come.
	ImagePrefixes []string
	// Secrets are the Secrets of the namespace that pods may read.
	Secrets []string
	// ServiceAccounts are the service accounts that pods may use, with their tokens. Pods of all others run as the
	// default one, without its token.
	ServiceAccounts []string
	// Volumes are the types of volumes that pods may have.
	Volumes []string
}

// The names of the rules in documents and refusals.
const (
	RuleImages        = "images.allowedPrefixes"
	RuleSecrets       = "secrets.allowed"
	RuleAccounts      = "serviceAccounts.allowed"
	RuleVolumes       = "volumes.allowed"
	ruleTemplatePatch = "templatePatch"
)

func (l Lists) open() bool {
	return l.ImagePrefixes == nil && l.Secrets == nil && l.ServiceAccounts == nil && l.Volumes == nil
}

// listViolations returns the violations of the lists.
func (l Lists) listViolations(t *corev1.PodTemplateSpec) (broken []Violation) {
	for _, c := range containersOf(&t.Spec) {
		broken = append(broken, l.Container(c)...)
	}
	broken = append(broken, l.Pod(&t.Spec)...)
	if l.ServiceAccounts != nil {
		broken = append(broken, l.Accounts(&t.Spec)...)
	}
	return broken
}

// Container returns the violations of a container by its image and the Secrets that it reads.
func (l Lists) Container(c corev1.Container) []Violation {
	of := "container " + c.Name + ": "
	return append(l.image(of, c.Image), l.secrets(of, secretsOf(c))...)
}

// Pod returns the violations of a pod by its volumes and its image pull Secrets.
func (l Lists) Pod(pod *corev1.PodSpec) (broken []Violation) {
	var pulls []reference
	for i, s := range pod.ImagePullSecrets {
		pulls = append(pulls, reference{field: "imagePullSecrets", index: new(i), secret: s.Name})
	}
	broken = l.secrets("", pulls)
	broken = append(broken, l.secretsOfVolumes(pod.Volumes)...)
	for _, v := range pod.Volumes {
		of := "volume " + v.Name
		if v.Image != nil {
			broken = append(broken, l.image(of+": ", v.Image.Reference)...)
		}
		if kind := volumeType(v); l.Volumes != nil && !slices.Contains(l.Volumes, kind) {
			broken = append(broken, violation(RuleVolumes, v.VolumeSource, "%s is of the type %s", of, kind))
		}
	}
	return broken
}

// secretsOfVolumes returns the violations of volumes by the Secrets that they read.
func (l Lists) secretsOfVolumes(volumes []corev1.Volume) []Violation {
	var reads []reference
	for _, v := range volumes {
		for _, name := range secretsIn(v.VolumeSource) {
			reads = append(reads, reference{field: "volume " + v.Name, secret: name, fields: v.VolumeSource})
		}
	}
	return l.secrets("", reads)
}

func (l Lists) image(of, image string) []Violation {
	if l.ImagePrefixes == nil || slices.ContainsFunc(l.ImagePrefixes, func(prefix string) bool {
		return comesFrom(image, prefix)
	}) {
		return nil
	}
	return []Violation{violation(RuleImages, nil, "%simage %s comes from none of %s", of, image,
		strings.Join(l.ImagePrefixes, ", "))}
}

func (l Lists) secrets(of string, reads []reference) (broken []Violation) {
	for _, r := range reads {
		if l.Secrets != nil && !slices.Contains(l.Secrets, r.secret) {
			broken = append(broken, r.violation(of))
		}
	}
	return broken
}

// comesFrom reports whether an image belongs to the repository that prefix names, or is below it: registry.example/risk
// covers registry.example/risk:1 and registry.example/risk/score:1, but not registry.example/risky:1. A prefix that
// ends with / covers only what is below it.
func comesFrom(image, prefix string) bool {
	repository, _, _ := strings.Cut(image, "@")
	repository = source.WithoutTag(repository)
	return repository == prefix || strings.HasPrefix(repository, strings.TrimSuffix(prefix, "/")+"/")
}

// reference is a Secret that a field reads, and what the field contains.
type reference struct {
	field, secret string
	// index is the field's place in a list; nil if it is in none. It does not identify the reference: others may be put
	// before it.
	index  *int
	fields any
}

func (r reference) violation(of string) Violation {
	v := violation(RuleSecrets, r.fields, "%s%s reads Secret %s", of, r.field, r.secret)
	if r.index != nil {
		v.Text = fmt.Sprintf("%s%s[%d] reads Secret %s", of, r.field, *r.index, r.secret)
	}
	return v
}

// secretsOf returns the Secrets that the environment of a container reads.
func secretsOf(c corev1.Container) (all []reference) {
	for i, from := range c.EnvFrom {
		if from.SecretRef != nil {
			all = append(all, reference{field: "envFrom", index: new(i), secret: from.SecretRef.Name, fields: from})
		}
	}
	for _, e := range c.Env {
		if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
			ref := e.ValueFrom.SecretKeyRef
			all = append(all, reference{field: "env " + e.Name, secret: ref.Name, fields: ref})
		}
	}
	return all
}

// secretsIn returns the Secrets that a volume reads, or with which its driver mounts it.
func secretsIn(v corev1.VolumeSource) (names []string) {
	local := func(ref *corev1.LocalObjectReference) {
		if ref != nil {
			names = append(names, ref.Name)
		}
	}
	for _, s := range ptr.Deref(v.Projected, corev1.ProjectedVolumeSource{}).Sources {
		if s.Secret != nil {
			local(&s.Secret.LocalObjectReference)
		}
	}
	switch {
	case v.Secret != nil:
		names = append(names, v.Secret.SecretName)
	case v.AzureFile != nil:
		names = append(names, v.AzureFile.SecretName)
	case v.CSI != nil:
		local(v.CSI.NodePublishSecretRef)
	case v.FlexVolume != nil:
		local(v.FlexVolume.SecretRef)
	case v.ISCSI != nil:
		local(v.ISCSI.SecretRef)
	case v.RBD != nil:
		local(v.RBD.SecretRef)
	case v.CephFS != nil:
		local(v.CephFS.SecretRef)
	case v.Cinder != nil:
		local(v.Cinder.SecretRef)
	case v.ScaleIO != nil:
		local(v.ScaleIO.SecretRef)
	case v.StorageOS != nil:
		local(v.StorageOS.SecretRef)
	}
	return names
}

// volumeTypes are the types of volumes by the names of their keys, in the order of Kubernetes' API.
var volumeTypes = func() (names []string) {
	for field := range reflect.TypeFor[corev1.VolumeSource]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}()

// volumeType returns the type of a volume by the name of its key. Kubernetes takes a volume without one for an
// emptyDir.
func volumeType(v corev1.Volume) string {
	source := reflect.ValueOf(v.VolumeSource)
	for i, name := range volumeTypes {
		if !source.Field(i).IsNil() {
			return name
		}
	}
	return "emptyDir"
}

// defaultAccount is the service account that every namespace has.
const defaultAccount = "default"

// Accounts returns the violations of a pod by its service account: nil ServiceAccounts allow none, too.
func (l Lists) Accounts(pod *corev1.PodSpec) (broken []Violation) {
	account := cmp.Or(pod.ServiceAccountName, pod.DeprecatedServiceAccount, defaultAccount)
	if slices.Contains(l.ServiceAccounts, account) {
		return nil
	}
	needs := func(is bool, field string) {
		if is {
			broken = append(broken, violation(RuleAccounts, nil, "%s needs service account %s", field, account))
		}
	}
	needs(account != defaultAccount, "serviceAccountName")
	needs(ptr.Deref(pod.AutomountServiceAccountToken, true), "automountServiceAccountToken")
	for _, v := range pod.Volumes {
		needs(slices.ContainsFunc(ptr.Deref(v.Projected, corev1.ProjectedVolumeSource{}).Sources,
			func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil || s.PodCertificate != nil }),
			"volume "+v.Name)
	}
	return broken
}
