package plans

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/input"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/api/start"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/v1alpha1"
)

// ExecutePlan answers POST /api/v1/plans/{name}/execute.
//
// A plan has one live task, whatever crashes where: the task's record is written first, then the plan is claimed for it with the plan's version
// as precondition, then its workflow is started under the task's ID. Each step can be repeated, and a repeat with the same Idempotency-Key goes
// on where the one before it was lost.
func (h *Handlers) ExecutePlan(c echo.Context, name schema.PlanName, params schema.ExecutePlanParams) error {
	x := &execution{Handlers: h, plan: name, key: input.Text(params.IdempotencyKey)}
	if err := input.Fields(c, input.Field{Name: "actor", Most: input.MaxActor, Into: &x.request.Actor},
		input.Field{Name: "reason", Most: input.MaxReason, Into: &x.request.Reason}); err != nil {
		return err
	}
	var err error
	if x.via, err = input.FrontDoor(params.SlipwayVia); err != nil {
		return err
	}
	if params.IdempotencyKey != nil && (x.key == "" || len(x.key) > input.MaxKey) {
		return problem.Malformed.Because("the header Idempotency-Key has %d bytes: give 1 to %d, or leave it out", len(x.key), input.MaxKey)
	}
	// Somebody who hangs up must not leave an execution half done.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Request().Context()), start.Timeout)
	defer cancel()
	if err := x.run(ctx); err != nil {
		return err
	}
	c.Response().Header().Set(echo.HeaderLocation, "/api/v1/tasks/"+x.id)
	return c.JSON(http.StatusAccepted, schema.ExecuteResult{ID: x.id})
}

// execution is one request to execute a plan.
type execution struct {
	*Handlers
	plan    string
	request schema.ExecuteRequest
	via     string
	key     string

	id       string
	snapshot plan.Snapshot
	// Record is the task's, once it is written. adopted says that an earlier request with the same key wrote it.
	record  *v1alpha1.ReleaseRecord
	adopted bool
	// checked is the generation of the plan that was found fit to run; its snapshot is the one above.
	checked int64
}

// errAgain says that the plan was changed underneath: look at it anew.
var errAgain = problem.Conflict.Because("the plan keeps being changed by others: repeat the request")

func (x *execution) run(ctx context.Context) error {
	for range backend.Attempts {
		if err := x.attempt(ctx); !errors.Is(err, errAgain) {
			return err
		}
	}
	return errAgain
}

// attempt goes through the whole protocol once: look, record, claim, start.
func (x *execution) attempt(ctx context.Context) error {
	if x.key != "" && x.record == nil {
		if done, err := x.lookUpKey(ctx); done || err != nil {
			return err
		}
	}
	object, err := x.Handlers.plan(ctx, x.plan)
	if err != nil {
		return err
	}
	claimed := x.record != nil && object.Status.Task == x.id
	if !claimed {
		if err := x.takePlan(ctx, object); err != nil {
			return err
		}
	}
	return x.start(ctx)
}

// takePlan makes this task the plan's live one.
func (x *execution) takePlan(ctx context.Context, object *v1alpha1.DeployPlan) error {
	if x.record == nil && x.checked != object.Generation {
		if err := x.check(ctx, object); err != nil {
			return err
		}
	}
	other, err := x.liveTask(ctx, object)
	if err != nil {
		return err
	}
	if blocked := x.blocked(other); blocked != nil {
		x.withdraw(ctx)
		return blocked
	}
	if x.record == nil {
		if err := x.prepare(ctx, object); err != nil {
			return err
		}
	}
	err = x.Home.ClaimPlan(ctx, x.plan, object.ResourceVersion, x.id)
	if !problem.IsFailure(err, failure.Conflict) {
		return err
	}
	return x.afterConflict(ctx)
}

// blocked is the answer while another task of the plan lives. An interrupted one may be replaced (design §5).
func (x *execution) blocked(other *live) error {
	switch {
	case other == nil, other.id == x.id, other.state == plan.TaskInterrupted:
		return nil
	case other.starting:
		return problem.Conflict.Because("task %s of plan %s is being started just now: look at it, or repeat in a minute", other.id, x.plan).About(other.id, nil)
	}
	return problem.Conflict.Because("task %s of plan %s is %s: wait until it is over, or stop it (POST /api/v1/tasks/%s/stop)",
		other.id, x.plan, other.state, other.id).About(other.id, nil)
}

