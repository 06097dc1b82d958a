package rollouts

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"slipway.io/slipway/api/answer"
	"slipway.io/slipway/api/input"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/api/start"
	"slipway.io/slipway/api/verbs"
	"slipway.io/slipway/execution"
	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/conditions"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/machine"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/strictyaml"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/store"
	"slipway.io/slipway/workflows"
)

// StartRollout answers POST /api/v1/rollouts.
//
// A name has at most one live release, regardless of crashes: the record is written first, then the workflow is started
// under the name's workflow ID, which Temporal allows only once. A repeat with the same key continues where the earlier
// request stopped.
func (h *Handlers) StartRollout(c echo.Context, params schema.StartRolloutParams) error {
	request, err := input.DecodeValid(c, "the rollout", strategy.DecodeRequest)
	if err != nil {
		return err
	}
	return h.answerStart(c, &rolloutStart{Handlers: h, request: request}, params.IdempotencyKey, params.SlipwayVia)
}

// answerStart starts a rollout and responds with its status.
func (h *Handlers) answerStart(c echo.Context, s *rolloutStart, key *string, viaHeader *schema.Via) error {
	via, err := input.Via(viaHeader)
	if err != nil {
		return err
	}
	if s.request.Key, err = input.Key(s.request.Key, key); err != nil {
		return err
	}
	// A client that disconnects must not leave a half-started rollout.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Request().Context()), start.Timeout)
	defer cancel()
	status, err := s.run(ctx, via)
	if err != nil {
		return err
	}
	c.Response().Header().Set(echo.HeaderLocation, s.key.path())
	return c.JSON(http.StatusAccepted, schema.RolloutStarted{Status: status, Warnings: s.request.Warnings})
}

// rolloutStart is one request to start a rollout.
type rolloutStart struct {
	*Handlers
	*start.Start
	request strategy.Request
	key     rolloutKey
	// rollBackFrozen means that nothing is released: the changes left by a frozen rollout are rolled back to stable.
	rollBackFrozen bool
	// object is the Rollout object that requests the release; confirm is the reason why a user has to approve the
	// release before it begins.
	object  *rollout.ObjectRef
	confirm string
	// undo is set if the release goes back to an earlier version, which is chosen when the name is free.
	undo *undoRequest
	// revision is the release's number in the history of the name; 0: none.
	revision int64
	// numberTaken means that another server has used the number: the next one is read from the API server instead of
	// the cache.
	numberTaken bool

	queue string
	// predicted is the new pod template as predicted by the party's worker.
	predicted *rollout.PredictedTemplate
	// served is the version that the newest Healthy record shows, if it was needed.
	served *strategy.Revision
	// checked means that the parties have been asked.
	checked bool
	// replacing means that a live release of this name is superseded.
	replacing bool
	// engine is the engine that the claim names.
	engine workload.Engine
}

// rolloutDigest is hashed to distinguish requests with the same key.
type rolloutDigest struct {
	Spec          strategy.Spec `json:"spec"`
	Supersede     bool          `json:"supersede"`
	BringHome     bool          `json:"bringHome"`
	Actor, Reason string
	Undo          *undoDigest `json:"undo,omitempty"`
}

// run starts the rollout and returns its status.
func (s *rolloutStart) run(ctx context.Context, via string) (rollout.Status, error) {
	if err := s.resolveParty(ctx); err != nil {
		return rollout.Status{}, err
	}
	request := s.request
	s.Start = start.New(s.Backend, s, start.Request{Kind: v1alpha1.KindRollout, Subject: s.key.subject(),
		Prefix: s.key.name, Actor: request.Actor, Reason: request.Reason, Via: via, Key: request.Key,
		DigestInput: rolloutDigest{request.Spec, request.Supersede, s.rollBackFrozen, request.Actor, request.Reason,
			s.undo.digest()}, BusyMessage: "other releases of this name keep starting and ending: repeat the " +
			"request"})
	if err := s.Run(ctx); err != nil {
		return rollout.Status{}, err
	}
	status, err := s.currentStatus(ctx)
	if err == nil {
		status.Conditions = conditions.OfRollout(status)
	}
	return status, err
}

