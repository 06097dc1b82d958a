package rollouts

import (
	"context"
	"fmt"
	"net/http"

	"github.com/labstack/echo/v4"
	"go.temporal.io/api/workflowservice/v1"

	"slipway.io/slipway/api/answer"
	"slipway.io/slipway/api/input"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/api/start"
	"slipway.io/slipway/execution"
	"slipway.io/slipway/release/conditions"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/strictyaml"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/release/workloadops"
	"slipway.io/slipway/store"
)

// StartRollout answers POST /api/v1/rollouts.
//
// A name has one live release, whatever crashes where: the record is written first, then the workflow starts under the name's ID, which
// Temporal gives to one only. A repeat with the same key goes on where the one before it was lost.
func (h *Handlers) StartRollout(c echo.Context, params schema.StartRolloutParams) error {
	request, err := readRolloutRequest(c)
	if err != nil {
		return err
	}
	return h.answerStart(c, &rolloutStart{Handlers: h, request: request}, params.IdempotencyKey, params.SlipwayVia)
}

// answerStart starts a rollout, and answers it as accepted.
func (h *Handlers) answerStart(c echo.Context, s *rolloutStart, key *string, door *schema.Via) error {
	via, err := input.FrontDoor(door)
	if err != nil {
		return err
	}
	if s.request.Key, err = input.Key(s.request.Key, key); err != nil {
		return err
	}
	// Somebody who hangs up must not leave a start half done.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Request().Context()), start.Timeout)
	defer cancel()
	status, err := s.run(ctx, via)
	if err != nil {
		return err
	}
	c.Response().Header().Set(echo.HeaderLocation, s.key.path())
	return c.JSON(http.StatusAccepted, schema.RolloutStarted{Status: status, Warnings: s.request.Warnings})
}

// readRolloutRequest reads the body of a start strictly: every error at once.
func readRolloutRequest(c echo.Context) (strategy.Request, error) {
	request, wrong, err := input.Decode(c, strategy.DecodeRequest)
	if err == nil && len(wrong) > 0 {
		err = problem.WrongDocument("the rollout", wrong)
	}
	return request, err
}

// rolloutStart is one request to start a rollout.
type rolloutStart struct {
	*Handlers
	*start.Start
	request strategy.Request
	key     rolloutKey
	// bringHome says that nothing is released: what a frozen rollout left is brought back to stable.
	bringHome bool
	// object is the Rollout object that asks for it, confirm why somebody has to approve it before anything is done.
	object  *rollout.ObjectRef
	confirm string
	// undo is set when it goes back to an earlier version, which is looked for behind the look at the name.
	undo *undoing
	// revision is its number in the history of the name; 0: it has none.
	revision int64
	// outrun says that another server was faster with the number: the API server is asked for the next one.
	outrun bool

	queue  string
	shared *rollout.SharedTraffic
	// foreseen is the new pod template as the party's worker has found it.
	foreseen *rollout.Foreseen
	// checked says that the parties were asked.
	checked bool
	// replacing says that a live release of this name is superseded.
	replacing bool
	// engine is that of its claim.
	engine workloadops.Engine
}

// rolloutDigest is what tells two starts under one key apart.
type rolloutDigest struct {
	Spec          strategy.Spec `json:"spec"`
	Supersede     bool          `json:"supersede"`
	BringHome     bool          `json:"bringHome"`
	Actor, Reason string
	Undo          *undoDigest `json:"undo,omitempty"`
}

// run starts the rollout, and answers it as it is then.
func (s *rolloutStart) run(ctx context.Context, via string) (rollout.Status, error) {
	if err := s.place(ctx); err != nil {
		return rollout.Status{}, err
	}
	asked := s.request
	s.Start = start.New(s.Backend, s, start.Request{Kind: v1alpha1.KindRollout, Subject: s.key.subject(), Prefix: s.key.name,
		Actor: asked.Actor, Reason: asked.Reason, Via: via, Key: asked.Key,
		Asked: rolloutDigest{asked.Spec, asked.Supersede, s.bringHome, asked.Actor, asked.Reason, s.undo.digest()},
		Busy:  "other releases of this name keep beginning and ending: repeat the request"})
	if err := s.Run(ctx); err != nil {
		return rollout.Status{}, err
	}
	status, err := s.now(ctx)
	if err == nil {
		status.Conditions = conditions.OfRollout(status)
	}
	return status, err
}

// String is how messages call the rollout.
func (s *rolloutStart) String() string { return s.key.String() }

// Name names the workflow of a rollout in a problem.
func (s *rolloutStart) Name(p *problem.Error, workflowID string) *problem.Error {
	return p.HeldBy(workflowID)
}

// place finds out where the workload is: its party's queue and its namespace.
func (s *rolloutStart) place(ctx context.Context) error {
	spec := &s.request.Spec
	party := spec.Workload().PartyOrDefault()
	queue, known, err := s.Home.Queue(ctx, party)
	if err != nil {
		return err
	}
	if !known {
		return s.refused(schema.FieldProblem{Field: "party", Reason: "party " + party +
			" is not known: create a Party object of that name in the engine's namespace, or a namespace of that name in the home cluster"})
	}
	if spec.Namespace == "" {
		if spec.Namespace, err = s.Home.DefaultNamespace(ctx, party); err != nil {
			return err
		}
	}
	if spec.Namespace == "" {
		return problem.WrongDocument("the rollout", strictyaml.Errors{{Field: "namespace", Reason: "is missing: party " + party +
			" has no namespace of its own"}})
	}
	spec.Party, s.queue, s.key = party, queue, rolloutKey{party, spec.Namespace, spec.Name}
	return nil
}