// prepare checks with the parties that the task can be carried out, and writes its record.
func (x *execution) prepare(ctx context.Context, object *v1alpha1.DeployPlan) error {
	if x.checked != object.Generation {
		if err := x.preflight(ctx); err != nil {
			return err
		}
		x.checked = object.Generation
	}
	now := time.Now().UTC().Truncate(time.Microsecond)
	if x.id == "" {
		x.id = newTaskID(x.plan, now)
	}
	x.snapshot.Task, x.snapshot.CreatedAt = x.id, now
	return x.writeRecord(ctx)
}

// afterConflict finds out whether the plan was claimed for this very task, by a twin of this request or by a call whose answer was lost.
func (x *execution) afterConflict(ctx context.Context) error {
	object, err := x.Handlers.plan(ctx, x.plan)
	if err != nil {
		return err
	}
	if object.Status.Task == x.id {
		return nil
	}
	x.withdraw(ctx)
	return errAgain
}

// withdraw takes back the record of a task that was not started. One that stays behind, because the home cluster is away now, reads as a task that was never started.
func (x *execution) withdraw(ctx context.Context) {
	if x.record == nil {
		return
	}
	if err := x.Home.DeleteRecord(ctx, x.id); err != nil && !problem.IsFailure(err, failure.NotFound) {
		x.Log.Warn("the record of a task that was not started stays behind", "task", x.id, "error", err)
	}
	x.record, x.adopted = nil, false
	if x.key == "" {
		x.id = ""
	}
}

// check holds the plan against its own rules, the catalogue and the known parties, and makes the snapshot that would run.
func (x *execution) check(ctx context.Context, object *v1alpha1.DeployPlan) error {
	_, wrong := object.Spec.Validate()
	if len(wrong) > 0 {
		return x.refused(problem.Fields(wrong))
	}
	services, err := x.Home.GetServices(ctx, serviceIDs(object.Spec))
	if err != nil {
		return err
	}
	wrong = append(plan.Resolve(object.Spec, services), plan.Unbuilt(object.Spec)...)
	if len(wrong) > 0 {
		return x.refused(problem.Fields(wrong))
	}
	x.snapshot = plan.Snapshot{Plan: x.plan, Document: object.Spec, Services: services, Queues: map[string]string{},
		UnreachableBudgetSeconds: int64(x.UnreachableBudget / time.Second)}
	unknown, err := x.findQueues(ctx)
	if err != nil {
		return err
	}
	if len(unknown) > 0 {
		return x.refused(unknown)
	}
	return nil
}

func (x *execution) refused(problems []schema.FieldProblem) error {
	return problem.Refused.Because("plan %s cannot be executed, and nothing was changed: %s", x.plan, problem.Summary(problems)).Listing(problems)
}

// findQueues fills in the queues of all parties whose workloads are selected, and says which parties nobody knows.
func (x *execution) findQueues(ctx context.Context) (unknown []schema.FieldProblem, err error) {
	missing := map[string]bool{}
	for n := range x.snapshot.Document.Items {
		for _, workload := range x.snapshot.Selected(n) {
			party := workload.PartyOrDefault()
			if _, found := x.snapshot.Queues[party]; found || missing[party] {
				continue
			}
			queue, known, err := x.Home.Queue(ctx, party)
			if err != nil {
				return nil, err
			}
			if known {
				x.snapshot.Queues[party] = queue
				continue
			}
			missing[party] = true
			unknown = append(unknown, itemProblem(n, workload, "party "+party+
				" is not known: create a Party object of that name in the engine's namespace, or a namespace of that name in the home cluster"))
		}
	}
	return unknown, nil
}

// itemProblem says what is wrong with a workload of item n, an index into the document.
func itemProblem(n int, workload catalog.Workload, reason string) schema.FieldProblem {
	return schema.FieldProblem{Item: n + 1, Field: itemField(n), Reason: workload.String() + ": " + reason}
}

// requestDigest tells two requests under one key apart; the spelling of the body means nothing.
func (x *execution) requestDigest() string {
	canonical, err := json.Marshal(struct {
		Plan    string                `json:"plan"`
		Request schema.ExecuteRequest `json:"request"`
	}{x.plan, x.request})
	if err != nil {
		return "" // two texts in a struct always encode
	}
	digest := sha256.Sum256(canonical)
	return hex.EncodeToString(digest[:])
}
