package convert

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"slipway.io/slipway/api/kuscia/kusciapb"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
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
			Role:              p.GetRole(),
			ServiceNamePrefix: p.GetServiceNamePrefix()})
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
