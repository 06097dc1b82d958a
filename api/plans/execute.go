package plans

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"slipway.io/slipway/api/input"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/api/start"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/strictyaml"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/release/window"
	"slipway.io/slipway/release/workloadops"
)

// ExecutePlan answers POST /api/v1/plans/{name}/execute.
//
// A plan has one live task: after the task's record is written the plan is claimed for it, with the plan's version as precondition, and
// then the task's workflow is started under its own ID.
func (h *Handlers) ExecutePlan(c echo.Context, name schema.PlanName, params schema.ExecutePlanParams) error {
	request, times, err := h.executeRequest(c, params)
	if err != nil {
		return err
	}
	request.Subject, request.Asked = name, executeDigest{name, asked(request, times)}
	return h.answerStart(c, request, times, nil)
}

// asked is what the body of an execution says.
func asked(request start.Request, times window.Times) schema.ExecuteRequest {
	return schema.ExecuteRequest{Actor: request.Actor, Reason: request.Reason, NotBefore: times.NotBefore, Windows: times.Windows, Freezes: times.Freezes}
}

// executeRequest reads who asks for a task, why, and when its services may begin.
func (h *Handlers) executeRequest(c echo.Context, params schema.ExecutePlanParams) (request start.Request, times window.Times, err error) {
	request = start.Request{Kind: v1alpha1.KindTask, Busy: "the plan keeps being changed by others: repeat the request"}
	more := input.More{Names: window.Keys, Read: func(m strictyaml.Mapping, found *strictyaml.Findings) {
		times = window.Read(m)
		times.CheckTimes("", found)
	}}
	if err := input.FieldsAnd(c, more, input.Field{Name: "actor", Most: input.MaxActor, Into: &request.Actor},
		input.Field{Name: "reason", Most: input.MaxReason, Into: &request.Reason}); err != nil {
		return request, times, err
	}
	if request.Via, err = input.FrontDoor(params.SlipwayVia); err != nil {
		return request, times, err
	}
	request.Key, err = input.Key("", params.IdempotencyKey)
	return request, times, err
}

// answerStart starts a task of the plan that the request names, at these times; rerun is nil unless an earlier one is run again.
func (h *Handlers) answerStart(c echo.Context, request start.Request, times window.Times, rerun *rerun) error {
	request.Prefix = request.Subject
	// Somebody who hangs up must not leave an execution half done.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Request().Context()), start.Timeout)
	defer cancel()
	x := newTaskStart(h, request)
	x.rerun, x.times = rerun, times
	if err := x.Run(ctx); err != nil {
		return err
	}
	c.Response().Header().Set(echo.HeaderLocation, "/api/v1/tasks/"+x.ID)
	return c.JSON(http.StatusAccepted, schema.ExecuteResult{ID: x.ID, Warnings: x.warnings})
}

// executeDigest is what tells two executions under one key apart.
type executeDigest struct {
	Plan    string                `json:"plan"`
	Request schema.ExecuteRequest `json:"request"`
}

// taskStart is one request to execute a plan.
type taskStart struct {
	*Handlers
	*start.Start
	plan     string
	snapshot plan.Snapshot
	// object is the plan as it was last read.
	object *v1alpha1.DeployPlan
	// checked is the generation of the plan that was found fit to run; its snapshot is the one above.
	checked int64
	// warnings are the parties', and those on the times.
	warnings []schema.FieldProblem
	// rerun is what is run again of an earlier task; nil for an execution of the plan.
	rerun *rerun
	// diffing has the parties say what would change; diffs are their answers, in no order.
	diffing bool
	diffs   []workloadDiff
	// times are those of this execution, beside the plan's.
	times window.Times
	// engine is that of its claims.
	engine workloadops.Engine
}

func newTaskStart(h *Handlers, request start.Request) *taskStart {
	x := &taskStart{Handlers: h, plan: request.Subject}
	x.Start = start.New(h.Backend, x, request)
	return x
}

// String is how messages call the task.
func (x *taskStart) String() string { return "task " + x.ID }

// Name names a task in a problem.
func (x *taskStart) Name(p *problem.Error, workflowID string) *problem.Error {
	id, _ := plan.TaskOfWorkflow(workflowID)
	return p.About(id, nil)
}

// Look reads the plan, and refuses while another task of it lives.
func (x *taskStart) Look(ctx context.Context) error {
	var err error
	if x.object, err = x.Handlers.plan(ctx, x.plan); err != nil || x.claimed() {
		return err
	}
	if x.Written == nil && x.checked != x.object.Generation {
		if err := x.checkDocument(ctx); err != nil {
			return err
		}
	}
	other, err := x.liveTask(ctx, x.object)
	if err != nil {
		return err
	}
	blocked := x.blocked(other)
	if blocked != nil {
		x.Discard(ctx) // the plan is another's: whoever wrote the record cannot start the task either
	}
	return blocked
}

