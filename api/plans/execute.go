package plans

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"k8s.io/apimachinery/pkg/util/sets"

	"slipway.io/slipway/api/input"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/api/start"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/strictyaml"
	"slipway.io/slipway/release/v1alpha1"
	"slipway.io/slipway/release/window"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/workflows"
)

// ExecutePlan answers POST /api/v1/plans/{name}/execute.
//
// A plan has at most one live task: after the task's record is written, the plan is claimed for the task with its
// resourceVersion as precondition, and then the task's workflow is started under the task's ID.
func (h *Handlers) ExecutePlan(c echo.Context, name schema.PlanName, params schema.ExecutePlanParams) error {
	request, times, err := h.executeRequest(c, params)
	if err != nil {
		return err
	}
	request.Subject, request.DigestInput = name, executeDigest{name, requestBody(request, times)}
	return h.answerStart(c, request, times, nil)
}

// requestBody rebuilds the body of an execution.
func requestBody(request start.Request, times window.Times) schema.ExecuteRequest {
	return schema.ExecuteRequest{Actor: request.Actor, Reason: request.Reason, NotBefore: times.NotBefore,
		Windows: times.Windows, Freezes: times.Freezes}
}

// executeRequest reads the actor, the reason, the key and the times of an execution.
func (h *Handlers) executeRequest(c echo.Context, params schema.ExecutePlanParams) (request start.Request,
	times window.Times, err error) {
	request = start.Request{Kind: v1alpha1.KindTask,
		BusyMessage: "other clients keep changing the plan: repeat the request"}
	more := input.ExtraFields{Names: window.Keys, Read: func(m strictyaml.Mapping, found *strictyaml.Findings) {
		times = window.Read(m)
		times.CheckTimes("", found)
	}}
	if err := input.FieldsWith(c, more, input.Field{Name: "actor", MaxLength: input.MaxActor, Into: &request.Actor},
		input.Field{Name: "reason", MaxLength: input.MaxReason, Into: &request.Reason}); err != nil {
		return request, times, err
	}
	if request.Via, err = input.Via(params.SlipwayVia); err != nil {
		return request, times, err
	}
	request.Key, err = input.Key("", params.IdempotencyKey)
	return request, times, err
}

// answerStart starts a task of the request's plan with these times. rerun is nil unless an earlier task is run again.
func (h *Handlers) answerStart(c echo.Context, request start.Request, times window.Times, rerun *rerun) error {
	request.Prefix = request.Subject
	// A client that disconnects must not leave a half-started task.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Request().Context()), start.Timeout)
	defer cancel()
	x := newTaskStart(h, request)
	x.rerun, x.times = rerun, times
	if err := x.Run(ctx); err != nil {
		return err
	}
	c.Response().Header().Set(echo.HeaderLocation, "/api/v1/tasks/"+x.ID)
	return c.JSON(http.StatusAccepted, schema.ExecuteResult{ID: x.ID, Warnings: x.allWarnings()})
}

// executeDigest is hashed to distinguish requests with the same Idempotency-Key.
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
	// object is the plan as last read.
	object *v1alpha1.DeployPlan
	// checkedGeneration is the generation of the plan that passed all checks; snapshot belongs to it.
	checkedGeneration int64
	// wrong are the problems that were found before the parties are asked, askable the items about which they are asked
	// nevertheless.
	wrong   []schema.FieldProblem
	askable []bool
	// warnings are those of the parties and those about the times.
	warnings []schema.FieldProblem
	// rerun is the earlier task that is run again; nil for an execution of the plan.
	rerun *rerun
	// diffing asks the parties for diffs; diffs are their answers, unordered.
	diffing bool
	diffs   []workloadDiff
	// times are the times of this execution, in addition to the plan's.
	times window.Times
	// engine is the engine that the task's claims name.
	engine workload.Engine
}

func newTaskStart(h *Handlers, request start.Request) *taskStart {
	x := &taskStart{Handlers: h, plan: request.Subject}
	x.Start = start.New(h.Backend, x, request)
	return x
}

// String names the task in messages.
func (x *taskStart) String() string { return "task " + x.ID }

// Name adds the task's name to a problem.
func (x *taskStart) Name(p *problem.Error, workflowID string) *problem.Error {
	id, _ := plan.TaskOfWorkflow(workflowID)
	return p.About(id, nil)
}

