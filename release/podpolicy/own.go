package podpolicy

import (
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"slipway.io/slipway/release/source"
)

// withoutOwn returns a pod template without what the engine itself adds to fetch a package: an init container of
// exactly the engine's form, its empty volume, and the volume with the package's credentials that only it mounts. That
// volume is returned, too: the release names its Secret.
func withoutOwn(t *corev1.PodTemplateSpec, fetchImage string) (judged *corev1.PodTemplateSpec,
	credentials []corev1.Volume) {
	own := func(c corev1.Container) bool { return source.IsFetchContainer(c, t.Spec.Containers, fetchImage) }
	if !slices.ContainsFunc(t.Spec.InitContainers, own) {
		return t, nil
	}
	judged = new(*t)
	judged.Spec.InitContainers = slices.DeleteFunc(slices.Clone(t.Spec.InitContainers), own)
	judged.Spec.Volumes = nil
	for _, v := range t.Spec.Volumes {
		switch {
		case v.Name == source.VolumePackage &&
			reflect.DeepEqual(v.VolumeSource, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}):
		case v.Name == source.VolumeCredentials && v.Secret != nil && !mounted(&judged.Spec, v.Name):
			credentials = append(credentials, v)
		default:
			judged.Spec.Volumes = append(judged.Spec.Volumes, v)
		}
	}
	return judged, credentials
}

// mounted reports whether a container of a pod mounts a volume.
func mounted(pod *corev1.PodSpec, volume string) bool {
	return slices.ContainsFunc(containersOf(pod), func(c corev1.Container) bool {
		return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume })
	})
}
