package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/labstack/echo/v4"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/recent"
	"slipway.io/slipway/workflows"
)

// pollerMaxAge is the maximum age of a worker's last poll for the worker to count as running: a poll lasts up to a
// minute.
const pollerMaxAge = 75 * time.Second

// GetHealth answers GET /healthz.
func (h *handlers) GetHealth(c echo.Context) error {
	return c.JSON(http.StatusOK, schema.Health{Status: schema.HealthStatusOK})
}

// readinessMaxAge is the maximum age of a report of readiness.
const readinessMaxAge = 2 * time.Second

// The messages of checks for clients without credentials, who learn neither addresses nor errors.
const (
	checkOK     = "ok"
	checkFailed = "is not ready: a request with the engine's credentials shows why"
)

// GetReadiness answers GET /readyz. Probes have no credentials, so the status and the names of the checks are open.
func (h *handlers) GetReadiness(c echo.Context) error {
	report, err := recent.Get(c.Request().Context(), &h.readiness, "readiness", readinessMaxAge, h.readReadiness)
	if err != nil {
		return err
	}
	if h.deps.Guard.Closed() && !h.deps.Guard.Knows(c.Request()) {
		report = withoutReasons(report)
	}
	status := http.StatusOK
	if !report.Ready {
		status = http.StatusServiceUnavailable
	}
	return c.JSON(status, report)
}

// withoutReasons returns a copy of a report without the messages of failed checks.
func withoutReasons(report schema.Readiness) schema.Readiness {
	report.Checks = slices.Clone(report.Checks)
	for i, check := range report.Checks {
		if !check.OK {
			report.Checks[i].Message = checkFailed
		}
	}
	return report
}

// readReadiness makes all checks. It has a time limit of its own, because its first caller may leave.
func (h *handlers) readReadiness(ctx context.Context) (schema.Readiness, error) {
	type probe struct {
		name  string
		check func(context.Context) error
		// optional is true if the engine works without it.
		optional bool
	}
	checks := []probe{{"temporal", h.checkTemporal, false}, {"home cluster", h.Home.CheckCluster, false},
		{"definitions", h.Home.CheckCRDs, false}, {"engine worker", h.checkWorker, false}}
	if h.deps.Installed != nil {
		checks = append(checks, probe{"admission", func(context.Context) error { return h.deps.Installed() }, true})
	}
	report := schema.Readiness{Ready: true, Checks: make([]schema.Check, len(checks))}
	ctx, cancel := backend.WithCallTimeout(ctx)
	defer cancel()
	var wg sync.WaitGroup
	for i, check := range checks {
		wg.Go(func() {
			report.Checks[i] = schema.Check{Name: check.name, OK: true, Message: checkOK,
				Optional: check.optional}
			if err := check.check(ctx); err != nil {
				report.Checks[i].OK, report.Checks[i].Message = false, err.Error()
			}
		})
	}
	wg.Wait()
	for _, check := range report.Checks {
		report.Ready = report.Ready && (check.OK || check.Optional)
	}
	return report, nil
}

func (h *handlers) checkTemporal(ctx context.Context) error {
	if _, err := h.Temporal.CheckHealth(ctx, &client.CheckHealthRequest{}); err != nil {
		return fmt.Errorf("does not answer: %w", err)
	}
	_, err := h.Temporal.WorkflowService().DescribeNamespace(ctx,
		&workflowservice.DescribeNamespaceRequest{Namespace: h.Namespace})
	if err != nil {
		return fmt.Errorf("its namespace %s cannot be read: %w", h.Namespace, err)
	}
	return nil
}

// checkWorker checks that a worker polls the engine's own queue, and that this process's own workers do. Missing party
// workers do not affect readiness: their parties are reported as unreachable.
func (h *handlers) checkWorker(ctx context.Context) error {
	if h.deps.OwnWorkers != nil {
		if err := h.deps.OwnWorkers(); err != nil {
			return err
		}
	}
	polled, err := h.HasRecentPoller(ctx, pollerMaxAge)
	switch {
	case err != nil:
		return fmt.Errorf("its queue %s cannot be read: %w", workflows.QueueEngine, err)
	case polled:
		return nil
	}
	return errors.New("no workflow worker takes work: start one (slipway worker, or slipway dev)")
}
