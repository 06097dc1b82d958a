package plans

import (
	"context"
	"net/http"
	"slices"

	"github.com/labstack/echo/v4"

	"slipway.io/slipway/api/answer"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/rollouts"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout"
)

// GetTaskReport answers GET /api/v1/tasks/{id}/report.
func (h *Handlers) GetTaskReport(c echo.Context, id schema.TaskID, params schema.GetTaskReportParams) error {
	form, err := reportForm(c, params.Format)
	if err != nil {
		return err
	}
	report, err := h.report(c.Request().Context(), id)
	if err != nil {
		return err
	}
	if form == answer.TypeJSON {
		return c.JSON(http.StatusOK, report)
	}
	text, err := report.Markdown()
	if err != nil {
		return err
	}
	return c.Blob(http.StatusOK, answer.TypeMarkdown+"; charset=utf-8", []byte(text))
}

func reportForm(c echo.Context, format *schema.ReportFormat) (string, error) {
	if format == nil {
		return answer.Type(c, answer.TypeJSON, answer.TypeMarkdown)
	}
	switch *format {
	case schema.ReportFormatJSON:
		return answer.TypeJSON, nil
	case schema.ReportFormatMarkdown:
		return answer.TypeMarkdown, nil
	}
	return "", problem.BadQuery(schema.FieldProblem{Field: "format", Reason: "must be json or markdown"})
}

func (h *Handlers) report(ctx context.Context, id string) (plan.Report, error) {
	seen, err := h.readTask(ctx, id, newTaskReader(h))
	if err != nil {
		return plan.Report{}, err
	}
	snapshot, err := h.snapshotOf(ctx, id)
	if err != nil {
		return plan.Report{}, err
	}
	return plan.NewReport(seen.task, snapshot, h.rolloutReports(ctx, seen.task)...), nil
}

// rolloutReports returns the rollouts that released workloads of the task, with details from their records.
func (h *Handlers) rolloutReports(ctx context.Context, task plan.Task) (reports []plan.RolloutReport) {
	for _, service := range task.Services {
		for _, w := range service.Workloads {
			if w.Rollout == nil {
				continue
			}
			one := plan.RolloutReport{RolloutStatus: *w.Rollout, ServiceID: service.ServiceID}
			status, err := rollouts.ReadRelease(ctx, h.Backend, *w.Rollout)
			switch {
			case failure.Is(err, failure.NotFound):
				one.Unknown = "its record is no longer kept"
			case err != nil:
				one.Unknown = err.Error()
			default:
				one.Replicas, one.History = new(status.Replicas), withoutStart(status.History)
			}
			reports = append(reports, one)
		}
	}
	return reports
}

// withoutStart removes the start from a rollout's history: the task itself started it.
func withoutStart(history []audit.Entry) []audit.Entry {
	return slices.DeleteFunc(slices.Clone(history), func(entry audit.Entry) bool {
		return entry.Verb == rollout.VerbStart
	})
}