// String names the rollout in messages.
func (s *rolloutStart) String() string { return s.key.String() }

// Name adds the workflow of a rollout to a problem.
func (s *rolloutStart) Name(p *problem.Error, workflowID string) *problem.Error {
	return p.HeldBy(workflowID)
}

// resolveParty finds the party's queue and the workload's namespace.
func (s *rolloutStart) resolveParty(ctx context.Context) error {
	spec := &s.request.Spec
	party := spec.Workload().PartyOrDefault()
	queue, unknown, err := s.QueueOf(ctx, party)
	if err != nil {
		return err
	}
	if unknown != "" {
		return s.refused(schema.FieldProblem{Field: "party", Reason: unknown})
	}
	if spec.Namespace == "" {
		if spec.Namespace, err = s.Home.DefaultNamespace(ctx, party); err != nil {
			return err
		}
	}
	if spec.Namespace == "" {
		return problem.InvalidDocument("the rollout", strictyaml.Errors{{Field: "namespace",
			Reason: "is missing: party " + party + " has no namespace of its own"}})
	}
	spec.Party, s.queue, s.key = party, queue, rolloutKey{party, spec.Namespace, spec.Name}
	return nil
}

// Load checks that the name is free and determines the release's number. Only then it chooses the version that an undo
// goes back to.
func (s *rolloutStart) Load(ctx context.Context) (err error) {
	if s.engine, err = s.Home.Engine(ctx); err != nil {
		return err
	}
	if err := s.checkNameFree(ctx); err != nil {
		return err
	}
	if err := s.assignNumber(ctx); err != nil || s.undo == nil {
		return err
	}
	return s.prepareUndo(ctx)
}

// checkNameFree refuses while a release of that name runs. It looks the workflow up by its ID, because Temporal's lists
// lag behind.
func (s *rolloutStart) checkNameFree(ctx context.Context) error {
	s.replacing = false
	described, err := s.Describe(ctx, s.key.workflowID())
	if err != nil {
		return err
	}
	if !execution.IsOpen(described) {
		return nil
	}
	if s.Key != "" && s.isReleaseOf(ctx, described, s.RecordName()) {
		s.Reset() // a concurrent request with the same key has started it: the key now belongs to it
		return start.ErrRetry
	}
	if publishedPhase(described.GetWorkflowExecutionInfo()).Final() && s.WaitForClose(ctx, s.key.workflowID()) {
		return nil
	}
	switch {
	case s.request.Supersede:
		s.replacing = true
		return nil
	case s.undo != nil:
		return s.nameTaken(ctx, fmt.Sprintf("%s is being released: an undo reverts a release that has ended; roll "+
			"this one back (POST %s), or wait until it has ended", s.key, s.key.verb("rollback")))
	}
	return s.nameTaken(ctx, fmt.Sprintf("%s is being released already: wait until it has ended, stop it (POST %s), "+
		"or replace it with supersede: true", s.key, s.key.verb("stop")))
}

// nameTaken returns the error while another release of that name runs, with its status if it can be read.
func (s *rolloutStart) nameTaken(ctx context.Context, why string) error {
	conflict := problem.Conflict.Because("%s", why).HeldBy(s.key.workflowID())
	if seen, err := s.readRollout(ctx, s.key); err == nil {
		conflict = conflict.Showing(seen.Value)
	}
	return conflict
}

func (s *rolloutStart) refused(problems ...schema.FieldProblem) error {
	return problem.Refused.Listing(problems, "the rollout cannot be carried out, and nothing was changed")
}

// HasWorkflow reports whether the record's release has a workflow, open or closed.
func (s *rolloutStart) HasWorkflow(ctx context.Context, record *v1alpha1.ReleaseRecord) (bool, error) {
	described, err := s.Describe(ctx, record.Spec.WorkflowID)
	if err != nil || described == nil {
		return false, err
	}
	return s.isReleaseOf(ctx, described, record.Name), nil
}

// Adopt resumes a rollout that was recorded but has no workflow: it is checked again.
func (s *rolloutStart) Adopt(context.Context) error { return nil }

