package rollouts

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/input"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/api/start"
	"slipway.io/slipway/execution"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/machine"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/trafficrouting"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/workflows"
)

// Check asks the home cluster and the party's worker, without a write, whether the rollout can be executed.
func (s *rolloutStart) Check(ctx context.Context) error {
	if s.checked || s.rollBackFrozen {
		return nil
	}
	found, err := s.findings(ctx)
	if err != nil {
		return err
	}
	problems, warnings := s.classify(found)
	problems = append(problems, start.NeverOpens("policy.windows", "", s.request.Spec.Policy.Times)...)
	if len(problems) == 0 && s.undo != nil {
		problems = s.applyRevision(found)
	}
	if len(problems) > 0 {
		return s.refused(problems...)
	}
	s.request.Warnings, s.predicted = append(s.request.Warnings, warnings...), found.Predicted
	held, err := s.heldBy(ctx, found)
	if s.checked = err == nil; err != nil || held == "" {
		return err
	}
	return problem.Conflict.Because("%s", held).HeldBy(workload.ParseHolder(found.Holder).WorkflowID)
}

// classify splits a preflight result into refusals of the rollout and warnings.
func (s *rolloutStart) classify(found *rollout.PreflightResult) (problems []schema.FieldProblem, warnings []string) {
	for _, refusal := range found.Refusals {
		problems = append(problems, schema.FieldProblem{Field: refusal.Field, Reason: refusal.Reason})
	}
	spec := s.request.Spec
	wait := time.Duration(spec.Policy.SettleSeconds) * time.Second
	switch {
	case found.Unsettled != "" && wait == 0:
		problems = append(problems, schema.FieldProblem{Field: "workloadRef", Reason: found.Unsettled +
			": wait until that is done, or omit policy.settleSeconds"})
	case found.Unsettled != "":
		warnings = append(warnings, fmt.Sprintf("%s: the release waits up to %s for that before it begins",
			found.Unsettled, wait))
	}
	warnings = append(warnings, found.Notices...)
	return problems, append(warnings, spec.Strategy.Warnings(spec.Workload(), found.Replicas)...)
}

// findings returns the preflight result of the party's worker. If no pod shows which revision is the stable one, the
// worker is asked again with the one that the newest Healthy record of the name shows.
func (s *rolloutStart) findings(ctx context.Context) (*rollout.PreflightResult, error) {
	found, err := s.ask(ctx)
	if err != nil || !found.StableUnknown || s.served != nil {
		return found, err
	}
	if s.served, err = s.Home.LastHealthy(ctx, s.request.Spec); err != nil || s.served == nil {
		return found, err
	}
	return s.ask(ctx)
}

// ask asks the party's worker.
func (s *rolloutStart) ask(ctx context.Context) (*rollout.PreflightResult, error) {
	check, refusal, err := NewPreflight(ctx, s.Backend, s.request.Spec, s.queue)
	if err != nil {
		return nil, err
	}
	check.Request.Served = s.served
	var shared []rollout.Refusal
	if refusal != "" {
		shared = []rollout.Refusal{{Field: "strategy.trafficRoutingRef", Reason: refusal}}
	}
	asking := start.Preflight{Backend: s.Backend, Refusal: s.key.String() + " was not started",
		Summary: "can " + s.key.String() + " be carried out?"}
	outcome, err := asking.CheckRollout(ctx, check)
	if shared != nil && (err != nil || outcome.Rollout == nil) { // refused, whatever the party can't say
		return &rollout.PreflightResult{Refusals: shared}, nil
	}
	if err != nil {
		return nil, err
	}
	if outcome.Unreachable != "" || outcome.Rollout == nil {
		return nil, s.Unreachable(ctx, asking.Refusal, backend.UnreachableParty{Name: s.key.party, Queue: s.queue,
			Reason: outcome.Unreachable})
	}
	outcome.Rollout.Refusals = append(shared, outcome.Rollout.Refusals...)
	return outcome.Rollout, nil
}

// NewPreflight returns the check of a rollout by its party's worker, of everything that can be checked. refusal is the
// reason why the TrafficRouting that its strategy refers to cannot be used.
func NewPreflight(ctx context.Context, b *backend.Backend, spec strategy.Spec,
	queue string) (check workflows.RolloutPreflight, refusal string, err error) {
	shared, refusal, err := findShared(ctx, b, spec)
	if err != nil {
		return check, "", err
	}
	engine, err := b.Home.Engine(ctx)
	return workflows.RolloutPreflight{Party: spec.Party, Queue: queue, Request: rollout.PreflightRequest{
		Strategy: spec.Strategy, Change: spec.Change, Shared: shared,
		Subject: rollout.Subject{Workload: spec.Workload(), Name: spec.Name,
			Claim: workload.Holder{Engine: engine}.String(), DeadlineSeconds: spec.Policy.StepDeadlineSeconds,
			UnreachableBudgetSeconds: b.BudgetSeconds()}}}, refusal, err
}

