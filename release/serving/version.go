// Package serving models servings, applications that several parties run together: their objects, validation, status,
// and the state machine of their operations. It is pure: it does no I/O.
package serving

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"slipway.io/slipway/release/digest"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/v1alpha1"
)

// Version is everything that determines what the parties of a serving run: the spec of its KusciaDeployment and the
// AppImages at one point in time.
type Version struct {
	// ID is the name of the serving, UID that of its KusciaDeployment object.
	ID  string `json:"id"`
	UID string `json:"uid"`
	// AppType is the value of the KusciaDeployment's label LabelAppType, AffinityMode that of its annotation
	// AnnotationAffinityMode.
	AppType      string                      `json:"appType,omitempty"`
	AffinityMode string                      `json:"affinityMode,omitempty"`
	Spec         kuscia.KusciaDeploymentSpec `json:"spec"`
	// AppImages are those that the spec references, by name.
	AppImages map[string]kuscia.AppImageSpec `json:"appImages"`
}

// Digest returns the identifier of the version: 16 hexadecimal digits.
func (v Version) Digest() (string, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("version of serving %s: %w", v.ID, err)
	}
	return shortDigest(raw), nil
}

// digestDigits is the number of hexadecimal digits of a shortDigest.
const digestDigits = 16

func shortDigest(raw []byte) string { return digest.Of(string(raw))[:digestDigits] }

// PartyIndex returns the index of the party that runs a Deployment; false if there is none.
func (v Version) PartyIndex(domain, deployment string) (place int, has bool) {
	place = slices.IndexFunc(v.Spec.Parties, func(p kuscia.Party) bool {
		return p.DomainID == domain && DeploymentName(v.ID, p.Role) == deployment
	})
	return place, place >= 0
}

// CheckParties returns how the parties of a spec differ from those of this version, "" if at most in order. No party
// may be added or removed, because a rollback could not undo that.
func (v Version) CheckParties(parties []kuscia.Party) string {
	var wrong []string
	for _, p := range parties {
		if _, has := v.PartyIndex(p.DomainID, DeploymentName(v.ID, p.Role)); !has {
			wrong = append(wrong, partyName(p)+" is new")
		}
	}
	for _, p := range v.Spec.Parties {
		if !slices.ContainsFunc(parties, func(other kuscia.Party) bool {
			return other.DomainID == p.DomainID && other.Role == p.Role
		}) {
			wrong = append(wrong, partyName(p)+" is missing")
		}
	}
	if len(wrong) == 0 {
		return ""
	}
	return strings.Join(wrong, ", ") + ": the parties of a serving cannot be changed: restore them, or create " +
		"another serving"
}

// ChangedParties returns which parties a spec must not omit or add, "" if there are none: their workloads would never
// be removed. served is the ServedVersion.
func ChangedParties(kd *kuscia.KusciaDeployment, served *Version) string {
	if served != nil {
		return served.CheckParties(kd.Spec.Parties)
	}
	for _, p := range RemovedParties(kd) {
		return fmt.Sprintf("party %s is left out, and an operation has begun with it: add it again, "+
			"or delete the serving and create it without it", p.Name())
	}
	return ""
}

// ServedVersion returns the version that all parties last ran; nil if there is none.
func ServedVersion(kd *kuscia.KusciaDeployment) (*Version, error) {
	if kd.Status.Served == nil {
		return nil, nil
	}
	version, err := Unpack(kd.Status.Served.Version)
	return &version, err
}

// maxVersion is the maximum size of an unpacked version, in bytes.
const maxVersion = 32 << 20

// Pack encodes the version as gzip-compressed JSON, deterministically.
func (v Version) Pack() ([]byte, error) {
	packed, err := v1alpha1.EncodeBody(v)
	if err != nil {
		err = fmt.Errorf("version of serving %s: %w", v.ID, err)
	}
	return packed, err
}

// Unpack decodes a packed version.
func Unpack(packed []byte) (Version, error) {
	var v Version
	if err := v1alpha1.Decompress(packed, &v, maxVersion); err != nil {
		return v, fmt.Errorf("a version of a serving cannot be read: %w", err)
	}
	return v, nil
}

// Snapshot returns the version that a KusciaDeployment currently requests, with those of its AppImages that exist.
func Snapshot(kd *kuscia.KusciaDeployment, images map[string]kuscia.AppImageSpec) Version {
	v := Version{
		ID: kd.Name, UID: string(kd.UID), AppType: kd.Labels[kuscia.LabelAppType],
		AffinityMode: kd.Annotations[kuscia.AnnotationAffinityMode],
		Spec:         *kd.Spec.DeepCopy(), AppImages: map[string]kuscia.AppImageSpec{},
	}
	for _, party := range v.Spec.Parties {
		if image, there := images[party.AppImageRef]; there {
			v.AppImages[party.AppImageRef] = *image.DeepCopy()
		}
	}
	return v
}

// Revision returns the revision that an unchanged spec needs for a request: a new one for another affinity mode and
// after a failed creation or update, which is retried; a digest of the version if its AppImages were edited since the
// version that serves; else the current one. Sending the same update twice results in the same revision.
func Revision(stored, kd *kuscia.KusciaDeployment, images map[string]kuscia.AppImageSpec) (string, error) {
	current, op := kd.Spec.Revision, kd.Status.Operation
	failed := kd.Status.Served == nil && op != nil && op.Done && op.Reason == ReasonPartyFailed
	const mode = kuscia.AnnotationAffinityMode
	switch {
	// An operation on the current generation may have read the old mode, even if the status does not show it yet.
	case stored.Annotations[mode] != kd.Annotations[mode], RolledBack(kd), failed && !Outdated(kd):
		return fmt.Sprintf("after-%d", stored.Generation), nil
	case Outdated(kd): // an operation that has not started yet will take the AppImages in their form of then
		return current, nil
	case kd.Status.Served == nil:
		return current, nil
	}
	served, err := Unpack(kd.Status.Served.Version)
	if err != nil {
		return current, err
	}
	known := maps.Clone(served.AppImages) // a deleted AppImage counts as unedited
	maps.Copy(known, images)
	version := Snapshot(kd, known)
	digest, err := version.Digest()
	underWay := op != nil && !op.Done && op.Version == digest
	if err != nil || digest == kd.Status.Served.Digest || underWay {
		return current, err
	}
	version.Spec.Revision = ""
	return version.Digest()
}
