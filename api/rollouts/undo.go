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

// UndoRollout answers POST /api/v1/rollouts/{namespace}/{name}/undo: a release of its own, which goes back to an earlier version.
func (h *Handlers) UndoRollout(c echo.Context, namespace, name string, params schema.UndoRolloutParams) error {
	key, err := newRolloutKey(params.Party, namespace, name)
	if err != nil {
		return err
	}
	s := &rolloutStart{Handlers: h, undo: &undoing{}}
	s.request.Spec = strategy.Spec{Party: key.party, Namespace: key.namespace, Name: key.name}
	err = input.Fields(c,
		input.Field{Name: "actor", Most: input.MaxActor, Into: &s.request.Actor},
		input.Field{Name: "reason", Most: input.MaxReason, Into: &s.request.Reason},
		input.Field{Name: "key", Most: input.MaxKey, Into: &s.request.Key},
		input.Field{Name: "toRevision", Number: &s.undo.toRevision})
	if err != nil {
		return err
	}
	return h.answerStart(c, s, params.IdempotencyKey, params.SlipwayVia)
}

// undoing is what makes a start an undo.
type undoing struct {
	// toRevision is the number of the version that is asked for; 0: the one before.
	toRevision int
	target     history.Target
	// object says that a Rollout object is to show it: then the workload has to declare the version.
	object bool
}

// undoDigest is what tells two undos under one key apart: where each goes back to is another matter by the time of the second.
type undoDigest struct {
	ToRevision int `json:"toRevision"`
}

func (u *undoing) digest() *undoDigest {
	if u == nil {
		return nil
	}
	return &undoDigest{u.toRevision}
}

// count gives the release its number: by the records that this server knows of, since to find those of one name an API server looks at all that there are.
func (s *rolloutStart) count(ctx context.Context) error {
	if s.Written != nil || s.bringHome {
		return nil
	}
	known := s.Home.ListRecords
	if s.undo != nil || s.outrun {
		known = s.Home.FindRecords
	}
	records, err := known(ctx, s.key.labels())
	s.revision = store.NextNumber(records)
	return err
}

// numbered makes sure that nobody else has taken the number. Records are heard of in the order in which they were written: with its own this server has heard
// of those that another one wrote before it.
func (s *rolloutStart) numbered(ctx context.Context) error {
	if s.Adopted || s.revision == 0 || s.outrun {
		return nil
	}
	records, err := s.Home.ListRecords(ctx, s.key.labels())
	if err == nil && !slices.ContainsFunc(records, func(r *v1alpha1.ReleaseRecord) bool { return r.Name == s.Written.Name }) {
		records, err = s.Home.FindRecords(ctx, s.key.labels())
	}
	if err != nil || !store.Outnumbered(s.Written, records) {
		return err
	}
	s.outrun = true
	s.Withdraw(ctx)
	return start.ErrAgain
}

// goBack chooses the version that the undo goes back to, and how.
func (s *rolloutStart) goBack(ctx context.Context) error {
	object, err := s.objectOf(ctx)
	if err != nil {
		return err
	}
	if object != nil {
		ref := kruise.RefOf(object)
		s.object, s.undo.object = &ref, true
	}
	s.checked = false     // another release may have come in between
	if s.Written != nil { // an earlier attempt has chosen
		s.request.Spec, err = specOf(s.Written)
		return err
	}
	return s.choose(ctx, object)
}

// alone refuses an undo under a Rollout object that something else would release as well.
func (s *rolloutStart) alone(ctx context.Context) error {
	if s.Beside == nil {
		return nil
	}
	other, err := s.Beside(ctx)
	if err == nil && other.Says != "" {
		err = s.refused(schema.FieldProblem{Reason: other.Says})
	}
	return err
}

func (s *rolloutStart) choose(ctx context.Context, object *v1beta1.Rollout) error {
	if object != nil {
		if err := s.alone(ctx); err != nil {
			return err
		}
	}
	past, err := s.past(ctx)
	if err != nil {
		return err
	}
	spec := past.spec
	if object != nil {
		asks, warnings, err := kruise.SpecOf(object)
		if err != nil {
			return s.refused(schema.FieldProblem{Reason: "the Rollout object cannot be carried out: " + err.Error()})
		}
		asks.Party, s.request.Warnings, spec = s.key.party, warnings, asks
	}
	target, err := history.Of(past.of(spec.WorkloadRef)).Choose(int64(s.undo.toRevision))
	if err != nil {
		return s.refused(schema.FieldProblem{Field: "toRevision", Reason: err.Error()})
	}
	s.undo.target = target
	spec.Undo = &strategy.Undo{ToRevision: target.Number, WithoutSteps: target.Within(spec.Policy.RollbackWindow)}
	spec.Change, spec.RolloutID = strategy.Change{Revision: &target.Revision}, ""
	paused := spec.Strategy.Paused && s.undo.object // the object says so now; a start said so for itself
	switch {
	case spec.Undo.WithoutSteps:
		spec.Strategy = spec.Strategy.WithoutSteps()
	case object == nil && !past.withSteps:
		return s.refused(schema.FieldProblem{Reason: fmt.Sprintf("%s is outside the window of rollback, and no release with steps is on record any more "+
			"to take them from: start a rollout with the images of that version", target)})
	}
	spec.Strategy.Paused = paused
	if s.undo.object {
		s.undo.declare(&spec)
	}
	s.request.Spec = spec
	return nil
}

