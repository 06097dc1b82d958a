package kuscia

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/api/kuscia/kusciapb"
	"slipway.io/slipway/release/catalog"
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
	if err := checkNewServing(r); err != nil {
		return err
	}
	if err := s.checkFree(ctx, r.GetServingId()); err != nil {
		return err
	}
	kd := newServing(r)
	images, err := s.appImages(ctx, kd.Spec.Parties)
	if err != nil {
		return err
	}
	for i, asked := range r.GetParties() {
		if err := setParty(&kd.Spec.Parties[i], asked, images); err != nil {
			return err
		}
	}
	if err := s.checkDomains(ctx, kd.Spec.Parties); err != nil {
		return err
	}
	if err := checkVersion(kd, images); err != nil {
		return err
	}
	err = s.store.CreateServing(ctx, kd)
	if failure.Is(err, failure.Conflict) {
		return alreadyExists(kd.Name)
	}
	return err
}

// checkFree refuses an ID that exists, including one of a serving that is being deleted: its parties may still run it.
func (s *Service) checkFree(ctx context.Context, id string) error {
	if illegalName(id) {
		return nil // checkVersion reports the error
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

// newServing returns the KusciaDeployment of a request, without the parts that depend on AppImages.
func newServing(r *kusciapb.CreateServingRequest) *kuscia.KusciaDeployment {
	kd := &kuscia.KusciaDeployment{
		ObjectMeta: metav1.ObjectMeta{Name: r.GetServingId(), Namespace: kuscia.Namespace,
			Labels: map[string]string{kuscia.LabelAppType: kuscia.AppTypeServing},
			// Otherwise the controller would add it: one more write and reconciliation per creation.
			Finalizers: []string{kuscia.Finalizer}},
		Spec: kuscia.KusciaDeploymentSpec{Initiator: r.GetInitiator(), InputConfig: r.GetServingInputConfig()},
	}
	if mode := r.GetAffinityMode(); mode != "" {
		kd.Annotations = map[string]string{kuscia.AnnotationAffinityMode: mode}
	}
	for _, p := range r.GetParties() {
		kd.Spec.Parties = append(kd.Spec.Parties, kuscia.Party{DomainID: p.GetDomainId(), AppImageRef: p.GetAppImage(),
			Role:              p.GetRole(),
			ServiceNamePrefix: p.GetServiceNamePrefix()})
	}
	return kd
}

// setParty fills in the template of a new party. Replicas missing in the request stay unset: the AppImage's number then
// applies, even after it changes.
func setParty(party *kuscia.Party, asked *kusciapb.ServingParty, images map[string]kuscia.AppImageSpec) error {
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

// checkDomains refuses domains without a party. A party that is unreachable is accepted: it takes part when it is
// reachable again.
func (s *Service) checkDomains(ctx context.Context, parties []kuscia.Party) error {
	domains := distinct(parties, func(p kuscia.Party) string { return p.DomainID })
	return forEach(len(domains), func(i int) error {
		unknown := fmt.Errorf("domain %s is not known: create a Party object or a namespace of that name in the home "+
			"cluster", domains[i])
		if catalog.ValidParty(domains[i]) != nil {
			return unknown
		}
		_, known, err := s.store.Queue(ctx, domains[i])
		if err == nil && !known {
			return unknown
		}
		return err
	})
}

// checkVersion refuses a version that cannot be rendered for every party, with the first error.
func checkVersion(kd *kuscia.KusciaDeployment, images map[string]kuscia.AppImageSpec) error {
	for _, problem := range serving.Snapshot(kd, images).Check() {
		return errors.New(problem.Message)
	}
	return nil
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
