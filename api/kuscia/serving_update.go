package kuscia

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"slipway.io/slipway/api/kuscia/kusciapb"
	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

// UpdateServing changes a serving: its input configuration, and of the parties that the request names what it says of them. It is all or
// nothing.
func (s *Service) UpdateServing(ctx context.Context, r *kusciapb.UpdateServingRequest) (*kusciapb.UpdateServingResponse, error) {
	return &kusciapb.UpdateServingResponse{Status: outcome(s.updateServing(ctx, r), codeUpdateServing)}, nil
}

func (s *Service) updateServing(ctx context.Context, r *kusciapb.UpdateServingRequest) error {
	if r.GetServingId() == "" {
		return errNoServingID
	}
	if r.GetServingInputConfig() == "" && len(r.GetParties()) == 0 {
		return nil // as Kuscia answers, also for a serving that does not exist
	}
	if err := checkInputConfig(r.GetServingInputConfig()); err != nil {
		return err
	}
	return failure.UntilNoConflict("serving "+r.GetServingId(), func() error {
		stored, err := s.getServing(ctx, r.GetServingId())
		if err != nil {
			return err
		}
		return s.changeServing(ctx, stored, r)
	})
}

// changeServing writes the serving as the request wants it, unless it is so already. A Conflict says that it was changed since it was read.
func (s *Service) changeServing(ctx context.Context, stored *kuscia.KusciaDeployment, r *kusciapb.UpdateServingRequest) error {
	shown, err := shownServing(stored)
	if err != nil {
		return err
	}
	changed, images, err := s.wantedServing(ctx, shown, r)
	if err != nil {
		return err
	}
	if sameSpec(shown, changed) && sameSpec(stored, changed) {
		// It is so already, unless an AppImage was edited: an update has it run as it is now.
		if changed.Spec.Revision, err = serving.Revision(stored, images); err != nil || sameSpec(stored, changed) {
			return err
		}
	}
	if err := checkVersion(changed, images); err != nil {
		return err
	}
	if sameSpec(stored, changed) {
		// What was taken back is asked for once more, perhaps because its image has come by now. To write the same again would be no new
		// generation, and nobody would begin with it: so it is taken back in the spec too, and then asked for.
		if err := s.store.UpdateServing(ctx, shown); err != nil {
			return err
		}
		changed.ObjectMeta = shown.ObjectMeta
	}
	return s.store.UpdateServing(ctx, changed)
}

func sameSpec(a, b *kuscia.KusciaDeployment) bool { return equality.Semantic.DeepEqual(a.Spec, b.Spec) }

// wantedServing is a copy of the serving as the request wants it, and the AppImages that it is about.
func (s *Service) wantedServing(ctx context.Context, shown *kuscia.KusciaDeployment,
	r *kusciapb.UpdateServingRequest) (*kuscia.KusciaDeployment, map[string]kuscia.AppImageSpec, error) {
	changed := shown.DeepCopy()
	if config := r.GetServingInputConfig(); config != "" {
		changed.Spec.InputConfig = config
	}
	wanted := slices.Clone(changed.Spec.Parties)
	for _, asked := range r.GetParties() {
		if asked.GetAppImage() != "" {
			wanted = append(wanted, kuscia.Party{AppImageRef: asked.GetAppImage()})
		}
	}
	images, err := s.appImages(ctx, wanted)
	if err != nil {
		return nil, nil, err
	}
	for _, asked := range r.GetParties() {
		if err := changeParty(changed.Spec.Parties, asked, images); err != nil {
			return nil, nil, err
		}
	}
	return changed, images, nil
}

// shownServing is a copy of the serving as a query shows it: a change is one of what a query shows, and what failed is not tried again in
// passing.
func shownServing(stored *kuscia.KusciaDeployment) (*kuscia.KusciaDeployment, error) {
	shown := stored.DeepCopy()
	if !serving.RolledBack(stored) {
		return shown, nil
	}
	served, err := serving.Unpack(stored.Status.Served.Version)
	shown.Spec = served.Spec
	return shown, err
}

// changeParty changes the party of the request's domain and role, as far as the request says something.
func changeParty(parties []kuscia.Party, asked *kusciapb.ServingParty, images map[string]kuscia.AppImageSpec) error {
	i := slices.IndexFunc(parties, func(p kuscia.Party) bool { return p.DomainID == asked.GetDomainId() && p.Role == asked.GetRole() })
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

// changeAppImageOf has a party run another AppImage. Resources that it has for containers that the other one does not have go: nothing
// could be done with them, and a request cannot take them away.
func changeAppImageOf(party *kuscia.Party, name string, images map[string]kuscia.AppImageSpec) error {
	if name == "" || name == party.AppImageRef {
		return nil
	}
	party.AppImageRef = name
	containers, err := containersOf(*party, images)
	if err != nil {
		return err
	}
	if spec := party.Template.Spec; spec != nil {
		spec.Containers = slices.DeleteFunc(spec.Containers, func(c corev1.Container) bool { return !slices.Contains(containers, c.Name) })
	}
	return nil
}

// DeleteServing has a serving taken away. It is gone for whoever asks as soon as this answers; its parties are cleaned up afterwards.
func (s *Service) DeleteServing(ctx context.Context, r *kusciapb.DeleteServingRequest) (*kusciapb.DeleteServingResponse, error) {
	return &kusciapb.DeleteServingResponse{Status: outcome(s.deleteServing(ctx, r.GetServingId()), codeDeleteServing)}, nil
}

func (s *Service) deleteServing(ctx context.Context, id string) error {
	if id == "" {
		return errNoServingID
	}
	return failure.UntilNoConflict("serving "+id, func() error {
		stored, err := s.getServing(ctx, id)
		if err != nil {
			return err
		}
		if err = s.store.DeleteServing(ctx, stored); failure.Is(err, failure.NotFound) {
			return notFound(kuscia.KusciaDeploymentResource.Resource, id)
		}
		return err
	})
}
