package serving

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

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
