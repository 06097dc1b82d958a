package rollouts

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.io/slipway/api/input"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/store"
)

// rolloutKey identifies a rollout: a name in a namespace of a party has at most one live release.
type rolloutKey struct {
	party, namespace, name string
}

// newRolloutKey reads the parts of an address; an illegal name is reported as not found.
func newRolloutKey(party *schema.Party, namespace, name string) (rolloutKey, error) {
	key := rolloutKey{cmp.Or(input.Text(party), catalog.DefaultParty), namespace, name}
	if catalog.ValidID(key.party) != nil || len(validation.IsDNS1123Label(namespace)) > 0 ||
		len(validation.IsDNS1123Subdomain(name)) > 0 {
		return key, key.missing()
	}
	return key, nil
}

// rolloutOfSubject parses the subject of a rollout's record.
func rolloutOfSubject(subject string) (key rolloutKey, ok bool) {
	parts := strings.Split(subject, "/")
	if len(parts) != 3 {
		return rolloutKey{}, false
	}
	return rolloutKey{parts[0], parts[1], parts[2]}, true
}

func (k rolloutKey) workflowID() string { return rollout.WorkflowID(k.party, k.namespace, k.name) }

func (k rolloutKey) subject() string {
	return v1alpha1.RolloutSubject(k.party, k.namespace, k.name)
}

// labels select the records of all releases of this name.
func (k rolloutKey) labels() map[string]string {
	return store.RolloutLabels(k.party, k.namespace, k.name)
}

// String names the rollout in messages.
func (k rolloutKey) String() string {
	if k.party == catalog.DefaultParty {
		return fmt.Sprintf("rollout %s/%s", k.namespace, k.name)
	}
	return fmt.Sprintf("rollout %s/%s of party %s", k.namespace, k.name, k.party)
}

// path is the address of the rollout, verb the address of one of its verbs.
func (k rolloutKey) path() string { return k.verb("") }

func (k rolloutKey) verb(verb string) string {
	address := "/api/v1/rollouts/" + url.PathEscape(k.namespace) + "/" + url.PathEscape(k.name)
	if verb != "" {
		address += "/" + verb
	}
	if k.party != catalog.DefaultParty {
		address += "?party=" + url.QueryEscape(k.party)
	}
	return address
}

func (k rolloutKey) missing() error { return problem.NotFound.Because("%s does not exist", k) }