// Load reads the plan, and refuses if another task of it is live.
func (x *taskStart) Load(ctx context.Context) error {
	var err error
	if x.engine, err = x.Home.Engine(ctx); err != nil {
		return err
	}
	if x.object, err = x.Handlers.plan(ctx, x.plan); err != nil || x.claimed() {
		return err
	}
	if x.Written == nil && x.checkedGeneration != x.object.Generation {
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
		// the plan belongs to another task: neither this request nor a repeat of it can start the recorded task
		x.Discard(ctx)
	}
	return blocked
}

// claimed reports whether the plan is claimed for this task.
func (x *taskStart) claimed() bool { return x.Written != nil && x.object.Status.Task == x.ID }

// blocked returns the refusal while another task of the plan is live; else nil.
func (x *taskStart) blocked(other *activeTask) error {
	switch {
	case !other.blocksExecution(), other.id == x.ID:
		return nil
	case other.starting:
		return problem.Conflict.Because("task %s of plan %s is being started: look at it, or repeat in a minute",
			other.id, x.plan).About(other.id, nil)
	}
	return problem.Conflict.Because("task %s of plan %s is %s: wait until it has ended, or stop it (POST "+
		"/api/v1/tasks/%s/stop)", other.id, x.plan, other.state, other.id).About(other.id, nil)
}

// Check asks the parties whether the task can be executed. A recorded task has been checked already.
func (x *taskStart) Check(ctx context.Context) error {
	if x.Written != nil || x.checkedGeneration == x.object.Generation {
		return nil
	}
	if err := x.preflight(ctx); err != nil {
		return err
	}
	x.checkedGeneration = x.object.Generation
	return nil
}

// Launch claims the plan and starts the task's workflow. If the workflow already runs, it belongs to this task: its ID
// is that of the record.
func (x *taskStart) Launch(ctx context.Context) error {
	if !x.claimed() {
		if err := x.claim(ctx); err != nil {
			return err
		}
	}
	_, err := x.Execute(ctx, x.workflow())
	return err
}

// claim makes this task the plan's live one. After a conflict, the plan may nevertheless be claimed for this task: by a
// concurrent request with the same key, or by an own call whose response was lost.
func (x *taskStart) claim(ctx context.Context) error {
	err := x.Home.ClaimPlan(ctx, x.plan, x.object.ResourceVersion, x.ID)
	if !failure.Is(err, failure.Conflict) {
		return err
	}
	if x.object, err = x.Handlers.plan(ctx, x.plan); err != nil || x.claimed() {
		return err
	}
	x.Discard(ctx)
	return start.ErrRetry
}

// HasWorkflow reports whether the task has a workflow.
func (x *taskStart) HasWorkflow(ctx context.Context, record *v1alpha1.ReleaseRecord) (bool, error) {
	described, err := x.Describe(ctx, record.Spec.WorkflowID)
	return described != nil, err
}

// Adopt resumes a task that was recorded but has no workflow. If the task did not claim its plan within
// start.LaunchWindow, its snapshot is outdated: Adopt discards it, and a new task is recorded.
func (x *taskStart) Adopt(ctx context.Context) error {
	object, err := x.Handlers.plan(ctx, x.plan)
	if err != nil {
		return err
	}
	if object.Status.Task != x.ID && x.Age() > start.LaunchWindow {
		x.Discard(ctx)
		return nil
	}
	return v1alpha1.DecodeBody(x.Written.Spec.Snapshot, &x.snapshot)
}

// Deleted reports whether the ID belongs to a deleted task: Temporal keeps its workflow for about a minute, and would
// not start another under the same ID.
func (x *taskStart) Deleted(ctx context.Context, id string) (bool, error) {
	described, err := x.Describe(ctx, plan.WorkflowID(id))
	if err != nil || described == nil {
		return false, err
	}
	// The record is written before the workflow: if it exists, a concurrent request with the same key has started the
	// task.
	_, err = x.Home.GetRecord(ctx, id)
	if err == nil {
		return false, start.ErrRetry
	}
	return failure.Is(err, failure.NotFound), failure.Ignore(err, failure.NotFound)
}

// Record creates the task's record.
func (x *taskStart) Record(id string, at time.Time) (*v1alpha1.ReleaseRecord, error) {
	x.snapshot.Task, x.snapshot.CreatedAt = id, at
	snapshot, err := v1alpha1.EncodeBody(x.snapshot)
	if err != nil {
		return nil, fmt.Errorf("snapshot of %s: %w", x, err)
	}
	record := &v1alpha1.ReleaseRecord{Spec: v1alpha1.ReleaseRecordSpec{
		RerunOf: x.snapshot.RerunOf, ReverseOf: x.snapshot.Document.ReversedTask(),
		Comment: x.snapshot.Document.Comment, WorkflowID: plan.WorkflowID(id), Snapshot: snapshot}}
	record.Labels = map[string]string{v1alpha1.LabelSubject: x.plan}
	return record, nil
}