// Deleted returns false: it is for kinds whose workflow ID contains the release's ID.
func (s *rolloutStart) Deleted(context.Context, string) (bool, error) { return false, nil }

// isReleaseOf reports whether the workflow executes the release of the record. After a supersede, its memo still names
// its first release.
func (s *rolloutStart) isReleaseOf(ctx context.Context, described *workflowservice.DescribeWorkflowExecutionResponse,
	record string) bool {
	if memoRecord(described) == record {
		return true
	}
	var status rollout.Status
	return s.Query(ctx, s.key.workflowID(), "", &status) == nil && status.Record == record
}

// currentStatus returns the status of the requested release: from its record or its workflow, or, before a worker has
// executed it, as requested. Another release of that name may run or be newer; a key always returns its own.
func (s *rolloutStart) currentStatus(ctx context.Context) (rollout.Status, error) {
	switch {
	case s.Pruned != nil:
		return s.prunedStatus(s.Pruned), nil
	case s.RunID != "":
		status, err := s.Outline(s.Written)
		status.Workflow = s.WorkflowRef(s.key.workflowID(), s.RunID)
		return status, err
	}
	live, err := s.readRollout(ctx, s.key)
	switch {
	case s.Written.Outcome != nil:
		return s.Complete(s.Written)
	case err == nil && live.Value.Record == s.Written.Name:
		return live.Value, nil
	case err != nil || live.Unanswered != "":
		return s.Outline(s.Written)
	}
	records, err := s.Home.FindRecords(ctx, s.key.labels())
	if err != nil {
		return rollout.Status{}, err
	}
	past := newHistory(s.Handlers, s.key, records)
	past.live = &live
	release, err := past.release(ctx, s.Written.Name)
	return release.status, err
}

// prunedStatus returns the status of a release whose record was pruned to its key: what the request contains, and how
// it ended.
func (s *rolloutStart) prunedStatus(record *v1alpha1.ReleaseRecord) rollout.Status {
	asked := store.RolloutAsked(record, s.request.Spec)
	if s.undo != nil { // the version that it went back to is not kept
		asked.Spec.Strategy = asked.Spec.Strategy.WithoutSteps()
	}
	status := s.initialStatus(record.Spec.WorkflowID, asked)
	if outcome := record.Outcome; outcome != nil {
		status.Phase, status.Reason, status.WaitingFor = rollout.Phase(outcome.State), outcome.Reason, nil
		status.Workflow = s.WorkflowRef(record.Spec.WorkflowID, outcome.RunID)
		status.FinishedAt = answer.Moment(outcome.FinishedAt)
	}
	return status
}

// Record creates the rollout's record.
func (s *rolloutStart) Record(string, time.Time) (*v1alpha1.ReleaseRecord, error) {
	return store.NewRolloutRecord(s.machineRequest())
}

// machineRequest returns the machine's input as far as it is known before there is a record.
func (s *rolloutStart) machineRequest() machine.Request {
	return machine.Request{Spec: s.request.Spec, RollBackFrozen: s.rollBackFrozen, Revision: s.revision}
}

// Launch starts the rollout's workflow, or makes the live release of this name give way to it. The workflow ID is the
// place: an open workflow of that ID belongs either to this release, started by a concurrent request with the same key,
// or to another release.
func (s *rolloutStart) Launch(ctx context.Context) error {
	if err := s.verifyNumber(ctx); err != nil {
		return err
	}
	if s.replacing {
		return s.supersede(ctx)
	}
	already, err := s.Execute(ctx, s.workflow())
	if !already || err != nil {
		return err
	}
	ours, err := s.HasWorkflow(ctx, s.Written)
	if err != nil || ours {
		return err
	}
	if s.Key == "" {
		s.Withdraw(ctx)
	}
	return start.ErrRetry
}

