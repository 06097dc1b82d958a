package rollouts

import (
	"context"

	"slipway.io/slipway/release/digest"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/instant"
	"slipway.io/slipway/release/kruise"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/machine"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/store"
)

// readableName is how much of a rollout's name begins the name of its record.
const readableName = 40

// RecordNotHeld writes the record of a change of a pod template that moved pods without a release: one that Failed
// before it did anything. Its name follows from the object and from both templates, so a repetition writes nothing.
func (o *Objects) RecordNotHeld(ctx context.Context, u kruise.Unheld) error {
	s := &rolloutStart{Handlers: o.Handlers, request: strategy.Request{Spec: u.Spec}}
	if err := s.resolveParty(ctx); err != nil {
		return err
	}
	earlier, err := o.Home.FindRecords(ctx, s.key.labels())
	if err != nil {
		return err
	}
	record, err := store.NewRolloutRecord(machine.Request{Spec: s.request.Spec, Revision: store.NextNumber(earlier)})
	if err != nil {
		return err
	}
	name := u.Spec.Name[:min(len(u.Spec.Name), readableName)]
	record.Name = v1alpha1.RecordName(v1alpha1.KindRollout, name+"-"+
		digest.Of(u.Object.UID + "\n" + u.Old + "\n" + u.New.Template)[:16])
	record.Labels[v1alpha1.LabelVia] = kruise.Via
	record.Spec.CreatedAt, record.Spec.Reason = instant.MicroOf(u.At), u.Reason
	if err := o.Home.CreateRecord(ctx, record); failure.Ignore(err, failure.Conflict) != nil {
		return err
	}
	status := o.initialStatus(record.Spec.WorkflowID, store.RolloutAsked(record, s.request.Spec))
	status.Phase, status.Reason, status.WaitingFor, status.FinishedAt = rollout.PhaseFailed, u.Reason, nil, &u.At
	status.Images, status.TemplateDigest, status.CanaryRevision = u.New.Images, u.New.Template, u.New.Name
	status.StableTemplateDigest = u.Old
	return o.Home.CompleteRollout(ctx, record.Name, status, o.recordLimit)
}
