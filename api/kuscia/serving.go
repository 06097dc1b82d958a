package kuscia

import (
	"context"
	"fmt"

	"slipway.io/slipway/api/declared"
	"slipway.io/slipway/api/kuscia/convert"
	"slipway.io/slipway/api/kuscia/kusciapb"
	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

// CreateServing creates a serving. It is refused completely if a part of it cannot be carried out.
func (s *Service) CreateServing(ctx context.Context, r *kusciapb.CreateServingRequest) (*kusciapb.CreateServingResponse,
	error) {
	return &kusciapb.CreateServingResponse{Status: outcome(s.createServing(ctx, r), codeCreateServing)}, nil
}

func (s *Service) createServing(ctx context.Context, r *kusciapb.CreateServingRequest) error {
	id := r.GetServingId()
	if err := checkNewServing(r); err != nil {
		return err
	}
	if err := s.checkFree(ctx, id); err != nil {
		return err
	}
	spec, images, err := convert.NewSpec(r, s.readImages(ctx))
	if err != nil {
		return err
	}
	err = s.writer().Create(ctx, id, r.GetAffinityMode(), spec, images)
	if failure.Is(err, failure.Conflict) {
		return alreadyExists(id)
	}
	return err
}

// checkFree refuses an ID that exists, including one of a serving that is being deleted: its parties may still run it.
func (s *Service) checkFree(ctx context.Context, id string) error {
	if declared.CheckName(id) != nil {
		return nil // the check of the version reports the error
	}
	_, err := s.store.GetServing(ctx, id)
	switch {
	case err == nil:
		return alreadyExists(id)
	case failure.Is(err, failure.NotFound):
		return nil
	}
	return err
}

func alreadyExists(id string) error {
	return fmt.Errorf("serving %q already exists, please ensure that the name is not duplicated",
		kuscia.Namespace+"/"+id)
}

// checkNewServing refuses requests that are wrong regardless of the current state, with Kuscia's order of checks and
// messages.
func checkNewServing(r *kusciapb.CreateServingRequest) error {
	if r.GetServingId() == "" {
		return errNoServingID
	}
	if err := checkName("serving_id", r.GetServingId()); err != nil {
		return err
	}
	if r.GetInitiator() == "" {
		return invalid("initiator can not be empty")
	}
	if len(r.GetParties()) == 0 {
		return invalid("parties can not be empty")
	}
	if err := checkNewParties(r); err != nil {
		return err
	}
	return checkInputConfig(r.GetServingInputConfig())
}

var errNoServingID = invalid("serving id can not be empty")

func checkNewParties(r *kusciapb.CreateServingRequest) error {
	initiates := false
	for i, party := range r.GetParties() {
		if party.GetAppImage() == "" {
			return invalid("appimage can't be empty in parties[%d]", i)
		}
		if party.GetDomainId() == "" {
			return invalid("domain id can't be empty in parties[%d]", i)
		}
		if prefix := party.GetServiceNamePrefix(); prefix != "" && !serving.ServicePrefix.MatchString(prefix) {
			return invalid("service name prefix is invalid in parties[%d], field %q is invalid, invalid value: %q: "+
				"regex used for validation is %q ",
				i, "service_name_prefix", prefix, serving.ServicePrefix)
		}
		initiates = initiates || party.GetDomainId() == r.GetInitiator()
	}
	if !initiates {
		return invalid("initiator %s should be one of the parties", r.GetInitiator())
	}
	return checkNoneTwice(r.GetParties())
}

// checkNoneTwice refuses two parties with the same Deployment: Kuscia accepts them, and such a serving never becomes
// available.
func checkNoneTwice(parties []*kusciapb.ServingParty) error {
	first := map[[2]string]int{}
	for i, party := range parties {
		key := [2]string{party.GetDomainId(), party.GetRole()}
		if before, twice := first[key]; twice {
			return invalid("parties[%d] has domain_id/role %s/%s, which parties[%d] has already: give one of them "+
				"another role", i, key[0], key[1],
				before)
		}
		first[key] = i
	}
	return nil
}

func checkInputConfig(config string) error {
	if size := len(config); size > serving.MaxInputConfig {
		return invalid("serving input config has %d bytes, which is more than the %d that fit an environment "+
			"variable: "+
			"let the application fetch what is large", size, serving.MaxInputConfig)
	}
	return nil
}

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
