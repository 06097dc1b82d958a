package serving

import (
	"maps"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// Revision is the revision that the spec of a serving needs for its AppImages, as they are now, to be run: another one than it has when they have been edited
// since the version that serves was taken, else its own. The same AppImages make the same revision, so that an update that is sent twice is one.
func Revision(kd *kuscia.KusciaDeployment, images map[string]kuscia.AppImageSpec) (string, error) {
	stays := kd.Spec.Revision
	if kd.Status.Served == nil || Outdated(kd) { // what has not been begun with yet takes the AppImages as they are then
		return stays, nil
	}
	served, err := Unpack(kd.Status.Served.Version)
	if err != nil {
		return stays, err
	}
	known := maps.Clone(images)
	for name, image := range served.AppImages { // one that is gone has not been edited
		if _, there := known[name]; !there {
			known[name] = image
		}
	}
	version := Snapshot(kd, known)
	digest, err := version.Digest()
	if err != nil || digest == kd.Status.Served.Digest || isUnderWay(kd.Status.Operation, digest) {
		return stays, err
	}
	version.Spec.Revision = ""
	return version.Digest()
}

// isUnderWay says that a version is being brought about.
func isUnderWay(op *kuscia.Operation, digest string) bool {
	return op != nil && !op.Done && op.Version == digest
}