// Look looks whether the name is free, and what the release's number is. Where an undo goes back to is chosen only then.
func (s *rolloutStart) Look(ctx context.Context) error {
	if err := s.free(ctx); err != nil {
		return err
	}
	if err := s.count(ctx); err != nil || s.undo == nil {
		return err
	}
	return s.goBack(ctx)
}

// free looks whether a release of that name runs, by the workflow's ID: lists lag behind.
func (s *rolloutStart) free(ctx context.Context) error {
	s.replacing = false
	described, err := s.Describe(ctx, s.key.workflowID())
	if err != nil {
		return err
	}
	if !execution.IsOpen(described) {
		return nil
	}
	if s.Key != "" && s.runs(ctx, described, s.RecordName()) {
		s.Forget() // a twin of this request has started it: the key stands for it now
		return start.ErrAgain
	}
	if publishedPhase(described.GetWorkflowExecutionInfo()).Final() && s.ClosesSoon(ctx, s.key.workflowID()) {
		return nil
	}
	switch {
	case s.request.Supersede:
		s.replacing = true
		return nil
	case s.undo != nil:
		return s.taken(ctx, fmt.Sprintf("%s is being released: an undo goes back behind a release that is over; roll this one back "+
			"(POST %s), or wait until it is over", s.key, s.key.verb("rollback")))
	}
	return s.taken(ctx, fmt.Sprintf("%s is being released already: wait until it is over, stop it (POST %s), "+
		"or take its place with supersede: true", s.key, s.key.verb("stop")))
}

// taken is the answer while another release of that name runs, which is shown as far as it can be read.
func (s *rolloutStart) taken(ctx context.Context, why string) error {
	conflict := problem.Conflict.Because("%s", why).HeldBy(s.key.workflowID())
	if seen, err := s.readRollout(ctx, s.key); err == nil {
		conflict = conflict.Showing(seen.status)
	}
	return conflict
}

func (s *rolloutStart) refused(problems ...schema.FieldProblem) error {
	return problem.Refused.Because("the rollout cannot be carried out, and nothing was changed: %s",
		problem.Summary(problems)).Listing(problems)
}

// Began says whether the record's release has a workflow, open or closed.
func (s *rolloutStart) Began(ctx context.Context, record *v1alpha1.ReleaseRecord) (bool, error) {
	described, err := s.Describe(ctx, record.Spec.WorkflowID)
	if err != nil || described == nil {
		return false, err
	}
	return s.runs(ctx, described, record.Name), nil
}

// Adopt takes on a rollout that was recorded but has no workflow: it is checked again.
func (s *rolloutStart) Adopt(context.Context) error { return nil }

// Deleted is for kinds whose workflow's ID is that of the release.
func (s *rolloutStart) Deleted(context.Context, string) (bool, error) { return false, nil }

// runs says whether the workflow of this name's releases is that of the record. One that was superseded has the memo of its first release.
func (s *rolloutStart) runs(ctx context.Context, described *workflowservice.DescribeWorkflowExecutionResponse, record string) bool {
	if memoRecord(described) == record {
		return true
	}
	var status rollout.Status
	return s.Query(ctx, s.key.workflowID(), &status) == nil && status.Record == record
}

// now is the release as it is answered: as its record or its workflow says, or, before a worker has taken it on, as it was asked. Another
// release of that name may run, or be newer: a key answers with its own.
func (s *rolloutStart) now(ctx context.Context) (rollout.Status, error) {
	switch {
	case s.Pruned != nil:
		return s.leftOf(s.Pruned), nil
	case s.RunID != "":
		status, err := s.outlineRollout(s.Written)
		status.Workflow = s.WorkflowRef(s.key.workflowID(), s.RunID)
		return status, err
	}
	live, err := s.readRollout(ctx, s.key)
	switch {
	case s.Written.Outcome != nil:
		seen, err := s.readComplete(s.Written)
		return seen.status, err
	case err != nil || live.unanswered != "":
		return s.outlineRollout(s.Written)
	case live.status.Record == s.Written.Name:
		return live.status, nil
	}
	records, err := s.Home.FindRecords(ctx, s.key.labels())
	if err != nil {
		return rollout.Status{}, err
	}
	past := newHistory(s.Handlers, s.key, records)
	past.live = &live
	release, err := past.release(ctx, s.Written.Name)
	return release.Rollout, err
}

// leftOf is a release whose record was pruned to its key: what was asked, which the request says again, and how it ended.
func (s *rolloutStart) leftOf(record *v1alpha1.ReleaseRecord) rollout.Status {
	asked := store.RolloutAsked(record, s.request.Spec)
	if s.undo != nil { // what it went back to is not kept
		asked.Spec.Strategy = asked.Spec.Strategy.WithoutSteps()
	}
	status := s.asAsked(record.Spec.WorkflowID, asked)
	if outcome := record.Outcome; outcome != nil {
		status.Phase, status.Reason, status.WaitingFor = rollout.Phase(outcome.State), outcome.Reason, nil
		status.Workflow = s.WorkflowRef(record.Spec.WorkflowID, outcome.RunID)
		if outcome.FinishedAt != nil {
			status.FinishedAt = answer.UTC(outcome.FinishedAt.Time)
		}
	}
	return status
}
