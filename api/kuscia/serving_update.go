package kuscia

import (
	"context"

	"slipway.io/slipway/api/declared"
	"slipway.io/slipway/api/kuscia/convert"
	"slipway.io/slipway/api/kuscia/kusciapb"
	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
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
	changed, err := declared.Effective(stored)
	if err != nil {
		return err
	}
	spec, images, err := convert.ChangedSpec(changed.Spec, r, s.readImages(ctx))
	if err != nil {
		return err
	}
	changed.Spec = spec
	_, err = s.writer().Change(ctx, stored, changed, images)
	return err
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
