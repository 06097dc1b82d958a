package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/labstack/echo/v4"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"slipway.io/slipway/api/answer"
	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/workflows"
)

// pollerMaxAge is the maximum age of a worker's last poll for the worker to count as running: a poll lasts up to a
// minute.
const pollerMaxAge = 75 * time.Second

// GetHealth answers GET /healthz.
func (h *handlers) GetHealth(c echo.Context) error {
	return c.JSON(http.StatusOK, schema.Health{Status: schema.HealthStatusOK})
}

// GetReadiness answers GET /readyz.
func (h *handlers) GetReadiness(c echo.Context) error {
	checks := []struct {
		name  string
		check func(context.Context) error
	}{
		{"temporal", h.checkTemporal}, {"home cluster", h.Home.CheckCluster}, {"definitions", h.Home.CheckCRDs},
		{"engine worker", h.checkWorker},
	}
	answer := schema.Readiness{Ready: true, Checks: make([]schema.Check, len(checks))}
	ctx, cancel := backend.WithCallTimeout(c.Request().Context())
	defer cancel()
	var wg sync.WaitGroup
	for i, check := range checks {
		wg.Go(func() {
			answer.Checks[i] = schema.Check{Name: check.name, OK: true, Message: "ok"}
			if err := check.check(ctx); err != nil {
				answer.Checks[i].OK, answer.Checks[i].Message = false, err.Error()
			}
		})
	}
	wg.Wait()
	status := http.StatusOK
	for _, check := range answer.Checks {
		if !check.OK {
			answer.Ready, status = false, http.StatusServiceUnavailable
		}
	}
	return c.JSON(status, answer)
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
	if h.ownWorkers != nil {
		if err := h.ownWorkers(); err != nil {
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

// GetMetrics answers GET /metrics.
func (h *handlers) GetMetrics(c echo.Context) error {
	h.metrics.ServeHTTP(c.Response(), c.Request())
	return nil
}

// GetOpenAPI answers GET /openapi.yaml.
func (h *handlers) GetOpenAPI(c echo.Context) error {
	return c.Blob(http.StatusOK, answer.TypeYAML, description)
}

// GetDocs answers GET /docs.
func (h *handlers) GetDocs(c echo.Context) error {
	c.Response().Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	return c.HTMLBlob(http.StatusOK, h.docs)
}