// workflow returns the task's workflow.
func (x *taskStart) workflow() start.Workflow {
	input := x.Input(x.Written)
	return start.Workflow{Type: workflows.TypeDeployPlan, Input: input, Options: client.StartWorkflowOptions{
		ID:                    plan.WorkflowID(x.ID),
		WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		TypedSearchAttributes: x.searchAttributes(),
		Memo: map[string]any{"plan": x.plan, "items": len(x.snapshot.Document.Items),
			workflows.MemoTimes: len(x.snapshot.AllTimes()) > 0},
		StaticSummary: start.Summary(fmt.Sprintf("plan %s: %s", x.plan, outline(x.snapshot.Document))),
		StaticDetails: x.details(),
	}}
}

// Input is the input of the task's workflow.
func (x *taskStart) Input(record *v1alpha1.ReleaseRecord) start.Input {
	items := make([]workflows.ItemOutline, len(x.snapshot.Document.Items))
	for i, item := range x.snapshot.Document.Items {
		items[i] = workflows.ItemOutline{ServiceID: item.ServiceID, Priority: item.Priority,
			Deployment: item.Deployment, Method: item.MethodOrDefault(), RollOut: x.snapshot.RollsOut(i)}
	}
	return workflows.DeployPlanInput{
		Task: x.ID, Plan: x.plan, Comment: x.snapshot.Document.Comment, CreatedAt: x.snapshot.CreatedAt,
		Actor: record.Spec.Actor, Reason: record.Spec.Reason, Via: record.Labels[v1alpha1.LabelVia],
		RerunOf: x.snapshot.RerunOf, ReverseOf: x.snapshot.Document.ReversedTask(), Times: x.snapshot.AllTimes(),
		Items: items, MaxConcurrent: x.MaxConcurrent, MaxConcurrentWorkloads: x.MaxConcurrentWorkloads,
		UnreachableBudgetSeconds: x.snapshot.UnreachableBudgetSeconds, Engine: x.engine,
	}
}

// searchAttributes are the attributes by which Temporal's lists can be filtered.
func (x *taskStart) searchAttributes() temporal.SearchAttributes {
	services, parties := sets.New[string](), sets.New[string]()
	for n, item := range x.snapshot.Document.Items {
		services.Insert(string(item.ServiceID))
		for _, workload := range x.snapshot.Selected(n) {
			parties.Insert(workload.PartyOrDefault())
		}
	}
	return temporal.NewSearchAttributes(
		workflows.AttributeKind.ValueSet(workflows.KindTask),
		workflows.AttributeState.ValueSet(string(plan.TaskPending)),
		workflows.AttributeName.ValueSet(x.plan),
		workflows.AttributeServices.ValueSet(workflows.FitList(sets.List(services))),
		workflows.AttributeParties.ValueSet(workflows.FitList(sets.List(parties))),
	)
}

// outline summarises a plan: "5 services in 3 waves".
func outline(document plan.Document) string {
	return fmt.Sprintf("%s in %s", phrase.Count(len(document.Items), "service"),
		phrase.Count(len(document.Waves()), "wave"))
}

// details is the description of the task in the Temporal UI, as Markdown: what the task does, and which signals control
// it.
func (x *taskStart) details() string {
	intro := fmt.Sprintf("Task `%s` executes plan **%s**: %s.\n\n", x.ID, x.plan, outline(x.snapshot.Document))
	if comment := x.snapshot.Document.Comment; comment != "" {
		intro += fmt.Sprintf("> %s\n\n", phrase.Inert(comment, 300))
	}
	var waves []string
	for _, wave := range x.snapshot.Document.Waves() {
		waves = append(waves, fmt.Sprintf("priority %d: %s", wave.Priority, waveOutline(x.snapshot.Document, wave)))
	}
	return x.Details(intro, waves, "waves", "Send the signal `pause`, `resume` or `stop` at any time")
}

func waveOutline(document plan.Document, wave plan.Wave) string {
	const most = 6
	var parts []string
	for i, n := range wave.Items {
		if i == most {
			parts = append(parts, fmt.Sprintf("and %d more", len(wave.Items)-most))
			break
		}
		parts = append(parts, fmt.Sprintf("%s %s", document.Items[n].Deployment, document.Items[n].ServiceID))
	}
	return strings.Join(parts, ", ")
}
