// Package plans implements the HTTP API of the catalogue's services, of plans, and of tasks (the executions of plans).
package plans

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	"sigs.k8s.io/yaml"

	"slipway.io/slipway/api/answer"
	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/input"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/api/start"
	"slipway.io/slipway/api/stream"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/strictyaml"
	"slipway.io/slipway/release/v1alpha1"
)

// Handlers implements the operations of openapi.yaml on services, plans and tasks.
type Handlers struct {
	*backend.Backend
	Streams *stream.Hub
}

// ListPlans answers GET /api/v1/plans.
func (h *Handlers) ListPlans(c echo.Context, params schema.ListPlansParams) error {
	return answer.Objects(c, params.Limit, params.Cursor, h.Home.ListPlans,
		func(p *v1alpha1.DeployPlan) (schema.PlanSummary, error) {
			return schema.PlanSummary{Name: v1alpha1.IDOf(p), Comment: p.Spec.Comment, Items: len(p.Spec.Items),
				Task: p.Status.Task, CreatedAt: p.CreationTimestamp.UTC()}, nil
		})
}

// GetPlan answers GET /api/v1/plans/{name}.
func (h *Handlers) GetPlan(c echo.Context, name schema.PlanName) error {
	return answer.Document(c, name, h.plan, func(p *v1alpha1.DeployPlan) plan.Document { return p.Spec }, plan.Encode)
}

func (h *Handlers) plan(ctx context.Context, name string) (*v1alpha1.DeployPlan, error) {
	if catalog.ValidID(name) != nil {
		return nil, problem.NotFound.Because("plan %s does not exist", name)
	}
	return h.Home.GetPlan(ctx, name)
}

// PutPlan answers PUT /api/v1/plans/{name}.
func (h *Handlers) PutPlan(c echo.Context, name schema.PlanName) error {
	sent, err := input.DecodeNamed(c, "plan", name, catalog.ValidID, decodePlan)
	if err != nil {
		return err
	}
	document, warnings := sent.document, sent.warnings
	_, refusals, err := h.resolve(c.Request().Context(), document)
	if err != nil {
		return err
	}
	created, changed, err := h.Home.PutPlan(c.Request().Context(), name, document)
	return answer.Put(c, created, schema.PutPlanResult{Name: name, Changed: changed,
		Warnings: append([]schema.FieldProblem{}, slices.Concat(start.NeverOpens("windows", "", document.Times), warnings,
			refusals)...)}, err)
}

// sentPlan is a plan in a request body, with its warnings.
type sentPlan struct {
	document plan.Document
	warnings []plan.Warning
}

func decodePlan(body []byte) (sent sentPlan, wrong strictyaml.Errors) {
	sent.document, sent.warnings, wrong = plan.Decode(body)
	return sent, wrong
}

// resolve creates the snapshot that a plan would run with the current catalogue and records, and returns what they do
// not allow.
func (h *Handlers) resolve(ctx context.Context, document plan.Document) (plan.Snapshot, strictyaml.Errors, error) {
	services, err := h.Home.GetServices(ctx, serviceIDs(document))
	if err != nil {
		return plan.Snapshot{}, nil, err
	}
	records := map[string]plan.Recorded{}
	for _, id := range document.RestoredTasks() {
		if records[id], err = h.restorableTask(ctx, id); err != nil {
			return plan.Snapshot{}, nil, err
		}
	}
	restorations, wrong := plan.ResolveRestorations(document, services, records)
	return plan.Snapshot{Document: document, Services: services, Restorations: restorations,
		Queues: map[string]string{}}, append(plan.Resolve(document, services), wrong...), nil
}

func serviceIDs(document plan.Document) []plan.ServiceID {
	ids := make([]plan.ServiceID, 0, len(document.Items))
	for _, item := range document.Items {
		if item.ServiceID != "" {
			ids = append(ids, item.ServiceID)
		}
	}
	return ids
}