// declare has the workload itself declare the version: under a Rollout object its pod template is the command.
func (u *undoing) declare(spec *strategy.Spec) {
	to := spec.Change.Revision
	spec.Change.Declared = &strategy.Declared{Template: to.Template, Images: to.Images}
}

// takeRevision takes in what the party's worker has found of the version, or says why the undo cannot be carried out.
func (s *rolloutStart) takeRevision(found *rollout.PreflightResult) []schema.FieldProblem {
	u, spec := s.undo, &s.request.Spec
	refuse := func(field, reason string) []schema.FieldProblem {
		return []schema.FieldProblem{{Field: field, Reason: reason}}
	}
	switch {
	case found.Revision == nil:
		return refuse("", "the party's worker is of an earlier version, which knows no undo: bring it up to date")
	case found.Template == "":
		return refuse("", "an earlier release has left the workload between two versions: bring it home first (POST "+
			s.key.verb("rollback")+", or slipway repair if its workflow was lost)")
	case found.Template == found.Revision.Template:
		return refuse("toRevision", "the workload is of "+u.target.String()+" already")
	case u.toRevision == 0 && u.target.Now.Template != "" && found.Template != u.target.Now.Template:
		return refuse("toRevision", "is needed: the workload's pod template was changed since its last release, so it is not clear which version is the "+
			"one before: take a number of its history (GET "+s.key.verb("history")+")")
	}
	spec.Change.Revision = found.Revision
	if u.object {
		u.declare(spec)
	}
	return nil
}

// objectOf is the Rollout object of the name that this engine looks after; nil when there is none. One that may not read Rollouts looks after none.
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
	if ours, _ := kruise.LooksAfter(engine, object); err != nil || !ours || object.Spec.Disabled || object.DeletionTimestamp != nil {
		return nil, err
	}
	return object, nil
}

// pastReleases are the releases of a name.
type pastReleases struct {
	// statuses are the releases as they ended, newest first, with their numbers.
	statuses []rollout.Status
	// spec is what the last of them was asked, with the strategy of before if that was an undo without steps.
	spec strategy.Spec
	// withSteps says that its strategy is one with steps: undos without steps may be all that is left on record.
	withSteps bool
}

// of are the releases of one workload: a name may have had another before.
func (p pastReleases) of(workload catalog.WorkloadRef) []rollout.Status {
	return slices.DeleteFunc(slices.Clone(p.statuses), func(status rollout.Status) bool { return status.WorkloadRef != workload })
}

// past reads the releases of the name.
func (s *rolloutStart) past(ctx context.Context) (pastReleases, error) {
	records, err := s.Home.FindRecords(ctx, s.key.labels())
	if err != nil {
		return pastReleases{}, err
	}
	var past pastReleases
	reader := newHistory(s.Handlers, s.key, records)
	for _, name := range reader.releases {
		record, err := s.Home.GetRelease(ctx, name)
		if failure.Is(err, failure.NotFound) {
			continue // it was pruned, or withdrawn, meanwhile
		}
		if err != nil {
			return past, err
		}
		status, err := reader.status(ctx, record)
		if err != nil {
			return past, err
		}
		past.statuses = append(past.statuses, status)
		if err := past.asked(record); err != nil {
			return past, err
		}
	}
	if len(past.statuses) == 0 {
		return past, s.key.missing()
	}
	return past, nil
}

// asked takes what a release was asked for what the next one is asked, unless a later one has said it all: an undo without steps has no strategy of its
// own.
func (p *pastReleases) asked(record *v1alpha1.ReleaseRecord) error {
	if p.withSteps {
		return nil
	}
	spec, err := specOf(record)
	if err != nil {
		return err
	}
	switch {
	case len(p.statuses) == 1:
		p.spec = spec
	case spec.WorkloadRef == p.spec.WorkloadRef:
		p.spec.Strategy = spec.Strategy
	default:
		return nil
	}
	p.withSteps = spec.Undo == nil || !spec.Undo.WithoutSteps
	return nil
}
