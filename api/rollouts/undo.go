package rollouts

import (
	"context"
	"fmt"
	"slices"

	"github.com/labstack/echo/v4"

	"slipway.io/slipway/api/input"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/api/start"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/kruise"
	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/history"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/store"
)

// UndoRollout answers POST /api/v1/rollouts/{namespace}/{name}/undo: it starts a new release that goes back to an
// earlier version.
func (h *Handlers) UndoRollout(c echo.Context, namespace, name string, params schema.UndoRolloutParams) error {
	key, err := newRolloutKey(params.Party, namespace, name)
	if err != nil {
		return err
	}
	s := &rolloutStart{Handlers: h, undo: &undoRequest{}}
	s.request.Spec = strategy.Spec{Party: key.party, Namespace: key.namespace, Name: key.name}
	err = input.Fields(c, input.Field{Name: "actor", MaxLength: input.MaxActor, Into: &s.request.Actor},
		input.Field{Name: "reason", MaxLength: input.MaxReason, Into: &s.request.Reason},
		input.Field{Name: "key", MaxLength: input.MaxKey, Into: &s.request.Key},
		input.Field{Name: "toRevision", Number: &s.undo.toRevision})
	if err != nil {
		return err
	}
	return h.answerStart(c, s, params.IdempotencyKey, params.SlipwayVia)
}

// undoRequest is set for a start that is an undo.
type undoRequest struct {
	// toRevision is the requested version number; 0: the previous version.
	toRevision int
	target     history.Target
	// object means that a Rollout object shows the undo; the workload then has to declare the version.
	object bool
}

// undoDigest distinguishes undos with the same key. It omits the target version, which a repeat may resolve
// differently.
type undoDigest struct {
	ToRevision int `json:"toRevision"`
}

func (u *undoRequest) digest() *undoDigest {
	if u == nil {
		return nil
	}
	return &undoDigest{u.toRevision}
}

// assignNumber determines the release's number from the records in this server's cache: to find the records of one
// name, an API server has to scan all records.
func (s *rolloutStart) assignNumber(ctx context.Context) error {
	if s.Written != nil || s.rollBackFrozen {
		return nil
	}
	known := s.Home.ListRecords
	if s.undo != nil || s.numberTaken {
		known = s.Home.FindRecords
	}
	records, err := known(ctx, s.key.labels())
	s.revision = store.NextNumber(records)
	return err
}

// verifyNumber checks that no other server has taken the number. Watch events arrive in the order of the writes: a
// cache that contains this release's record also contains all records written before it.
func (s *rolloutStart) verifyNumber(ctx context.Context) error {
	if s.Adopted || s.revision == 0 || s.numberTaken {
		return nil
	}
	records, err := s.Home.ListRecords(ctx, s.key.labels())
	if err == nil && !slices.ContainsFunc(records, func(r *v1alpha1.ReleaseRecord) bool {
		return r.Name == s.Written.Name
	}) {
		records, err = s.Home.FindRecords(ctx, s.key.labels())
	}
	if err != nil || !store.NumberTaken(s.Written, records) {
		return err
	}
	s.numberTaken = true
	s.Withdraw(ctx)
	return start.ErrRetry
}

// prepareUndo chooses the version that the undo goes back to, and how.
func (s *rolloutStart) prepareUndo(ctx context.Context) error {
	object, err := s.objectOf(ctx)
	if err != nil {
		return err
	}
	if object != nil {
		ref := kruise.RefOf(object)
		s.object, s.undo.object = &ref, true
	}
	s.checked = false     // another release may have started in the meantime
	if s.Written != nil { // an earlier attempt has chosen the version
		s.request.Spec, err = specOf(s.Written)
		return err
	}
	return s.choose(ctx, object)
}

// checkNoOtherController refuses an undo under a Rollout object that another controller would execute as well.
func (s *rolloutStart) checkNoOtherController(ctx context.Context) error {
	if s.OtherController == nil {
		return nil
	}
	other, err := s.OtherController(ctx)
	if err == nil && other.Message != "" {
		err = s.refused(schema.FieldProblem{Reason: other.Message})
	}
	return err
}