// claimed says whether the plan is claimed for this very task.
func (x *taskStart) claimed() bool { return x.Written != nil && x.object.Status.Task == x.ID }

// blocked is the answer while another task of the plan lives.
func (x *taskStart) blocked(other *live) error {
	switch {
	case !other.inTheWay(), other.id == x.ID:
		return nil
	case other.starting:
		return problem.Conflict.Because("task %s of plan %s is being started just now: look at it, or repeat in a minute", other.id,
			x.plan).About(other.id, nil)
	}
	return problem.Conflict.Because("task %s of plan %s is %s: wait until it is over, or stop it (POST /api/v1/tasks/%s/stop)",
		other.id, x.plan, other.state, other.id).About(other.id, nil)
}

// Check asks the parties whether the task can be carried out. What is recorded was checked before.
func (x *taskStart) Check(ctx context.Context) error {
	if x.Written != nil || x.checked == x.object.Generation {
		return nil
	}
	if err := x.preflight(ctx); err != nil {
		return err
	}
	x.checked = x.object.Generation
	return nil
}

// Begin claims the plan and starts the task's workflow. One that runs already is this task's own: its ID belongs to the record.
func (x *taskStart) Begin(ctx context.Context) (err error) {
	if x.engine, err = x.Home.Engine(ctx); err != nil {
		return err
	}
	if !x.claimed() {
		if err := x.claim(ctx); err != nil {
			return err
		}
	}
	_, err = x.Execute(ctx, x.workflow())
	return err
}

// claim makes this task the plan's live one. After a conflict the plan may still have been claimed for it, by a twin of this request or
// by a call whose answer was lost.
func (x *taskStart) claim(ctx context.Context) error {
	err := x.Home.ClaimPlan(ctx, x.plan, x.object.ResourceVersion, x.ID)
	if !failure.Is(err, failure.Conflict) {
		return err
	}
	if x.object, err = x.Handlers.plan(ctx, x.plan); err != nil || x.claimed() {
		return err
	}
	x.Discard(ctx)
	return start.ErrAgain
}

// Began says whether the task has a workflow.
func (x *taskStart) Began(ctx context.Context, record *v1alpha1.ReleaseRecord) (bool, error) {
	described, err := x.Describe(ctx, record.Spec.WorkflowID)
	return described != nil, err
}

// Adopt takes on a task that was recorded but has no workflow. If it has not even claimed its plan within the time that takes, its
// snapshot is old: it makes way for a new one.
func (x *taskStart) Adopt(ctx context.Context) error {
	object, err := x.Handlers.plan(ctx, x.plan)
	if err != nil {
		return err
	}
	if object.Status.Task != x.ID && x.Age() > start.Window {
		x.Discard(ctx)
		return nil
	}
	return v1alpha1.DecodeBody(x.Written.Spec.Snapshot, &x.snapshot)
}

// Deleted says whether the ID is that of a task that was deleted: Temporal remembers its workflow for a minute or so, and would not start
// another under its ID.
func (x *taskStart) Deleted(ctx context.Context, id string) (bool, error) {
	described, err := x.Describe(ctx, plan.WorkflowID(id))
	if err != nil || described == nil {
		return false, err
	}
	// A task's record is there before its workflow: with one, it is a twin of this request that was faster.
	_, err = x.Home.GetRecord(ctx, id)
	if err == nil {
		return false, start.ErrAgain
	}
	return failure.Is(err, failure.NotFound), failure.Ignore(err, failure.NotFound)
}

// Record is what the task is asked.
func (x *taskStart) Record(id string, at time.Time) (*v1alpha1.ReleaseRecord, error) {
	x.snapshot.Task, x.snapshot.CreatedAt = id, at
	snapshot, err := v1alpha1.EncodeBody(x.snapshot)
	if err != nil {
		return nil, fmt.Errorf("snapshot of %s: %w", x, err)
	}
	record := &v1alpha1.ReleaseRecord{Spec: v1alpha1.ReleaseRecordSpec{
		RerunOf: x.snapshot.RerunOf, ReverseOf: x.snapshot.Document.Reverses(), Comment: x.snapshot.Document.Comment, WorkflowID: plan.WorkflowID(id), Snapshot: snapshot}}
	record.Labels = map[string]string{v1alpha1.LabelSubject: x.plan}
	return record, nil
}