func (s *rolloutStart) workflow() start.Workflow {
	workload, memo := s.request.Spec.WorkloadRef, map[string]any{workflows.MemoRecord: s.Written.Name}
	if s.rollBackFrozen {
		memo[rollout.MemoRestoreOnly] = true
	}
	return start.Workflow{Type: workflows.TypeRollout, Input: s.Input(s.Written), Options: client.StartWorkflowOptions{
		ID:                       s.key.workflowID(),
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		TypedSearchAttributes:    workflows.RolloutAttributes(s.request.Spec),
		Memo:                     memo,
		StaticSummary: start.Summary(fmt.Sprintf("%s %s/%s: %s", workload.Kind, s.key.namespace,
			workload.Name, s.machineRequest().Outline())),
		StaticDetails: s.details(),
	}}
}

// Input is the input of the rollout's workflow.
func (s *rolloutStart) Input(record *v1alpha1.ReleaseRecord) start.Input { return s.input(record) }

func (s *rolloutStart) input(record *v1alpha1.ReleaseRecord) workflows.RolloutInput {
	asked := store.RolloutAsked(record, s.request.Spec)
	asked.UnreachableBudgetSeconds = s.BudgetSeconds()
	asked.Object, asked.ConfirmReason, asked.Predicted, asked.Served = s.object, s.confirm, s.predicted, s.served
	return workflows.RolloutInput{Request: asked, Queue: s.queue, Engine: s.engine}
}

// details is the description of the rollout in the Temporal UI, as Markdown: what the rollout does, and which signals
// control it.
func (s *rolloutStart) details() string {
	spec := s.request.Spec
	intro := fmt.Sprintf("Rollout `%s` releases %s **%s** in namespace %s: %s.\n\n", s.key.name, spec.WorkloadRef.Kind,
		spec.WorkloadRef.Name, s.key.namespace, phrase.Inert(s.machineRequest().Outline(), 300))
	var steps []string
	for _, step := range spec.Strategy.Steps {
		steps = append(steps, stepOutline(step))
	}
	return s.Details(intro, steps, "steps", "The current details say what it waits for. Send the signal `approve`, "+
		"`pause`, `resume`, `rollback`, `stop`, `jump`, `retry` or `promote`")
}

func stepOutline(step strategy.Step) string {
	parts := []string{fmt.Sprintf("pods %s", step.Replicas.String())}
	switch {
	case len(step.Matches) > 0:
		parts = append(parts, "traffic by "+phrase.Count(len(step.Matches), "match"))
	case step.Traffic != nil:
		parts = append(parts, fmt.Sprintf("traffic %d%%", *step.Traffic))
	}
	switch {
	case step.PauseSeconds == nil:
		parts = append(parts, "then an approval")
	case *step.PauseSeconds > 0:
		parts = append(parts, "then a pause of "+(time.Duration(*step.PauseSeconds)*time.Second).String())
	}
	return strings.Join(parts, ", ")
}

// supersedeKey is the key of the command with which the record's release supersedes the live one.
func supersedeKey(record string) string { return "supersede-" + record }

// supersede makes the live release of this name give way to this one.
func (s *rolloutStart) supersede(ctx context.Context) error {
	input := s.input(s.Written)
	if err := s.Bind(ctx, input); err != nil {
		return err
	}
	request := workflows.SupersedeRequest{Input: input, VerbRequest: workflows.VerbRequest{
		Actor: s.request.Actor, Reason: s.request.Reason, Via: s.Via, Key: supersedeKey(s.Written.Name)}}
	answer, err := verbs.Send(ctx, s.Backend, s.key.workflowID(),
		verbs.Command{Verb: string(rollout.VerbSupersede), Key: request.Key, Payload: request})
	switch {
	case errors.Is(err, verbs.ErrClosed):
		return start.ErrRetry // it has ended in the meantime: start normally
	case errors.Is(err, verbs.ErrUnknown):
		return problem.Unreachable.Because("%v: whether the live release of %s is superseded is not known; "+
			"repeat with the same Idempotency-Key, or look at it in a minute", verbs.ErrUnknown,
			s.key).HeldBy(s.key.workflowID())
	case err != nil:
		if problem.Of(err).Status == problem.Malformed.Status {
			s.Withdraw(ctx)
		}
		return err
	}
	if answer.Outcome == audit.Refused {
		s.Withdraw(ctx)
		return s.nameTaken(ctx, answer.Message)
	}
	return nil
}
