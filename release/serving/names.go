package serving

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// DeploymentName is the name of the Deployment of a serving's party with that role: <id> or <id>-<role>.
func DeploymentName(id, role string) string {
	if role == "" {
		return id
	}
	return id + "-" + role
}

func configMapName(deployment string) string { return deployment + "-configtemplate" }

// hashDigits is how much of a hash tells shortened Service names apart.
const hashDigits = 16

// serviceName is the name of the Service of a port: of the party's own prefix, else of the Deployment's name with its dots
// as "-", since a Service is a DNS label. A name that is too long is cut, and a hash of the whole takes the place of the rest.
func serviceName(party kuscia.Party, deployment, port string) string {
	if party.ServiceNamePrefix != "" {
		return party.ServiceNamePrefix + "-" + port
	}
	base := strings.Trim(strings.ReplaceAll(deployment, ".", "-"), "-")
	if base != "" && base[0] >= '0' && base[0] <= '9' {
		base = "svc-" + base
	}
	name := base + "-" + port
	room := validation.DNS1035LabelMaxLength - len("svc-") - len("-") - hashDigits - len("-") - len(port)
	if len(name) <= validation.DNS1035LabelMaxLength || room < 1 {
		return name
	}
	sum := sha256.Sum256([]byte(base))
	return "svc-" + base[:room] + "-" + hex.EncodeToString(sum[:])[:hashDigits] + "-" + port
}

// PartyName is how lists call a party: its domain, and its role if it has one.
func PartyName(p kuscia.Party) string {
	if p.Role == "" {
		return p.DomainID
	}
	return p.DomainID + "/" + p.Role
}

// partyName is how sentences name a party.
func partyName(p kuscia.Party) string { return "party " + PartyName(p) }
