package serving

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/strictyaml"
)

// AnnotationPolicy of a KusciaDeployment holds its Policy as JSON.
const AnnotationPolicy = "slipway.io/policy"

// Order is the order in which an update reaches the parties.
type Order string

const (
	// OrderParallel: all parties at once. The default.
	OrderParallel Order = "parallel"
	// OrderSequential: one party after another, each when the previous one runs the new version.
	OrderSequential Order = "sequential"
)

// Approval is the approval that an update needs to proceed.
type Approval string

const (
	// ApprovalNone: no approval. The default.
	ApprovalNone Approval = "none"
	// ApprovalBetweenParties: once a party runs the new version, the next one starts only after an approval.
	ApprovalBetweenParties Approval = "betweenParties"
)

const defaultDeadlineSeconds = 600

// Policy configures the operations of a serving; zero values are the defaults.
type Policy struct {
	// ProgressDeadlineSeconds is how long a party may take to run a version.
	ProgressDeadlineSeconds int64 `json:"progressDeadlineSeconds,omitempty"`
	// PartyDeadlineSeconds is how long an update waits for an unreachable party.
	PartyDeadlineSeconds int64 `json:"partyDeadlineSeconds,omitempty"`
	// Order is the order in which an update reaches the parties. Parties are the domains that come first if the order
	// is sequential.
	Order   Order    `json:"order,omitempty"`
	Parties []string `json:"parties,omitempty"`
	// Approval is the approval that a sequential update needs between parties.
	Approval Approval `json:"approval,omitempty"`
}

// ProgressDeadline returns how long a party may take to run a version.
func (p Policy) ProgressDeadline() time.Duration {
	return time.Duration(p.withDefaults().ProgressDeadlineSeconds) * time.Second
}

// PartyDeadline returns how long an update waits for an unreachable party.
func (p Policy) PartyDeadline() time.Duration {
	return time.Duration(p.withDefaults().PartyDeadlineSeconds) * time.Second
}

// withDefaults returns the policy with defaults for absent fields.
func (p Policy) withDefaults() Policy {
	p.ProgressDeadlineSeconds = cmp.Or(p.ProgressDeadlineSeconds, defaultDeadlineSeconds)
	p.PartyDeadlineSeconds = cmp.Or(p.PartyDeadlineSeconds, defaultDeadlineSeconds)
	p.Order = cmp.Or(p.Order, OrderParallel)
	p.Approval = cmp.Or(p.Approval, ApprovalNone)
	return p
}

// maxDeadlineSeconds is a week.
const maxDeadlineSeconds = 7 * 24 * 3600

// DecodePolicy parses a policy from JSON or YAML strictly and reports every error at once. "" is the default policy.
func DecodePolicy(data []byte) (Policy, strictyaml.Errors) {
	if len(data) == 0 {
		return Policy{}, nil
	}
	root, found, ok := strictyaml.Parse(data)
	if !ok {
		return Policy{}, found.Sorted()
	}
	m := root.Mapping("progressDeadlineSeconds", "partyDeadlineSeconds", "order", "parties", "approval")
	p := Policy{
		ProgressDeadlineSeconds: m.Optional("progressDeadlineSeconds").Seconds(1, maxDeadlineSeconds),
		PartyDeadlineSeconds:    m.Optional("partyDeadlineSeconds").Seconds(1, maxDeadlineSeconds),
	}
	if v := m.Optional("order"); v.Present() {
		p.Order = Order(v.Text())
		if p.Order != OrderParallel && p.Order != OrderSequential {
			found.Refuse(0, v.Path(), "must be %s or %s", OrderParallel, OrderSequential)
		}
	}
	if v := m.Optional("parties"); v.Present() {
		p.Parties = v.Strings()
		if p.Order != OrderSequential {
			found.Refuse(0, v.Path(),
				"has no effect unless order is sequential: add order: sequential, or leave it out")
		}
	}
	if v := m.Optional("approval"); v.Present() {
		p.Approval = Approval(v.Text())
		switch {
		case p.Approval != ApprovalNone && p.Approval != ApprovalBetweenParties:
			found.Refuse(0, v.Path(), "must be %s or %s", ApprovalNone, ApprovalBetweenParties)
		case p.Approval == ApprovalBetweenParties && p.Order != OrderSequential:
			found.Refuse(0, v.Path(), "has no effect unless order is sequential: "+
				"add order: sequential, or leave it out")
		}
	}
	return p, found.Sorted()
}

// CheckParties returns an error text for the first domain in Parties that is not a party of the serving, which would be
// ignored; "" if there is none.
func (p Policy) CheckParties(parties []kuscia.Party) string {
	for _, i := range p.UnknownParties(parties) {
		return fmt.Sprintf("parties[%d] is %s, which is not a party of the serving: name one of its parties, or "+
			"leave it out", i, p.Parties[i])
	}
	return ""
}

// UnknownParties returns the indices in Parties of the domains that are none of these parties.
func (p Policy) UnknownParties(parties []kuscia.Party) []int {
	var unknown []int
	for i, domain := range p.Parties {
		if !slices.ContainsFunc(parties, func(party kuscia.Party) bool { return party.DomainID == domain }) {
			unknown = append(unknown, i)
		}
	}
	return unknown
}
