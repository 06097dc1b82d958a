package plans

import (
	"context"
	"fmt"

	"slipway.io/slipway/api/rollouts"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/workflows"
)

// rolloutCheck returns the preflight of a rollout that will release a workload of the plan. The image that it brings is
// not known yet.
func (x *taskStart) rolloutCheck(ctx context.Context, at itemCheck) (workflows.RolloutPreflight, error) {
	spec := *at.spec
	shared, refusal, err := rollouts.FindShared(ctx, x.Backend, spec)
	if err != nil {
		return workflows.RolloutPreflight{}, err
	}
	if refusal != "" {
		return workflows.RolloutPreflight{}, x.refused(
			[]schema.FieldProblem{itemProblem(at.item, at.request.Workload, refusal)})
	}
	return workflows.RolloutPreflight{Party: spec.Party, Queue: x.snapshot.Queues[spec.Party],
		Request: rollout.PreflightRequest{
			Strategy: spec.Strategy, Change: spec.Change, Shared: shared, Build: at.request.Build,
			Subject: rollout.Subject{Workload: spec.Workload(), Name: spec.Name,
				Claim: at.request.Claim, DeadlineSeconds: spec.Policy.StepDeadlineSeconds,
				UnreachableBudgetSeconds: x.snapshot.UnreachableBudgetSeconds}}}, nil
}

// findings are the refusals and warnings about an item.
type findings struct{ refusals, warnings []schema.FieldProblem }

// rolloutFindings classifies the preflight result of a rollout: refusals of the plan, and warnings. A claim of another
// release of this engine is only a warning, because that release may have ended when the item begins.
func (x *taskStart) rolloutFindings(at itemCheck, found rollout.PreflightResult) (out findings) {
	add := func(list *[]schema.FieldProblem, reason string) {
		*list = append(*list, itemFinding(at.item, reason))
	}
	for _, refusal := range found.Refusals {
		key := ""
		if refusal.Field == source.KeyPackage || refusal.Field == source.KeyRepository {
			key = refusal.Field
		}
		out.refusals = append(out.refusals, keyFinding(at.item, key, refusal.Reason))
	}
	if found.Holder != "" {
		holder := workload.ParseHolder(found.Holder)
		if holder.Engine.Differs(x.engine) {
			add(&out.refusals, fmt.Sprintf("%s is held by %s: %s", found.HeldObject, holder.NameFor(x.engine),
				workload.ForeignReason(holder)))
		} else {
			add(&out.warnings,
				fmt.Sprintf("%s is held by the release %s: the item fails if that still runs when it begins",
					found.HeldObject, holder.WorkflowID))
		}
	}
	for _, notice := range append(found.Notices, at.spec.Strategy.Warnings(at.spec.Workload(), found.Replicas)...) {
		add(&out.warnings, notice)
	}
	return out
}

// fillRollouts adds the progress of a service's rollouts. A rollout that does not answer is left unchanged.
func (r *taskReader) fillRollouts(ctx context.Context, service *plan.ServiceStatus) {
	for i := range service.Workloads {
		w := &service.Workloads[i]
		if w.Rollout == nil || w.State != plan.ItemRunning {
			continue
		}
		view := *w.Rollout
		status, err := r.rolloutReader(view).Read(ctx)
		if err != nil {
			continue
		}
		w.Message = status.Reason
		if status.Record != view.Record {
			w.Message = "superseded by another release: " + status.Reason
		}
		w.Rollout = viewOf(view, status)
		if w.Rollout.AwaitsUserOrWindow() {
			service.Reason = fmt.Sprintf("%s: %s", view, status.Reason)
		}
	}
}

// rolloutReader returns the reader of a rollout, which remembers what has not changed.
func (r *taskReader) rolloutReader(view plan.RolloutStatus) *rollouts.Reader {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := view.String()
	if r.rollouts[key] == nil {
		r.rollouts[key] = rollouts.NewReader(r.Backend, view.Party, view.Namespace, view.Name)
	}
	return r.rollouts[key]
}

// viewOf returns a rollout's status as shown by its task.
func viewOf(view plan.RolloutStatus, status rollout.Status) *plan.RolloutStatus {
	view.Phase, view.CurrentStepIndex, view.Steps = string(status.Phase), status.CurrentStepIndex, len(status.Steps)
	view.CanaryWeight, view.WaitingFor = nil, nil
	if status.Traffic != nil {
		view.CanaryWeight = &status.Traffic.CanaryWeight
	}
	if w := status.WaitingFor; w != nil {
		view.WaitingFor = &plan.RolloutWait{Kind: string(w.Kind), Since: w.Since, Until: w.Until, Gate: w.Gate,
			Message: w.Message}
	}
	return &view
}