// ValidatePlan answers POST /api/v1/plans/validate.
func (h *Handlers) ValidatePlan(c echo.Context) error {
	sent, wrong, err := input.Decode(c, decodePlan)
	if err != nil {
		return err
	}
	result := schema.ValidateResult{Waves: []schema.Wave{}, Warnings: problem.Fields(sent.warnings)}
	if len(wrong) == 0 {
		result.Waves = waves(sent.document)
	}
	document, sound := withoutWrong(sent.document, wrong)
	ctx := c.Request().Context()
	x := &taskStart{Handlers: h, plan: "to validate"}
	err = x.checkResolved(ctx, document)
	if refused, is := errors.AsType[*problem.Error](err); is && refused.Status == problem.Refused.Status {
		x.wrong = refused.Errors // of the plan as a whole
	} else if err != nil {
		return err
	}
	for i := range x.askable {
		x.askable[i] = x.askable[i] && sound[i]
	}
	found := slices.Clone(x.wrong)
	if x.askable != nil {
		found = append(found, x.partyRefusals(ctx)...)
	}
	for _, refusal := range found {
		if refusal.Item == 0 || sound[refusal.Item-1] {
			wrong = append(wrong, refusal)
		}
	}
	slices.SortStableFunc(wrong, func(a, b strictyaml.FieldError) int { return cmp.Compare(a.Item, b.Item) })
	result.Errors = problem.Fields(wrong)
	result.Warnings = append(result.Warnings, x.warnings...)
	result.Valid = len(result.Errors) == 0
	return c.JSON(http.StatusOK, result)
}

// partyCheckTimeout is how long a validation waits for the parties.
const partyCheckTimeout = 3 * time.Second

// partyRefusals returns the refusals of the parties that answer, and leaves their warnings in x.
func (x *taskStart) partyRefusals(ctx context.Context) []schema.FieldProblem {
	ctx, cancel := context.WithTimeout(ctx, partyCheckTimeout)
	defer cancel()
	refusals, absent, err := x.askParties(ctx)
	if err != nil || len(absent) > 0 {
		x.Log.Debug("not all parties answered a plan's validation", "parties", len(absent), "error", err)
	}
	return limitFindings(refusals)
}

// withoutWrong blanks the items that have an error of their own, so that the others keep their numbers, and returns
// which items are valid. A blank item is not checked against the catalogue. If not all errors are known, all items are
// blanked.
func withoutWrong(document plan.Document, wrong strictyaml.Errors) (rest plan.Document, sound []bool) {
	rest = plan.Document{Comment: document.Comment, Times: document.Times, Items: slices.Clone(document.Items)}
	if wrong.Cut() {
		clear(rest.Items)
		return rest, make([]bool, len(rest.Items))
	}
	sound = slices.Repeat([]bool{true}, len(rest.Items))
	for _, e := range wrong {
		if e.Item > 0 && e.Item <= len(rest.Items) {
			rest.Items[e.Item-1], sound[e.Item-1] = plan.Item{}, false
		}
	}
	return rest, sound
}

func waves(document plan.Document) []schema.Wave {
	answer := []schema.Wave{}
	for _, wave := range document.Waves() {
		items := make([]schema.WaveItem, len(wave.Items))
		for i, n := range wave.Items {
			item := document.Items[n]
			items[i] = schema.WaveItem{Item: n + 1, ServiceID: string(item.ServiceID), Deployment: item.Deployment,
				ContainerExecMethod: item.MethodOrDefault()}
		}
		answer = append(answer, schema.Wave{Priority: wave.Priority, Items: items})
	}
	return answer
}

// DeletePlan answers DELETE /api/v1/plans/{name}.
func (h *Handlers) DeletePlan(c echo.Context, name schema.PlanName) error {
	ctx := c.Request().Context()
	return answer.NoContent(c, failure.RetryOnConflict("plan "+name, func() error {
		found, err := h.plan(ctx, name)
		if err != nil {
			return err
		}
		live, err := h.liveTask(ctx, found)
		if err != nil {
			return err
		}
		if live != nil {
			return problem.Conflict.Because("plan %s cannot be deleted while its task %s is %s: stop the task first",
				name, live.id, live.state).About(live.id, nil)
		}
		return h.Home.DeletePlan(ctx, name, found.ResourceVersion)
	}))
}

