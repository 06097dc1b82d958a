package kuscia

import (
	"regexp"

	"slipway.io/slipway/api/kuscia/kusciapb"
	"slipway.io/slipway/release/serving"
)

// legalPrefix is what the names of a party's Services may begin with.
var legalPrefix = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,46}[a-z0-9])?$`)

// checkNewServing refuses what no state of things could make a serving, in the order and the words of Kuscia.
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
		if prefix := party.GetServiceNamePrefix(); prefix != "" && !legalPrefix.MatchString(prefix) {
			return invalid("service name prefix is invalid in parties[%d], field %q is invalid, invalid value: %q: regex used for validation is %q ",
				i, "service_name_prefix", prefix, legalPrefix.String())
		}
		initiates = initiates || party.GetDomainId() == r.GetInitiator()
	}
	if !initiates {
		return invalid("initiator %s should be one of the parties", r.GetInitiator())
	}
	return checkNoneTwice(r.GetParties())
}

// checkNoneTwice refuses two parties that would be one Deployment: Kuscia accepts them, and such a serving never gets available.
func checkNoneTwice(parties []*kusciapb.ServingParty) error {
	first := map[[2]string]int{}
	for i, party := range parties {
		key := [2]string{party.GetDomainId(), party.GetRole()}
		if before, twice := first[key]; twice {
			return invalid("parties[%d] has domain_id/role %s/%s, which parties[%d] has already: give one of them another role", i, key[0], key[1], before)
		}
		first[key] = i
	}
	return nil
}

// checkInputConfig refuses what does not fit an environment variable.
func checkInputConfig(config string) error {
	if size := len(config); size > serving.MaxInputConfig {
		return invalid("serving input config has %d bytes, which is more than the %d that fit an environment variable: let the application fetch what is large",
			size, serving.MaxInputConfig)
	}
	return nil
}
