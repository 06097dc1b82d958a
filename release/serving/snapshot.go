package serving

import kuscia "slipway.io/slipway/release/kuscia/v1alpha1"

// Snapshot is the version that a KusciaDeployment asks for now, with the AppImages that it names out of images. One that images does not have is
// absent from the version too.
func Snapshot(kd *kuscia.KusciaDeployment, images map[string]kuscia.AppImageSpec) Version {
	v := Version{
		ID: kd.Name, UID: string(kd.UID), AppType: kd.Labels[kuscia.LabelAppType], AffinityMode: kd.Annotations[kuscia.AnnotationAffinityMode],
		Spec: *kd.Spec.DeepCopy(), AppImages: map[string]kuscia.AppImageSpec{},
	}
	for _, party := range v.Spec.Parties {
		if image, there := images[party.AppImageRef]; there {
			v.AppImages[party.AppImageRef] = *image.DeepCopy()
		}
	}
	return v
}
