// Package serving models servings, applications that several parties run together: their objects, validation, status,
// and the state machine of their operations. It is pure: it does no I/O.
package serving

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

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

// renderInput is one party with everything its objects are rendered from.
type renderInput struct {
	version Version
	// index is the party's index in the spec.
	index   int
	party   kuscia.Party
	image   kuscia.AppImageInfo
	configs map[string]string
	// template is the AppImage's template for the party's role, merged with the party's own resources and affinity.
	template kuscia.DeployTemplate
	// name is the name of the Deployment.
	name string
	// ports are the ports of all containers in the order of the template, with their numbers.
	ports []kuscia.ContainerPort
}

// renderInput collects what a party's objects are rendered from; the error names what is missing.
func (v Version) renderInput(index int) (renderInput, error) {
	if index < 0 || index >= len(v.Spec.Parties) {
		return renderInput{}, fmt.Errorf("serving %s has %d parties, and none at index %d", v.ID, len(v.Spec.Parties),
			index)
	}
	party := v.Spec.Parties[index]
	image, found := v.AppImages[party.AppImageRef]
	if !found {
		return renderInput{}, fmt.Errorf("can not get appimage %[1]s from cluster, appimages.kuscia.secretflow %[1]q "+
			"not found", party.AppImageRef)
	}
	template, found := templateOf(image.DeployTemplates, party.Role)
	if !found {
		return renderInput{}, fmt.Errorf("%s: AppImage %s has no deploy template for role %q: "+
			"add one for it or one without a role, or name another role", partyName(party), party.AppImageRef,
			party.Role)
	}
	merged := *template.DeepCopy()
	merge(&merged, party.Template)
	ports := containerPorts(merged)
	allocate(v.ID, party, ports)
	return renderInput{
		version: v, index: index, party: party, image: image.Image, configs: image.ConfigTemplates,
		template: merged, name: DeploymentName(v.ID, party.Role), ports: ports,
	}, nil
}

// templateOf returns the first template that lists the role; else the last one without a role; else, for a party
// without a role, the first.
func templateOf(templates []kuscia.DeployTemplate, role string) (kuscia.DeployTemplate, bool) {
	var general *kuscia.DeployTemplate
	for i, t := range templates {
		for name := range strings.SplitSeq(strings.Trim(t.Role, ","), ",") {
			if strings.TrimSpace(name) == role {
				return t, true
			}
		}
		if t.Role == "" {
			general = &templates[i]
		}
	}
	switch {
	case general != nil:
		return *general, true
	case role == "" && len(templates) > 0:
		return templates[0], true
	}
	return kuscia.DeployTemplate{}, false
}

// merge applies a party's overrides of its AppImage: requests and limits, each replaced completely, and affinity.
func merge(t *kuscia.DeployTemplate, own kuscia.PartyTemplate) {
	if own.Spec == nil {
		return
	}
	for _, c := range own.Spec.Containers {
		at := slices.IndexFunc(t.Spec.Containers, func(other kuscia.Container) bool { return other.Name == c.Name })
		if at < 0 {
			continue
		}
		resources := &t.Spec.Containers[at].Resources
		if len(c.Resources.Requests) > 0 {
			resources.Requests = c.Resources.Requests.DeepCopy()
		}
		if len(c.Resources.Limits) > 0 {
			resources.Limits = c.Resources.Limits.DeepCopy()
		}
	}
	if own.Spec.Affinity != nil {
		t.Spec.Affinity = own.Spec.Affinity.DeepCopy()
	}
}

// Replicas returns the desired number of pods of a party: its own, else that of its AppImage's template, else 1.
func (v Version) Replicas(party int) int32 {
	if party < 0 || party >= len(v.Spec.Parties) {
		return 0
	}
	p := v.Spec.Parties[party]
	t, _ := templateOf(v.AppImages[p.AppImageRef].DeployTemplates, p.Role)
	return *cmp.Or(p.Template.Replicas, t.Replicas, new(int32(1)))
}

// ResourceRow holds the requests (Min) and limits (Max) of one container of a party, as canonical quantities; "" if not
// set.
type ResourceRow struct{ Container, MinCPU, MaxCPU, MinMemory, MaxMemory string }

// Resources returns the rows of a party, one for each container of its template. A party that cannot be rendered has
// none.
func (v Version) Resources(party int) []ResourceRow {
	d, err := v.renderInput(party)
	if err != nil {
		return nil
	}
	rows := make([]ResourceRow, len(d.template.Spec.Containers))
	for i, c := range d.template.Spec.Containers {
		rows[i] = RowOf(c.Name, c.Resources)
	}
	return rows
}

// RowOf returns the row of one container.
func RowOf(container string, r corev1.ResourceRequirements) ResourceRow {
	return ResourceRow{Container: container,
		MinCPU: quantity(r.Requests, corev1.ResourceCPU), MaxCPU: quantity(r.Limits, corev1.ResourceCPU),
		MinMemory: quantity(r.Requests, corev1.ResourceMemory), MaxMemory: quantity(r.Limits, corev1.ResourceMemory)}
}

func quantity(list corev1.ResourceList, name corev1.ResourceName) string {
	if q, found := list[name]; found {
		return q.String()
	}
	return ""
}
