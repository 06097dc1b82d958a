package api

import (
	"github.com/labstack/echo/v4"
)

// kuscia has Kuscia's own handler answer: its clients find here what they find on its own listeners.
func (h *handlers) kuscia(c echo.Context) error {
	h.kusciaAPI.ServeHTTP(c.Response(), c.Request())
	return nil
}

// CreateKusciaServing answers POST /api/v1/serving/create.
func (h *handlers) CreateKusciaServing(c echo.Context) error { return h.kuscia(c) }

// UpdateKusciaServing answers POST /api/v1/serving/update.
func (h *handlers) UpdateKusciaServing(c echo.Context) error { return h.kuscia(c) }

// DeleteKusciaServing answers POST /api/v1/serving/delete.
func (h *handlers) DeleteKusciaServing(c echo.Context) error { return h.kuscia(c) }

// QueryKusciaServing answers POST /api/v1/serving/query.
func (h *handlers) QueryKusciaServing(c echo.Context) error { return h.kuscia(c) }

// BatchQueryKusciaServingStatus answers POST /api/v1/serving/status/batchQuery.
func (h *handlers) BatchQueryKusciaServingStatus(c echo.Context) error { return h.kuscia(c) }

// CreateKusciaAppImage answers POST /api/v1/appimage/create.
func (h *handlers) CreateKusciaAppImage(c echo.Context) error { return h.kuscia(c) }

// UpdateKusciaAppImage answers POST /api/v1/appimage/update.
func (h *handlers) UpdateKusciaAppImage(c echo.Context) error { return h.kuscia(c) }

// DeleteKusciaAppImage answers POST /api/v1/appimage/delete.
func (h *handlers) DeleteKusciaAppImage(c echo.Context) error { return h.kuscia(c) }

// QueryKusciaAppImage answers POST /api/v1/appimage/query.
func (h *handlers) QueryKusciaAppImage(c echo.Context) error { return h.kuscia(c) }

// ListKusciaAppImages answers POST /api/v1/appimage/list.
func (h *handlers) ListKusciaAppImages(c echo.Context) error { return h.kuscia(c) }

// BatchQueryKusciaAppImages answers POST /api/v1/appimage/batchQuery.
func (h *handlers) BatchQueryKusciaAppImages(c echo.Context) error { return h.kuscia(c) }

// GetKusciaHealth answers POST /healthZ.
func (h *handlers) GetKusciaHealth(c echo.Context) error { return h.kuscia(c) }
