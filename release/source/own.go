package source

import (
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// IsFetchContainer reports whether an init container is exactly one that Package.Put adds with this image, whatever it
// fetches: with no other command, environment, mount or privilege, and as the user of one of the containers that get
// the package. Fields with the defaults of the API server, and the resources of another container, are part of that
// form.
func IsFetchContainer(c corev1.Container, others []corev1.Container, image string) bool {
	if c.Name != ContainerFetch || image == "" || c.Image != image || len(c.Args) == 0 || c.Args[0] != "fetch" {
		return false
	}
	if len(c.Env) != 1 || c.Env[0] != (corev1.EnvVar{Name: EnvURLs, Value: c.Env[0].Value}) {
		return false
	}
	for _, m := range c.VolumeMounts {
		if !slices.ContainsFunc(fetchMounts, func(own corev1.VolumeMount) bool { return reflect.DeepEqual(own, m) }) {
			return false
		}
	}
	own := corev1.Container{Name: ContainerFetch, Image: image, Args: c.Args, Env: c.Env, VolumeMounts: c.VolumeMounts,
		Resources: c.Resources, ImagePullPolicy: c.ImagePullPolicy,
		TerminationMessagePath:   corev1.TerminationMessagePathDefault,
		TerminationMessagePolicy: corev1.TerminationMessageReadFile}
	if c.TerminationMessagePath == "" && c.TerminationMessagePolicy == "" { // not stored yet
		own.TerminationMessagePath, own.TerminationMessagePolicy = "", ""
	}
	return slices.ContainsFunc(others, func(target corev1.Container) bool {
		own.SecurityContext = fetchContext(target.SecurityContext)
		return getsPackage(target) && reflect.DeepEqual(c, own)
	})
}

func getsPackage(c corev1.Container) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == VolumePackage })
}

// fetchMounts are the mounts of the init container.
var fetchMounts = []corev1.VolumeMount{{Name: VolumePackage, MountPath: mountPackage},
	{Name: VolumeCredentials, MountPath: mountCredentials, ReadOnly: true}}

// fetchContext returns what securityContext returns for the container that gets the package.
func fetchContext(target *corev1.SecurityContext) *corev1.SecurityContext {
	own := &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
		Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
	if target != nil {
		own.RunAsUser, own.RunAsGroup, own.RunAsNonRoot = target.RunAsUser, target.RunAsGroup,
			target.RunAsNonRoot
	}
	return own
}
