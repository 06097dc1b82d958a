package strategy

import (
	"slipway.io/slipway/release/strictyaml"
)

// The longest times that a policy can set, in seconds: a week for a step's pods, a day for a workload's own update, a year for an approval.
const (
	maxSettleSeconds          = 24 * 3600
	maxStepDeadlineSeconds    = 7 * 24 * 3600
	maxApprovalExpiresSeconds = 365 * 24 * 3600
)

// policy reads the policy beside the strategy, and fills in the defaults. batches says whether it says anything of rollbacks in
// batches; nil: nothing.
func (r *Reader) policy(v strictyaml.Value) (p Policy, batches *bool) {
	p = Policy{StepDeadlineSeconds: DefaultStepDeadlineSeconds, SettleSeconds: DefaultSettleSeconds, OnFailure: OnFailurePause,
		OnExpiry: OnFailurePause}
	if !v.Present() {
		return p, nil
	}
	m := v.Mapping("stepDeadlineSeconds", "settleSeconds", "onFailure", "approvals", "rollbackInBatches", "analysis")
	readInteger(m.Field("stepDeadlineSeconds"), &p.StepDeadlineSeconds, 1, maxStepDeadlineSeconds)
	readInteger(m.Field("settleSeconds"), &p.SettleSeconds, 0, maxSettleSeconds)
	readWord(m.Field("onFailure"), &p.OnFailure, OnFailurePause, OnFailureRollback)
	if field := m.Field("analysis"); field.Present() {
		field.CannotRead("is not available yet: leave it out, and have a person look at the new version in a step without a duration")
	}
	if field := m.Field("rollbackInBatches"); field.Present() {
		batches = new(field.Truth())
	}
	if field := m.Field("approvals"); field.Present() {
		r.approvals(&p, field)
	}
	return p, batches
}

func (r *Reader) approvals(p *Policy, v strictyaml.Value) {
	m := v.Mapping("required", "approvers", "expiresSeconds", "onExpiry")
	if field := m.Field("required"); field.Present() && field.Integer(1, 1000) > 1 {
		r.Refuse(field.Path(), "can only be 1: callers aren't authenticated yet, so one person could approve twice")
	}
	if field := m.Field("approvers"); field.Present() {
		field.CannotRead("is not available yet: callers aren't authenticated yet, so approver lists can't be enforced; leave it out")
	}
	readInteger(m.Field("expiresSeconds"), &p.ApprovalExpiresSeconds, 1, maxApprovalExpiresSeconds)
	onExpiry := m.Field("onExpiry")
	readWord(onExpiry, &p.OnExpiry, OnFailurePause, OnFailureRollback)
	if onExpiry.Present() && !m.Field("expiresSeconds").Present() {
		r.Refuse(onExpiry.Path(), "means nothing without expiresSeconds: an approval never expires then")
	}
}

// policyOf reads the policy, to which the document's annotation on rollbacks belongs too.
func (r *Reader) policyOf(d *document, v strictyaml.Value) Policy {
	p, batches := r.policy(v)
	field := strictyaml.Join(v.Path(), "rollbackInBatches")
	switch {
	case batches != nil && d.rollbackInBatches != nil && *batches != *d.rollbackInBatches:
		r.Refuse(field, "is %t, but the annotation %s of the document is %t: keep one", *batches, annotationBatches, *d.rollbackInBatches)
	case batches == nil && d.rollbackInBatches != nil:
		batches, field = d.rollbackInBatches, "rollout.metadata.annotations."+annotationBatches
	}
	p.RollbackInBatches = batches != nil && *batches
	if p.RollbackInBatches && d.body != "" && d.Style != StylePartition {
		r.Refuse(field, "is for rollouts that replace pods in place: with %s every old pod is still there, and a rollback only has to move "+
			"the traffic; leave it out",
			map[Style]string{StyleCanary: "an extra workload", StyleBlueGreen: "blue-green"}[d.Style])
	}
	return p
}
