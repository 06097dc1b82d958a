package serving

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// deployed is one party with all that its objects are made of.
type deployed struct {
	version Version
	// index is the party's in the spec.
	index   int
	party   kuscia.Party
	image   kuscia.AppImageInfo
	configs map[string]string
	// template is the AppImage's for the party's role, with the party's own resources and affinity.
	template kuscia.DeployTemplate
	// name is the Deployment's.
	name string
	// ports are those of all containers in the order of the template, with their numbers.
	ports []kuscia.ContainerPort
}

// deployed puts together what a party's objects are made of; the error says what is not there.
func (v Version) deployed(index int) (deployed, error) {
	if index < 0 || index >= len(v.Spec.Parties) {
		return deployed{}, fmt.Errorf("serving %s has %d parties, and none at index %d", v.ID, len(v.Spec.Parties), index)
	}
	party := v.Spec.Parties[index]
	image, found := v.AppImages[party.AppImageRef]
	if !found {
		return deployed{}, fmt.Errorf("can not get appimage %[1]s from cluster, appimages.kuscia.secretflow %[1]q not found", party.AppImageRef)
	}
	template, found := templateOf(image.DeployTemplates, party.Role)
	if !found {
		return deployed{}, fmt.Errorf("%s: AppImage %s has no deploy template for role %q: "+
			"add one for it or one without a role, or name another role", partyName(party), party.AppImageRef, party.Role)
	}
	merged := *template.DeepCopy()
	merge(&merged, party.Template)
	ports := containerPorts(merged)
	allocate(v.ID, party, ports)
	return deployed{
		version: v, index: index, party: party, image: image.Image, configs: image.ConfigTemplates,
		template: merged, name: DeploymentName(v.ID, party.Role), ports: ports,
	}, nil
}

// templateOf is the first template with that role; else the last one without a role; else, for a party without a role, the first.
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

// merge takes over what a party says differently from its AppImage: requests and limits, each as a whole, and affinity.
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

// Replicas is how many pods a party is to have: as it says, else as its AppImage's template says, else 1.
func (v Version) Replicas(party int) int32 {
	if party < 0 || party >= len(v.Spec.Parties) {
		return 0
	}
	p := v.Spec.Parties[party]
	t, _ := templateOf(v.AppImages[p.AppImageRef].DeployTemplates, p.Role)
	return *cmp.Or(p.Template.Replicas, t.Replicas, new(int32(1)))
}

// ResourceRow is what one container of a party asks for and may use, as canonical quantities; "" where nothing is said.
type ResourceRow struct{ Container, MinCPU, MaxCPU, MinMemory, MaxMemory string }

// Resources are the rows of a party, one for each container of its template. A party that can't be rendered has none.
func (v Version) Resources(party int) []ResourceRow {
	d, err := v.deployed(party)
	if err != nil {
		return nil
	}
	rows := make([]ResourceRow, len(d.template.Spec.Containers))
	for i, c := range d.template.Spec.Containers {
		rows[i] = RowOf(c.Name, c.Resources)
	}
	return rows
}

// RowOf is the row of one container.
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
