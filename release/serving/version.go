// Package serving is what several parties run together: their objects, what is valid, its state, and what its workflow does next. It is
// pure.
package serving

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/v1alpha1"
)

// Version is all that decides what the parties of a serving run: the spec of its KusciaDeployment and the AppImages at one moment.
type Version struct {
	// ID is the serving's, UID that of its KusciaDeployment.
	ID  string `json:"id"`
	UID string `json:"uid"`
	// AppType is the KusciaDeployment's label of that name, AffinityMode its annotation.
	AppType      string                      `json:"appType,omitempty"`
	AffinityMode string                      `json:"affinityMode,omitempty"`
	Spec         kuscia.KusciaDeploymentSpec `json:"spec"`
	// AppImages are those that the spec names, by name.
	AppImages map[string]kuscia.AppImageSpec `json:"appImages"`
}

// Digest tells versions apart: 16 hexadecimal digits.
func (v Version) Digest() (string, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("version of serving %s: %w", v.ID, err)
	}
	return shortDigest(raw), nil
}

// digestDigits is how many hexadecimal digits a shortDigest has.
const digestDigits = 16

func shortDigest(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])[:digestDigits]
}

// Place is the place among the version's parties of the one that runs a Deployment; false when none does.
func (v Version) Place(domain, deployment string) (place int, has bool) {
	place = slices.IndexFunc(v.Spec.Parties, func(p kuscia.Party) bool {
		return p.DomainID == domain && DeploymentName(v.ID, p.Role) == deployment
	})
	return place, place >= 0
}

// CheckParties says how the parties of a spec differ from this version's, "" when only in order: none may come or go, since it could not
// go back.
func (v Version) CheckParties(parties []kuscia.Party) string {
	var wrong []string
	for _, p := range parties {
		if _, has := v.Place(p.DomainID, DeploymentName(v.ID, p.Role)); !has {
			wrong = append(wrong, partyName(p)+" is new")
		}
	}
	for _, p := range v.Spec.Parties {
		if !slices.ContainsFunc(parties, func(other kuscia.Party) bool { return other.DomainID == p.DomainID && other.Role == p.Role }) {
			wrong = append(wrong, partyName(p)+" is missing")
		}
	}
	if len(wrong) == 0 {
		return ""
	}
	return strings.Join(wrong, ", ") + ": the parties of a serving cannot be changed; put them back, and create another serving for others"
}

// maxVersion bounds what a packed version may unpack to, in bytes.
const maxVersion = 32 << 20

// Pack is the version as gzip-compressed JSON, the same bytes for the same version.
func (v Version) Pack() ([]byte, error) {
	packed, err := v1alpha1.EncodeBody(v)
	if err != nil {
		err = fmt.Errorf("version of serving %s: %w", v.ID, err)
	}
	return packed, err
}

// Unpack reads what Pack wrote.
func Unpack(packed []byte) (Version, error) {
	var v Version
	if err := v1alpha1.Decompress(packed, &v, maxVersion); err != nil {
		return v, fmt.Errorf("a version of a serving cannot be read: %w", err)
	}
	return v, nil
}

// Snapshot is the version that a KusciaDeployment asks for now, with those AppImages that it names and that exist.
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

// Revision is the revision that the spec needs for its AppImages to be run as they are now: a digest of them if they were edited since
// the version that serves, else its own. A creation that a party has failed at is tried again. An update that is sent twice is one.
func Revision(kd *kuscia.KusciaDeployment, images map[string]kuscia.AppImageSpec) (string, error) {
	stays, op := kd.Spec.Revision, kd.Status.Operation
	switch {
	case Outdated(kd): // what has not been begun with yet takes the AppImages as they are then
		return stays, nil
	case kd.Status.Served == nil && op != nil && op.Done && op.Reason == ReasonPartyFailed:
		return fmt.Sprintf("after-%d", op.Generation), nil
	case kd.Status.Served == nil:
		return stays, nil
	}
	served, err := Unpack(kd.Status.Served.Version)
	if err != nil {
		return stays, err
	}
	known := maps.Clone(served.AppImages) // one that is gone has not been edited
	maps.Copy(known, images)
	version := Snapshot(kd, known)
	digest, err := version.Digest()
	underWay := op != nil && !op.Done && op.Version == digest
	if err != nil || digest == kd.Status.Served.Digest || underWay {
		return stays, err
	}
	version.Spec.Revision = ""
	return version.Digest()
}
