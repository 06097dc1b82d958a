package api

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/v1alpha1"
)

// GetTaskReport answers GET /api/v1/tasks/{id}/report.
func (h *handlers) GetTaskReport(c echo.Context, id TaskID, params GetTaskReportParams) error {
	form, err := reportForm(c, params.Format)
	if err != nil {
		return err
	}
	report, err := h.report(c.Request().Context(), id)
	if err != nil {
		return err
	}
	if form == typeMarkdown {
		return c.Blob(http.StatusOK, typeMarkdown+"; charset=utf-8", []byte(report.Markdown()))
	}
	return c.JSON(http.StatusOK, report)
}

func reportForm(c echo.Context, format *ReportFormat) (string, error) {
	if format == nil {
		return chooseType(c, typeJSON, typeMarkdown)
	}
	switch *format {
	case ReportFormatJSON:
		return typeJSON, nil
	case ReportFormatMarkdown:
		return typeMarkdown, nil
	}
	return "", badQuery(FieldProblem{Field: "format", Reason: "must be json or markdown"})
}

func (h *handlers) report(ctx context.Context, id string) (plan.Report, error) {
	seen, err := h.readTask(ctx, id, newTaskReader(h))
	if err != nil {
		return plan.Report{}, err
	}
	record, err := h.Home.GetRecord(ctx, id)
	if isFailure(err, failure.NotFound) {
		return plan.Report{}, kindNotFound.because("task %s has no record any more, so that there is no report of it", id)
	}
	if err != nil {
		return plan.Report{}, err
	}
	var snapshot plan.Snapshot
	if err := v1alpha1.DecodeBody(record.Spec.Snapshot, &snapshot); err != nil {
		return plan.Report{}, err
	}
	return plan.NewReport(seen.task, snapshot), nil
}
