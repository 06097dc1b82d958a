package convert

import (
	"cmp"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/api/kuscia/kusciapb"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

// Images are the specs of AppImages by name.
type Images = map[string]kuscia.AppImageSpec

// ReadImages reads the AppImages of parties; it may leave out missing ones.
type ReadImages func(parties []kuscia.Party) (Images, error)

// NewSpec returns the spec that a request creates, and the AppImages of its parties.
func NewSpec(r *kusciapb.CreateServingRequest, read ReadImages) (spec kuscia.KusciaDeploymentSpec, images Images,
	err error) {
	spec = kuscia.KusciaDeploymentSpec{Initiator: r.GetInitiator(), InputConfig: r.GetServingInputConfig()}
	for _, p := range r.GetParties() {
		spec.Parties = append(spec.Parties, kuscia.Party{DomainID: p.GetDomainId(), AppImageRef: p.GetAppImage(),
			Role: p.GetRole(), ServiceNamePrefix: p.GetServiceNamePrefix()})
	}
	if images, err = read(spec.Parties); err != nil {
		return spec, nil, err
	}
	for i, asked := range r.GetParties() {
		if err := setParty(&spec.Parties[i], asked, images); err != nil {
			return spec, nil, err
		}
	}
	return spec, images, nil
}

// setParty fills in the template of a new party. Replicas missing in the request stay unset: the AppImage's number then
// applies, even after it changes.
func setParty(party *kuscia.Party, asked *kusciapb.ServingParty, images Images) error {
	strategy, err := strategyOf(asked)
	if err != nil {
		return err
	}
	containers, err := containersOf(*party, images)
	if err != nil {
		return err
	}
	party.Template.Strategy, party.Template.Replicas = strategy, asked.Replicas
	return setResources(party, asked, containers)
}

// ChangedSpec returns a copy of a spec with a request applied, and the AppImages that it refers to.
func ChangedSpec(spec kuscia.KusciaDeploymentSpec, r *kusciapb.UpdateServingRequest,
	read ReadImages) (changed kuscia.KusciaDeploymentSpec, images Images, err error) {
	changed = *spec.DeepCopy()
	if config := r.GetServingInputConfig(); config != "" {
		changed.InputConfig = config
	}
	wanted := slices.Clone(changed.Parties)
	for _, asked := range r.GetParties() {
		if asked.GetAppImage() != "" {
			wanted = append(wanted, kuscia.Party{AppImageRef: asked.GetAppImage()})
		}
	}
	if images, err = read(wanted); err != nil {
		return changed, nil, err
	}
	for _, asked := range r.GetParties() {
		if err := changeParty(changed.Parties, asked, images); err != nil {
			return changed, nil, err
		}
	}
	return changed, images, nil
}

// changeParty changes the party with the request's domain and role, in the fields that the request has.
func changeParty(parties []kuscia.Party, asked *kusciapb.ServingParty, images Images) error {
	i := slices.IndexFunc(parties, func(p kuscia.Party) bool {
		return p.DomainID == asked.GetDomainId() && p.Role == asked.GetRole()
	})
	if i < 0 {
		return fmt.Errorf("party domain_id/role %s/%s does not exist", asked.GetDomainId(), asked.GetRole())
	}
	party := &parties[i]
	if err := changeAppImageOf(party, asked.GetAppImage(), images); err != nil {
		return err
	}
	if asked.Replicas != nil {
		party.Template.Replicas = asked.Replicas
	}
	if asked.GetUpdateStrategy() != nil {
		strategy, err := strategyOf(asked)
		if err != nil {
			return err
		}
		party.Template.Strategy = strategy
	}
	if len(asked.GetResources()) == 0 {
		return nil
	}
	containers, err := containersOf(*party, images)
	if err != nil {
		return err
	}
	return setResources(party, asked, containers)
}

// changeAppImageOf sets another AppImage for a party. It removes the party's resources of containers that the new
// AppImage lacks: they have no effect, and a request cannot remove them.
func changeAppImageOf(party *kuscia.Party, name string, images Images) error {
	if name == "" || name == party.AppImageRef {
		return nil
	}
	party.AppImageRef = name
	containers, err := containersOf(*party, images)
	if err != nil {
		return err
	}
	if spec := party.Template.Spec; spec != nil {
		spec.Containers = slices.DeleteFunc(spec.Containers, func(c corev1.Container) bool {
			return !slices.Contains(containers, c.Name)
		})
	}
	return nil
}

// defaultMax is the default of max_surge and max_unavailable.
const defaultMax = "25%"

// strategyOf returns a party's Deployment strategy. A strategy without a type is an error, a missing one is the
// default.
func strategyOf(p *kusciapb.ServingParty) (*appsv1.DeploymentStrategy, error) {
	asked := p.GetUpdateStrategy()
	if asked != nil && asked.GetType() == string(appsv1.RecreateDeploymentStrategyType) {
		return &appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}, nil
	}
	if asked != nil && asked.GetType() != string(appsv1.RollingUpdateDeploymentStrategyType) {
		return nil, fmt.Errorf("update strategy type should be %s or %s for party/role %s/%s",
			appsv1.RecreateDeploymentStrategyType,
			appsv1.RollingUpdateDeploymentStrategyType, p.GetDomainId(), p.GetRole())
	}
	surge, unavailable := intstr.Parse(cmp.Or(asked.GetMaxSurge(), defaultMax)),
		intstr.Parse(cmp.Or(asked.GetMaxUnavailable(), defaultMax))
	return &appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &surge, MaxUnavailable: &unavailable}}, nil
}

