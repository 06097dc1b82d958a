package kuscia

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	"google.golang.org/protobuf/proto"

	"slipway.io/slipway/api/auth"
)

// HeaderToken is the HTTP header, and the gRPC metadata key, of a client's token.
const HeaderToken = "Token"

// Handler serves Kuscia's API over HTTP.
type Handler struct {
	echo  *echo.Echo
	paths map[string]bool
	guard auth.Guard
	token auth.Token
	// authorities are the CAs of accepted client certificates; nil: none is required.
	authorities *x509.CertPool
	log         *slog.Logger
}

// NewHandler creates the handler. It enforces security on every listener: the HTTP API serves the same paths, and must
// not bypass it.
func NewHandler(service *Service, security Security) *Handler {
	h := &Handler{echo: echo.New(), paths: map[string]bool{}, guard: security.guard(), token: security.Token,
		authorities: security.authorities(), log: service.log}
	h.echo.HideBanner, h.echo.HidePort = true, true
	h.echo.HTTPErrorHandler = h.handleNotFound
	h.echo.Pre(h.logRequests, h.checkOrigin, h.redirectTrailingSlash, h.requireCredentials)
	for _, route := range routes(service) {
		h.paths[route.path] = true
		h.echo.POST(route.path, func(c echo.Context) error {
			h.answer(c.Response(), c.Request(), route)
			return nil
		})
	}
	return h
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.echo.ServeHTTP(w, r) }

// route is one operation. call decodes the request with decode, and executes it.
type route struct {
	path string
	call func(ctx context.Context, decode func(proto.Message) error) (proto.Message, error)
}

func routes(s *Service) []route {
	return []route{
		newRoute("/api/v1/serving/create", s.CreateServing), newRoute("/api/v1/serving/update", s.UpdateServing),
		newRoute("/api/v1/serving/delete", s.DeleteServing),
		newRoute("/api/v1/serving/query", s.QueryServing),
		newRoute("/api/v1/serving/status/batchQuery", s.BatchQueryServingStatus),
		newRoute("/api/v1/appimage/create", s.CreateAppImage), newRoute("/api/v1/appimage/update", s.UpdateAppImage),
		newRoute("/api/v1/appimage/delete", s.DeleteAppImage),
		newRoute("/api/v1/appimage/query", s.QueryAppImage), newRoute("/api/v1/appimage/list", s.ListAppImage),
		newRoute("/api/v1/appimage/batchQuery", s.BatchQueryAppImage),
		newRoute("/healthZ", s.HealthZ),
	}
}

func newRoute[Q any, R interface {
	*Q
	proto.Message
}, A proto.Message](path string, operation func(context.Context, R) (A, error)) route {
	return route{path: path, call: func(ctx context.Context, decode func(proto.Message) error) (proto.Message, error) {
		request := R(new(Q))
		if err := decode(request); err != nil {
			return nil, err
		}
		return operation(ctx, request)
	}}
}

// answer executes a request. The HTTP status is always 200.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request, route route) {
	f := formOf(r.Header.Get(echo.HeaderContentType))
	body, err := h.call(w, r, f, route)
	if err != nil {
		code := int32(codeUnexpected)
		var own *refusal
		if errors.As(err, &own) {
			code = own.code
		}
		body = frameworkError(code, err.Error())
	}
	contentType := typeJSONUTF8
	if f == formProtobuf {
		contentType = typeProtobuf
	}
	w.Header().Set(echo.HeaderContentType, contentType)
	w.WriteHeader(http.StatusOK)
	if _, err := w.Write(body); err != nil {
		h.log.Debug("a response of Kuscia's API could not be sent", "path", route.path, "error", err)
	}
}

// call executes an operation; a panic becomes an error.
func (h *Handler) call(w http.ResponseWriter, r *http.Request, f form, route route) (body []byte, err error) {
	defer func() {
		if value := recover(); value != nil {
			h.log.Error("panic in an operation of Kuscia's API", "panic", value, "stack", string(debug.Stack()))
			err = fmt.Errorf("doBizProcess panic, err: %v", value)
		}
	}()
	if err := refuseBrowser(r); err != nil {
		return nil, err
	}
	raw, err := readBody(w, r)
	if err != nil {
		return nil, err
	}
	answer, err := route.call(r.Context(), func(request proto.Message) error { return decode(f, raw, request) })
	if err != nil {
		return nil, err
	}
	if f == formProtobuf {
		return proto.Marshal(answer)
	}
	return encodeJSON(answer)
}

// redirectTrailingSlash redirects a path with a trailing slash to the path without it.
func (h *Handler) redirectTrailingSlash(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		path, slash := strings.CutSuffix(r.URL.Path, "/")
		if !slash || r.Method != http.MethodPost || !h.paths[path] {
			return next(c)
		}
		to := *r.URL
		to.Path, to.RawPath = path, ""
		return c.Redirect(http.StatusTemporaryRedirect, to.RequestURI())
	}
}

// checkOrigin refuses requests to unknown hosts, and requests that a browser sends for a page of another site.
func (h *Handler) checkOrigin(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if err := h.guard.Admit(c.Request()); err != nil {
			return c.Blob(http.StatusForbidden, typeJSONUTF8, frameworkError(codeRequestValidate, err.Error()))
		}
		return next(c)
	}
}

// requireCredentials answers 401 without the token, and 403 without the required client certificate, for all paths.
func (h *Handler) requireCredentials(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if !h.token.Matches(c.Request().Header.Get(HeaderToken)) {
			return c.NoContent(http.StatusUnauthorized)
		}
		if h.authorities != nil && !auth.PresentsCertificate(c.Request(), h.authorities) {
			return c.Blob(http.StatusForbidden, typeJSONUTF8,
				frameworkError(codeRequestValidate, "Kuscia's API requires a client certificate "+
					"(--kuscia-protocol MTLS), and this connection has none issued by its CA: use the address of "+
					"--kuscia-listen"))
		}
		return next(c)
	}
}

// handleNotFound answers requests for unknown paths and methods.
func (h *Handler) handleNotFound(_ error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	c.Response().Header().Set(echo.HeaderContentType, typePlain)
	c.Response().WriteHeader(http.StatusNotFound)
	if _, err := c.Response().Write([]byte("404 page not found")); err != nil {
		h.log.Debug("a response of Kuscia's API could not be sent", "error", err)
	}
}

// logRequests writes one log line for each completed request; health checks are logged at debug level.
func (h *Handler) logRequests(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		began := time.Now()
		err := next(c)
		if err != nil {
			c.Error(err)
		}
		level := slog.LevelInfo
		if c.Request().URL.Path == "/healthZ" {
			level = slog.LevelDebug
		}
		h.log.Log(c.Request().Context(), level, "request of Kuscia's API", "method", c.Request().Method, "path",
			c.Request().URL.Path,
			"status", c.Response().Status, "bytes", c.Response().Size, "took",
			time.Since(began).Round(time.Microsecond), "from", c.RealIP())
		return nil
	}
}