// ListServices answers GET /api/v1/services.
func (h *Handlers) ListServices(c echo.Context, params schema.ListServicesParams) error {
	return answer.Objects(c, params.Limit, params.Cursor, h.Home.ListServices,
		func(s *v1alpha1.ReleaseService) (schema.ServiceSummary, error) {
			return schema.ServiceSummary{ID: v1alpha1.IDOf(s), DisplayName: s.Spec.DisplayName,
				Workloads: s.Spec.Workloads, CreatedAt: s.CreationTimestamp.UTC()}, nil
		})
}

// GetService answers GET /api/v1/services/{id}.
func (h *Handlers) GetService(c echo.Context, id schema.ServiceID) error {
	return answer.Document(c, id, h.service, func(s *v1alpha1.ReleaseService) catalog.Service { return s.Spec },
		func(service catalog.Service) ([]byte, error) { return yaml.Marshal(service) })
}

func (h *Handlers) service(ctx context.Context, id string) (*v1alpha1.ReleaseService, error) {
	if catalog.ValidID(id) != nil {
		return nil, problem.NotFound.Because("service %s does not exist", id)
	}
	return h.Home.GetService(ctx, id)
}

// PutService answers PUT /api/v1/services/{id}.
func (h *Handlers) PutService(c echo.Context, id schema.ServiceID) error {
	service, err := input.DecodeNamed(c, "service", id, catalog.ValidID, strategy.DecodeService)
	if err != nil {
		return err
	}
	created, changed, err := h.Home.PutService(c.Request().Context(), id, service)
	return answer.Put(c, created, schema.PutServiceResult{ID: id, Changed: changed}, err)
}

// DeleteService answers DELETE /api/v1/services/{id}.
func (h *Handlers) DeleteService(c echo.Context, id schema.ServiceID) error {
	ctx := c.Request().Context()
	if _, err := h.service(ctx, id); err != nil {
		return err
	}
	plans, err := h.plansUsing(ctx, id)
	if err != nil {
		return err
	}
	if len(plans) > 0 {
		return problem.Conflict.Because("service %s is used by %s: remove it there first, or delete the plans", id,
			nameList("plan", plans))
	}
	return answer.NoContent(c, h.Home.DeleteService(ctx, id))
}

// plansUsing returns the plans that name a service. They could not be executed without it.
func (h *Handlers) plansUsing(ctx context.Context, id string) (names []string, err error) {
	for cursor := ""; ; {
		plans, next, err := h.Home.ListPlans(ctx, answer.MaxLimit, cursor)
		if err != nil {
			return nil, err
		}
		for i := range plans {
			if slices.ContainsFunc(plans[i].Spec.Items, func(item plan.Item) bool {
				return string(item.ServiceID) == id
			}) {
				names = append(names, v1alpha1.IDOf(&plans[i]))
			}
		}
		if cursor = next; next == "" {
			return names, nil
		}
	}
}

// maxNamed is the number of plans that an error names.
const maxNamed = 5

// nameList formats "plan a" or "the plans a, b and 3 more".
func nameList(what string, names []string) string {
	if len(names) == 1 {
		return what + " " + names[0]
	}
	return "the " + what + "s " + phrase.List(names, maxNamed)
}

// diffChunk is the number of checks per diff workflow; it keeps the answers below Temporal's limit of 2 MiB.
const diffChunk = 200

// workloadDiff is the change that an operation would make.
type workloadDiff struct {
	check itemCheck
	diff  operation.Diff
}

