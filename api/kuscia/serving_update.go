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

// UpdateServing changes a serving: its input configuration, and of the named parties the fields in the request. It
// changes all or nothing.
func (s *Service) UpdateServing(ctx context.Context, r *kusciapb.UpdateServingRequest) (*kusciapb.UpdateServingResponse,
	error) {
	return &kusciapb.UpdateServingResponse{Status: outcome(s.updateServing(ctx, r), codeUpdateServing)}, nil
}

func (s *Service) updateServing(ctx context.Context, r *kusciapb.UpdateServingRequest) error {
	if r.GetServingId() == "" {
		return errNoServingID
	}
	if r.GetServingInputConfig() == "" && len(r.GetParties()) == 0 {
		return nil // as in Kuscia, also for a missing serving
	}
	if err := checkInputConfig(r.GetServingInputConfig()); err != nil {
		return err
	}
	return failure.RetryOnConflict("serving "+r.GetServingId(), func() error {
		stored, err := s.getServing(ctx, r.GetServingId())
		if err != nil {
			return err
		}
		return s.changeServing(ctx, stored, r)
	})
}

// changeServing writes the requested serving, unless it equals the stored one. A Conflict means that the serving was
// changed after it was read.
func (s *Service) changeServing(ctx context.Context, stored *kuscia.KusciaDeployment,
	r *kusciapb.UpdateServingRequest) error {
	shown, err := effectiveServing(stored)
	if err != nil {
		return err
	}
	changed, images, err := s.applyRequest(ctx, shown, r)
	if err != nil {
		return err
	}
	if sameSpec(shown, changed) && sameSpec(stored, changed) {
		// Nothing changes, unless an AppImage was edited: an update then applies the current AppImage.
		if changed.Spec.Revision, err = serving.Revision(stored, images); err != nil || sameSpec(stored, changed) {
			return err
		}
	}
	if err := checkVersion(changed, images); err != nil {
		return err
	}
	if sameSpec(stored, changed) {
		// A rolled back update is requested again, perhaps because its image is available now. Writing the same spec
		// would create no new generation, and no operation would start. Therefore the spec is first written as it was
		// before the update, and then as requested.
		if err := s.store.UpdateServing(ctx, shown); err != nil {
			return err
		}
		changed.ObjectMeta = shown.ObjectMeta
	}
	return s.store.UpdateServing(ctx, changed)
}

func sameSpec(a, b *kuscia.KusciaDeployment) bool { return equality.Semantic.DeepEqual(a.Spec, b.Spec) }

// applyRequest returns a copy of the serving with the request applied, and the AppImages that it refers to.
func (s *Service) applyRequest(ctx context.Context, shown *kuscia.KusciaDeployment,
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

// effectiveServing returns a copy of the serving as shown by a query: a request changes that version, so that it does
// not implicitly retry a rolled back update.
func effectiveServing(stored *kuscia.KusciaDeployment) (*kuscia.KusciaDeployment, error) {
	shown := stored.DeepCopy()
	if !serving.RolledBack(stored) {
		return shown, nil
	}
	served, err := serving.Unpack(stored.Status.Served.Version)
	shown.Spec = served.Spec
	return shown, err
}

// changeParty changes the party with the request's domain and role, in the fields that the request has.
func changeParty(parties []kuscia.Party, asked *kusciapb.ServingParty, images map[string]kuscia.AppImageSpec) error {
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
		spec.Containers = slices.DeleteFunc(spec.Containers, func(c corev1.Container) bool {
			return !slices.Contains(containers, c.Name)
		})
	}
	return nil
}

// DeleteServing deletes a serving. Queries no longer find it from now on; its parties are cleaned up afterwards.
func (s *Service) DeleteServing(ctx context.Context, r *kusciapb.DeleteServingRequest) (*kusciapb.DeleteServingResponse,
	error) {
	return &kusciapb.DeleteServingResponse{Status: outcome(s.deleteServing(ctx, r.GetServingId()), codeDeleteServing)},
		nil
}

func (s *Service) deleteServing(ctx context.Context, id string) error {
	if id == "" {
		return errNoServingID
	}
	return failure.RetryOnConflict("serving "+id, func() error {
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