// findShared reads the TrafficRouting that a rollout's strategy refers to; nil if it refers to none.
func findShared(ctx context.Context, b *backend.Backend, spec strategy.Spec) (shared *rollout.SharedTraffic,
	refusal string, err error) {
	name := spec.Strategy.TrafficRoutingRef
	if name == "" {
		return nil, "", nil
	}
	path := spec.Namespace + "/" + name
	refused := func(why string) (*rollout.SharedTraffic, string, error) {
		return nil, "TrafficRouting " + path + " " + why, nil
	}
	found, err := b.Home.GetTrafficRouting(ctx, spec.Namespace, name)
	switch {
	case failure.Is(err, failure.NotFound):
		return refused("does not exist in the home cluster: create it (PUT /api/v1/trafficroutings/" + path + ")")
	case err != nil:
		return nil, "", err
	case found.Deleting:
		return refused("is being deleted")
	}
	engine, err := b.Home.Engine(ctx)
	if err != nil {
		return nil, "", err
	}
	if other := trafficrouting.HeldByAnother(found.Status.Holders, engine); other != "" {
		return refused("is held by " + other)
	}
	decoded, wrong := trafficrouting.DecodeSpec(found.Name, found.Spec)
	if len(wrong) > 0 {
		return refused("is invalid: " + problem.Summary(problem.Fields(wrong)))
	}
	return &decoded, "", nil
}

// heldBy describes which live release holds the workload or an object that routes traffic to it; "" if none does.
func (s *rolloutStart) heldBy(ctx context.Context, found *rollout.PreflightResult) (string, error) {
	if found.Holder == "" {
		return "", nil
	}
	holder := workload.ParseHolder(found.Holder)
	engine, err := s.Home.Engine(ctx)
	switch {
	case err != nil:
		return "", err
	case holder.Engine.Differs(engine):
		return fmt.Sprintf("%s is held by %s: %s", found.HeldObject, holder.NameFor(engine),
			workload.ForeignReason(holder)), nil
	case holder.WorkflowID == s.key.workflowID():
		// the rollout's own claim: of the live release that is superseded, or of one that ended abnormally
		return "", nil
	}
	if namespace, name, ok := v1alpha1.ParseTrafficClaim(found.Holder); ok {
		return s.trafficHeldBy(ctx, found.HeldObject, namespace, name)
	}
	alive, err := s.HolderAlive(ctx, holder)
	if err != nil || !alive {
		return "", err
	}
	return fmt.Sprintf("%s is held by the release %s: wait until it has ended, or stop it", found.HeldObject,
		holder.WorkflowID), nil
}

// trafficHeldBy is heldBy for a route that a TrafficRouting holds for its rollouts.
func (s *rolloutStart) trafficHeldBy(ctx context.Context, on, namespace, name string) (string, error) {
	if namespace == s.key.namespace && name == s.request.Spec.Strategy.TrafficRoutingRef {
		return "", nil
	}
	routing, err := s.Home.GetTrafficRouting(ctx, namespace, name)
	if failure.Is(err, failure.NotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	living, err := s.LiveHolders(ctx, routing.Status.Holders)
	if err != nil || len(living) == 0 {
		return "", err
	}
	return fmt.Sprintf("%s is held by TrafficRouting %s/%s for the release %s: wait until it has ended, or stop it", on,
		namespace, name, living[0].WorkflowID), nil
}

// ValidateRollout answers POST /api/v1/rollouts/validate: it runs all checks of a start, without a write.
func (h *Handlers) ValidateRollout(c echo.Context) error {
	request, wrong, err := input.Decode(c, strategy.DecodeRequest)
	if err != nil {
		return err
	}
	result := schema.RolloutValidateResult{Warnings: []string{}, Errors: problem.Fields(wrong)}
	if len(wrong) == 0 {
		ctx, cancel := context.WithTimeout(c.Request().Context(), start.Timeout)
		defer cancel()
		if err := h.validateRollout(ctx, request, &result); err != nil {
			return err
		}
	}
	result.Valid = len(result.Errors) == 0
	return c.JSON(http.StatusOK, result)
}

// validateRollout adds the findings of the party lookup, the home cluster and the party's worker.
func (h *Handlers) validateRollout(ctx context.Context, request strategy.Request,
	result *schema.RolloutValidateResult) error {
	result.Warnings = append(result.Warnings, request.Warnings...)
	s := &rolloutStart{Handlers: h, request: request}
	if err := s.resolveParty(ctx); err != nil {
		return asFindings(err, result)
	}
	outline := h.initialStatus(s.key.workflowID(), machine.Request{Spec: s.request.Spec, CreatedAt: time.Now().UTC(),
		Actor: request.Actor, Reason: request.Reason, Via: string(schema.FrontDoorHTTP)})
	result.Rollout = &outline
	found, err := s.findings(ctx)
	if err != nil {
		return asFindings(err, result)
	}
	problems, warnings := s.classify(found)
	result.Errors, result.Warnings = append(result.Errors, problems...), append(result.Warnings, warnings...)
	if found.Frozen {
		result.Warnings = append(result.Warnings,
			"an earlier release left the workload frozen between two versions: this one rolls it back first")
	}
	held, err := s.heldBy(ctx, found)
	if err != nil {
		return err
	}
	if held != "" {
		result.Warnings = append(result.Warnings, held)
	}
	described, err := h.Describe(ctx, s.key.workflowID())
	if err == nil && execution.IsOpen(described) && !request.Supersede {
		result.Warnings = append(result.Warnings, s.key.String()+
			" is being released: wait until it has ended, or send supersede: true")
	}
	return err
}

// asFindings adds a refusal to the result; it returns any other error.
func asFindings(err error, result *schema.RolloutValidateResult) error {
	if refused, is := errors.AsType[*problem.Error](err); is && len(refused.Errors) > 0 &&
		(refused.Status == problem.Refused.Status || refused.Status == problem.Malformed.Status) {
		result.Errors = append(result.Errors, refused.Errors...)
		return nil
	}
	return err
}