// DiffPlan answers POST /api/v1/plans/{name}/diff. It refuses what an execution would refuse, except that a live task
// of the plan only causes a warning.
func (h *Handlers) DiffPlan(c echo.Context, name schema.PlanName) error {
	ctx, cancel := context.WithTimeout(c.Request().Context(), start.Timeout)
	defer cancel()
	x := &taskStart{Handlers: h, plan: name, diffing: true}
	var err error
	if x.object, err = h.plan(ctx, name); err != nil {
		return err
	}
	if err := x.checkDocument(ctx); err != nil {
		return err
	}
	if err := x.preflight(ctx); err != nil {
		return err
	}
	other, err := h.liveTask(ctx, x.object)
	if err != nil {
		return err
	}
	if other.blocksExecution() {
		x.warnings = append(x.warnings, schema.FieldProblem{Reason: fmt.Sprintf(
			"task %s of plan %s is %s: an execution is refused until it has ended", other.id, name, other.state)})
	}
	return c.JSON(http.StatusOK, x.diff())
}

// diff returns the parties' diffs by item.
func (x *taskStart) diff() schema.PlanDiff {
	out := schema.PlanDiff{Plan: x.plan, Items: make([]schema.ItemDiff, len(x.snapshot.Document.Items)),
		Warnings: x.allWarnings()}
	for n, item := range x.snapshot.Document.Items {
		out.Items[n] = schema.ItemDiff{Item: n + 1, ServiceID: string(item.ServiceID), Priority: item.Priority,
			Deployment:          item.Deployment,
			ContainerExecMethod: item.MethodOrDefault(), Source: sourceOf(item), Workloads: []schema.WorkloadDiff{}}
		if x.snapshot.RollsOut(n) {
			by, _ := strategy.ReadService(x.snapshot.Services[item.ServiceID]) // plan.Resolve has validated it
			out.Items[n].Steps = len(by.Strategy.Steps)
		}
	}
	earlier := x.earlierItems()
	slices.SortStableFunc(x.diffs, func(a, b workloadDiff) int { return x.rank(a) - x.rank(b) })
	for _, d := range x.diffs {
		item := &out.Items[d.check.item]
		item.Workloads = append(item.Workloads, shownDiff(d,
			earlier[d.check.item][d.check.request.Workload.Identity()]))
	}
	return out
}

// rank is the position of a diff's workload in the catalogue.
func (x *taskStart) rank(d workloadDiff) int {
	return slices.IndexFunc(x.snapshot.Selected(d.check.item), func(w catalog.Workload) bool {
		return w.Identity() == d.check.request.Workload.Identity()
	})
}

// earlierItems returns, for each item, the last item of an earlier wave that changes the same workload: its number
// counted from 1, by workload; 0 if there is none.
func (x *taskStart) earlierItems() []map[string]int {
	by := make([]map[string]int, len(x.snapshot.Document.Items))
	done := map[string]int{}
	for _, wave := range x.snapshot.Document.Waves() {
		for _, n := range wave.Items {
			by[n] = map[string]int{}
			for _, w := range x.snapshot.Selected(n) {
				by[n][w.Identity()] = done[w.Identity()]
			}
		}
		for _, n := range wave.Items {
			for _, w := range x.snapshot.Selected(n) {
				done[w.Identity()] = n + 1
			}
		}
	}
	return by
}

func shownDiff(d workloadDiff, earlier int) schema.WorkloadDiff {
	w := d.check.request.Workload
	unknown := d.diff.Unknown
	if earlier > 0 {
		unknown = strings.TrimSuffix(fmt.Sprintf("item %d changes it first: this diff is against its current state; %s",
			earlier, unknown), "; ")
	}
	return schema.WorkloadDiff{Party: w.PartyOrDefault(), Namespace: w.Namespace, Kind: w.WorkloadRef.Kind,
		Name: w.WorkloadRef.Name, Changes: d.diff.Changes, Summary: d.diff.Summary, Unknown: unknown,
		FromReplicas: d.diff.FromReplicas, ToReplicas: d.diff.ToReplicas, Pods: d.diff.Pods,
		Template: d.diff.Template}
}

// sourceOf returns the source that an item deploys, without secrets.
func sourceOf(item plan.Item) string {
	switch item.Deployment {
	case plan.HTTPUploadDeploy:
		return source.Redact(item.HTTPSrcURI)
	case plan.CompileDeploy:
		return item.CompileRepoBranch
	case plan.Restore:
		return "task " + item.RestoreTask
	}
	return ""
}
