package strategy

import (
	"slipway.io/slipway/release/strictyaml"
)

// The longest times that a policy can set, in seconds: a week for a step's pods, a day for a workload's own update, a year for an approval.
const (
	MaxSettleSeconds          = 24 * 3600
	MaxStepDeadlineSeconds    = 7 * 24 * 3600
	MaxApprovalExpiresSeconds = 365 * 24 * 3600
)

// policy reads the policy beside the strategy, and fills in the defaults. batches says whether it says anything of rollbacks in
// batches; nil: nothing.
func (r *Reader) policy(v strictyaml.Value) (p Policy, batches *bool) {
	p = Policy{StepDeadlineSeconds: DefaultStepDeadlineSeconds, SettleSeconds: DefaultSettleSeconds, OnFailure: OnFailurePause, OnExpiry: OnFailurePause}
	if !v.Present() {
		return p, nil
	}
	m := v.Mapping("stepDeadlineSeconds", "settleSeconds", "onFailure", "approvals", "rollbackInBatches", "analysis")
	if field := m.Field("stepDeadlineSeconds"); field.Present() {
		p.StepDeadlineSeconds = field.Integer(1, MaxStepDeadlineSeconds)
	}
	if field := m.Field("settleSeconds"); field.Present() {
		p.SettleSeconds = field.Integer(0, MaxSettleSeconds)
	}
	if field := m.Field("onFailure"); field.Present() {
		p.OnFailure = oneOf(field, OnFailurePause, OnFailureRollback)
	}
	if field := m.Field("analysis"); field.Present() {
		field.CannotRead("is not available yet: leave it out, and have a person look at the new version in a step without a duration")
	}
	if field := m.Field("rollbackInBatches"); field.Present() {
		yes := field.Truth()
		batches = &yes
	}
	if field := m.Field("approvals"); field.Present() {
		r.approvals(&p, field)
	}
	return p, batches
}

func (r *Reader) approvals(p *Policy, v strictyaml.Value) {
	m := v.Mapping("required", "approvers", "expiresSeconds", "onExpiry")
	if field := m.Field("required"); field.Present() && field.Integer(1, 1000) > 1 {
		r.Refuse(field.Path(), "can only be 1: nobody is known by more than the name they give, so that one person could approve twice")
	}
	if field := m.Field("approvers"); field.Present() {
		field.CannotRead("is not available yet: nobody is known by more than the name they give, so that a list would keep nobody out; leave it out")
	}
	expires := m.Field("expiresSeconds")
	if expires.Present() {
		p.ApprovalExpiresSeconds = expires.Integer(1, MaxApprovalExpiresSeconds)
	}
	if field := m.Field("onExpiry"); field.Present() {
		p.OnExpiry = oneOf(field, OnFailurePause, OnFailureRollback)
		if !expires.Present() {
			r.Refuse(field.Path(), "means nothing without expiresSeconds: an approval never expires then")
		}
	}
}
