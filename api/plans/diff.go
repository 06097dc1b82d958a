package plans

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/labstack/echo/v4"

	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/api/start"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/operation"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/source"
)

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
			"task %s of plan %s is %s: an execution is refused until it has ended",
			other.id, name, other.state)})
	}
	return c.JSON(http.StatusOK, x.diff())
}

// diff returns the parties' diffs by item.
func (x *taskStart) diff() schema.PlanDiff {
	out := schema.PlanDiff{Plan: x.plan, Items: make([]schema.ItemDiff, len(x.snapshot.Document.Items)),
		Warnings: append([]schema.FieldProblem{}, x.warnings...)}
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
		note := fmt.Sprintf("item %d changes it first: this diff is against its current state", earlier)
		if unknown != "" {
			note += "; " + unknown
		}
		unknown = note
	}
	return schema.WorkloadDiff{Party: w.PartyOrDefault(), Namespace: w.Namespace, Kind: w.WorkloadRef.Kind,
		Name:    w.WorkloadRef.Name,
		Changes: d.diff.Changes, Summary: d.diff.Summary, Unknown: unknown, FromReplicas: d.diff.FromReplicas,
		ToReplicas: d.diff.ToReplicas,
		Pods:       d.diff.Pods, Template: d.diff.Template}
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
