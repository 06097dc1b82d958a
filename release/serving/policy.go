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

// Order is in which order an update reaches the parties.
type Order string

const (
	// OrderParallel: all at once. The default.
	OrderParallel Order = "parallel"
	// OrderSequential: one after another, each when the one before runs the new version.
	OrderSequential Order = "sequential"
)

// Approval is whom an update asks before it goes on.
type Approval string

const (
	// ApprovalNone: nobody. The default.
	ApprovalNone Approval = "none"
	// ApprovalBetweenParties: once a party runs the new version, a person says whether the next one begins.
	ApprovalBetweenParties Approval = "betweenParties"
)

const defaultDeadlineSeconds = 600

// Policy is what a serving's operations do otherwise than by default.
type Policy struct {
	// ProgressDeadlineSeconds is how long a party may take to run a version.
	ProgressDeadlineSeconds int64 `json:"progressDeadlineSeconds,omitempty"`
	// PartyDeadlineSeconds is how long an update waits for a party that is away.
	PartyDeadlineSeconds int64 `json:"partyDeadlineSeconds,omitempty"`
	// Order is in which order an update reaches the parties, Parties the domains that are first when it is sequential.
	Order   Order    `json:"order,omitempty"`
	Parties []string `json:"parties,omitempty"`
	// Approval is whom an update that reaches one party after another asks in between.
	Approval Approval `json:"approval,omitempty"`
}

// ProgressDeadline is how long a party may take to run a version.
func (p Policy) ProgressDeadline() time.Duration {
	return time.Duration(p.withDefaults().ProgressDeadlineSeconds) * time.Second
}

// PartyDeadline is how long an update waits for a party that is away.
func (p Policy) PartyDeadline() time.Duration {
	return time.Duration(p.withDefaults().PartyDeadlineSeconds) * time.Second
}

// withDefaults is the policy with everything said that it leaves out.
func (p Policy) withDefaults() Policy {
	p.ProgressDeadlineSeconds = cmp.Or(p.ProgressDeadlineSeconds, defaultDeadlineSeconds)
	p.PartyDeadlineSeconds = cmp.Or(p.PartyDeadlineSeconds, defaultDeadlineSeconds)
	p.Order = cmp.Or(p.Order, OrderParallel)
	p.Approval = cmp.Or(p.Approval, ApprovalNone)
	return p
}

// maxDeadlineSeconds is a week.
const maxDeadlineSeconds = 7 * 24 * 3600

// DecodePolicy reads a policy from JSON or YAML, strictly: every error at once. "" is the default policy.
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
		ProgressDeadlineSeconds: m.Optional("progressDeadlineSeconds").Integer(1, maxDeadlineSeconds),
		PartyDeadlineSeconds:    m.Optional("partyDeadlineSeconds").Integer(1, maxDeadlineSeconds),
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
			found.Refuse(0, v.Path(), "says who comes first, which means nothing unless order is sequential")
		}
	}
	if v := m.Optional("approval"); v.Present() {
		p.Approval = Approval(v.Text())
		switch {
		case p.Approval != ApprovalNone && p.Approval != ApprovalBetweenParties:
			found.Refuse(0, v.Path(), "must be %s or %s", ApprovalNone, ApprovalBetweenParties)
		case p.Approval == ApprovalBetweenParties && p.Order != OrderSequential:
			found.Refuse(0, v.Path(), "is asked for between parties, which means nothing unless order is sequential: "+
				"add order: sequential, or leave it out")
		}
	}
	return p, found.Sorted()
}

// CheckParties says which domains the policy names that are no party of the serving, "" when none: they would be ignored.
func (p Policy) CheckParties(parties []kuscia.Party) string {
	for _, i := range p.Strangers(parties) {
		return fmt.Sprintf("parties[%d] is %s, which is no party of the serving: name one that is, or leave it out", i, p.Parties[i])
	}
	return ""
}

// Strangers are the places in Parties of the domains that are none of these parties.
func (p Policy) Strangers(parties []kuscia.Party) []int {
	var strangers []int
	for i, domain := range p.Parties {
		if !slices.ContainsFunc(parties, func(party kuscia.Party) bool { return party.DomainID == domain }) {
			strangers = append(strangers, i)
		}
	}
	return strangers
}