func (s *rolloutStart) choose(ctx context.Context, object *v1beta1.Rollout) error {
	if object != nil {
		if err := s.checkNoOtherController(ctx); err != nil {
			return err
		}
	}
	past, err := s.readPast(ctx)
	if err != nil {
		return err
	}
	spec, withSteps, err := lastSpec(past)
	if err != nil {
		return err
	}
	if object != nil {
		asks, warnings, err := kruise.SpecOf(object)
		if err != nil {
			return s.refused(schema.FieldProblem{Reason: "the Rollout object cannot be carried out: " + err.Error()})
		}
		asks.Party, s.request.Warnings, spec = s.key.party, warnings, asks
	}
	target, err := history.Of(byWorkload(past)[spec.WorkloadRef]).Choose(int64(s.undo.toRevision))
	if err != nil {
		return s.refused(schema.FieldProblem{Field: "toRevision", Reason: err.Error()})
	}
	s.undo.target = target
	spec.Undo = &strategy.Undo{ToRevision: target.Number, WithoutSteps: target.Within(spec.Policy.RollbackWindow)}
	spec.Change, spec.RolloutID = strategy.Change{Revision: &target.Revision}, ""
	paused := spec.Strategy.Paused && s.undo.object // the object declares it now; a start declared it only for itself
	switch {
	case spec.Undo.WithoutSteps:
		spec.Strategy = spec.Strategy.WithoutSteps()
	case object == nil && !withSteps:
		return s.refused(schema.FieldProblem{Reason: fmt.Sprintf(
			"%s is outside policy.rollbackWindow, and no recorded release has steps to reuse: "+
				"start a rollout with the images of that version", target)})
	}
	spec.Strategy.Paused = paused
	if s.undo.object {
		s.undo.declare(&spec)
	}
	s.request.Spec = spec
	return nil
}

// declare makes the workload's own pod template declare the version: under a Rollout object, the pod template is the
// command.
func (u *undoRequest) declare(spec *strategy.Spec) {
	to := spec.Change.Revision
	spec.Change.Declared = &strategy.Declared{Template: to.Template, Images: to.Images}
}

// applyRevision applies the version as found by the party's worker, or returns the reason why the undo cannot be
// executed.
func (s *rolloutStart) applyRevision(found *rollout.PreflightResult) []schema.FieldProblem {
	u, spec := s.undo, &s.request.Spec
	refuse := func(field, reason string) []schema.FieldProblem {
		return []schema.FieldProblem{{Field: field, Reason: reason}}
	}
	switch {
	case found.Revision == nil:
		return refuse("", "the party's worker is too old to undo releases: upgrade it")
	case found.Template == "":
		return refuse("", "an earlier release has left the workload between two versions: roll it back first (POST "+
			s.key.verb("rollback")+", or slipway repair if its workflow was lost)")
	case found.Template == found.Revision.Template:
		return refuse("toRevision", "the workload already has "+u.target.String())
	case u.toRevision == 0 && u.target.Now.Template != "" && found.Template != u.target.Now.Template:
		return refuse("toRevision", "is needed: the workload's pod template was changed since its last release, so "+
			"the previous version is ambiguous: choose a number from its history (GET "+s.key.verb("history")+")")
	}
	spec.Change.Revision = found.Revision
	if u.object {
		u.declare(spec)
	}
	return nil
}

// objectOf returns the Rollout object of the name if this engine manages it; else nil. An engine that may not read
// Rollouts manages none.
func (s *rolloutStart) objectOf(ctx context.Context) (*v1beta1.Rollout, error) {
	if s.key.party != catalog.DefaultParty {
		return nil, nil
	}
	object, err := s.Home.GetRollout(ctx, s.key.namespace, s.key.name)
	if failure.Is(err, failure.NotFound) || failure.Is(err, failure.Forbidden) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	engine, err := s.Home.Engine(ctx)
	if ours, _ := kruise.Manages(engine, object); err != nil || !ours || object.Spec.Disabled ||
		object.DeletionTimestamp != nil {
		return nil, err
	}
	return object, nil
}

// readPast reads the releases of the name.
func (s *rolloutStart) readPast(ctx context.Context) ([]pastRelease, error) {
	records, err := s.Home.FindRecords(ctx, s.key.labels())
	if err != nil {
		return nil, err
	}
	past, err := newHistory(s.Handlers, s.key, records).all(ctx)
	if err == nil && len(past) == 0 {
		err = s.key.missing()
	}
	return past, err
}

// lastSpec returns the spec of the newest release. If that was an undo without steps, which has no strategy of its own,
// the strategy is the one of an earlier release; withSteps is false if only undos without steps are still recorded.
func lastSpec(past []pastRelease) (spec strategy.Spec, withSteps bool, err error) {
	for i, one := range past {
		earlier, err := specOf(one.record)
		switch {
		case err != nil:
			return spec, false, err
		case i == 0:
			spec = earlier
		case earlier.WorkloadRef == spec.WorkloadRef:
			spec.Strategy = earlier.Strategy
		default:
			continue
		}
		if earlier.Undo == nil || !earlier.Undo.WithoutSteps {
			return spec, true, nil
		}
	}
	return spec, false, nil
}