// containersOf returns the names of a party's containers, in the order of its AppImage's template.
func containersOf(p kuscia.Party, images Images) ([]string, error) {
	if _, there := images[p.AppImageRef]; !there {
		return nil, fmt.Errorf("can not get appimage %[1]s from cluster, appimages.kuscia.secretflow %[1]q not found",
			p.AppImageRef)
	}
	bare := kuscia.Party{DomainID: p.DomainID, AppImageRef: p.AppImageRef, Role: p.Role}
	version := serving.Version{Spec: kuscia.KusciaDeploymentSpec{Parties: []kuscia.Party{bare}}, AppImages: images}
	rows := version.Resources(0)
	if len(rows) == 0 {
		return nil, fmt.Errorf("can not get deploy template from appimage %s: it has none for role %q of party %s",
			p.AppImageRef, p.Role, p.DomainID)
	}
	return MapSlice(rows, func(r serving.ResourceRow) string { return r.Container }), nil
}

// setResources sets the resources of a party's containers. An entry without a container name applies to all containers
// without an entry of their own. Existing resources change only where the request has values.
func setResources(party *kuscia.Party, asked *kusciapb.ServingParty, containers []string) error {
	var common *kusciapb.Resource
	own := map[string]*kusciapb.Resource{}
	for _, r := range asked.GetResources() {
		if r.GetContainerName() == "" {
			common = r
			continue
		}
		if !slices.Contains(containers, r.GetContainerName()) {
			return fmt.Errorf("container_name %s of party domainID/role %s/%s resources doesn't exist in app image %s",
				r.GetContainerName(), asked.GetDomainId(), asked.GetRole(), party.AppImageRef)
		}
		own[r.GetContainerName()] = r
	}
	has := party.Template.Spec != nil && len(party.Template.Spec.Containers) > 0
	for _, name := range containers {
		entry := own[name]
		switch {
		case entry == nil:
			entry = common
		case !has:
			entry = mergeResource(entry, common)
		}
		if err := setContainer(party, name, entry); err != nil {
			return err
		}
	}
	return nil
}

// mergeResource returns an entry, with missing values taken from the common one.
func mergeResource(entry, common *kusciapb.Resource) *kusciapb.Resource {
	return &kusciapb.Resource{ContainerName: entry.GetContainerName(),
		MinCpu: cmp.Or(entry.GetMinCpu(), common.GetMinCpu()), MaxCpu: cmp.Or(entry.GetMaxCpu(), common.GetMaxCpu()),
		MinMemory: cmp.Or(entry.GetMinMemory(), common.GetMinMemory()),
		MaxMemory: cmp.Or(entry.GetMaxMemory(), common.GetMaxMemory())}
}

// setContainer changes the resources of one container of a party's template; the container is added there when it gets
// some.
func setContainer(party *kuscia.Party, name string, entry *kusciapb.Resource) error {
	fields := []struct {
		name, text string
		request    bool
		resource   corev1.ResourceName
	}{
		{"min_cpu", entry.GetMinCpu(), true, corev1.ResourceCPU},
		{"min_memory", entry.GetMinMemory(), true, corev1.ResourceMemory},
		{"max_cpu", entry.GetMaxCpu(), false, corev1.ResourceCPU},
		{"max_memory", entry.GetMaxMemory(), false, corev1.ResourceMemory},
	}
	for _, field := range fields {
		if field.text == "" {
			continue
		}
		quantity, err := resource.ParseQuantity(field.text)
		if err != nil {
			return fmt.Errorf("resource %s %s format is invalid for party domain_id/role %s/%s, %w", field.name,
				field.text, party.DomainID, party.Role, err)
		}
		resources := &container(party, name).Resources
		list := &resources.Limits
		if field.request {
			list = &resources.Requests
		}
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[field.resource] = quantity
	}
	return nil
}

// container returns the container with that name from a party's template, and adds it if it is missing.
func container(party *kuscia.Party, name string) *corev1.Container {
	if party.Template.Spec == nil {
		party.Template.Spec = &corev1.PodSpec{}
	}
	spec := party.Template.Spec
	i := slices.IndexFunc(spec.Containers, func(c corev1.Container) bool { return c.Name == name })
	if i < 0 {
		i = len(spec.Containers)
		spec.Containers = append(spec.Containers, corev1.Container{Name: name})
	}
	return &spec.Containers[i]
}

// CheckParties returns an error for a strategy or a quantity that is wrong for any serving and AppImage.
func CheckParties(parties []*kusciapb.ServingParty) error {
	for _, p := range parties {
		if _, err := strategyOf(p); err != nil {
			return err
		}
		party := kuscia.Party{DomainID: p.GetDomainId(), Role: p.GetRole()}
		for _, entry := range p.GetResources() {
			if err := setContainer(&party, entry.GetContainerName(), entry); err != nil {
				return err
			}
		}
	}
	return nil
}
