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

// HeaderToken is the header, and in gRPC the metadata, that a client shows its token in.
const HeaderToken = "Token"

// Handler answers Kuscia's requests over HTTP.
type Handler struct {
	echo  *echo.Echo
	paths map[string]bool
	guard auth.Guard
	token auth.Token
	// authorities are the CAs that a client's certificate has to come from; nil: none is asked for.
	authorities *x509.CertPool
	log         *slog.Logger
}

// NewHandler makes the handler. It asks for all that the security asks for, whichever listener a request came to: the HTTP API serves the
// same paths, and must not open what is closed here.
func NewHandler(service *Service, security Security) *Handler {
	h := &Handler{echo: echo.New(), paths: map[string]bool{}, guard: security.guard(), token: security.Token,
		authorities: security.authorities(), log: service.log}
	h.echo.HideBanner, h.echo.HidePort = true, true
	h.echo.HTTPErrorHandler = h.notServed
	h.echo.Pre(h.logged, h.admitted, h.redirected, h.permitted)
	for _, route := range routes(service) {
		h.paths[route.path] = true
		h.echo.POST(route.path, func(c echo.Context) error {
			h.answer(c.Response(), c.Request(), route)
			return nil
		})
	}
	return h
}

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.echo.ServeHTTP(w, r) }

// route is one operation. call decodes the request by what it is given, and answers.
type route struct {
	path string
	call func(ctx context.Context, decode func(proto.Message) error) (proto.Message, error)
}

func routes(s *Service) []route {
	return []route{
		at("/api/v1/serving/create", s.CreateServing), at("/api/v1/serving/update", s.UpdateServing),
		at("/api/v1/serving/delete", s.DeleteServing),
		at("/api/v1/serving/query", s.QueryServing), at("/api/v1/serving/status/batchQuery", s.BatchQueryServingStatus),
		at("/api/v1/appimage/create", s.CreateAppImage), at("/api/v1/appimage/update", s.UpdateAppImage),
		at("/api/v1/appimage/delete", s.DeleteAppImage),
		at("/api/v1/appimage/query", s.QueryAppImage), at("/api/v1/appimage/list", s.ListAppImage),
		at("/api/v1/appimage/batchQuery", s.BatchQueryAppImage),
		at("/healthZ", s.HealthZ),
	}
}

func at[Q any, R interface {
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

// answer carries out a request. Whatever becomes of it, HTTP says 200.
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
		h.log.Debug("an answer of Kuscia's API was not taken", "path", route.path, "error", err)
	}
}

// call carries out an operation; the rest of the engine goes on after one that panics.
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

// redirected sends who asks with a slash at the end to the path without it.
func (h *Handler) redirected(next echo.HandlerFunc) echo.HandlerFunc {
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

// admitted refuses requests to other hosts, and what a browser sends for a page of another site.
func (h *Handler) admitted(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if err := h.guard.Admit(c.Request()); err != nil {
			return c.Blob(http.StatusForbidden, typeJSONUTF8, frameworkError(codeRequestValidate, err.Error()))
		}
		return next(c)
	}
}

// permitted answers 401 to who does not show the token, and 403 to who does not show the certificate, whatever they ask for.
func (h *Handler) permitted(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if !h.token.Matches(c.Request().Header.Get(HeaderToken)) {
			return c.NoContent(http.StatusUnauthorized)
		}
		if h.authorities != nil && !auth.ShowsCertificate(c.Request(), h.authorities) {
			return c.Blob(http.StatusForbidden, typeJSONUTF8, frameworkError(codeRequestValidate, "Kuscia's API asks for a client certificate "+
				"(--kuscia-protocol MTLS), and this connection has shown none of its CA: use the address of --kuscia-listen"))
		}
		return next(c)
	}
}

// notServed answers what has no operation, another method of a path that has one included.
func (h *Handler) notServed(_ error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	c.Response().Header().Set(echo.HeaderContentType, typePlain)
	c.Response().WriteHeader(http.StatusNotFound)
	if _, err := c.Response().Write([]byte("404 page not found")); err != nil {
		h.log.Debug("an answer of Kuscia's API was not taken", "error", err)
	}
}

// logged writes one line for each request when it is over; health is asked by machines, every few seconds.
func (h *Handler) logged(next echo.HandlerFunc) echo.HandlerFunc {
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
		h.log.Log(c.Request().Context(), level, "request of Kuscia's API", "method", c.Request().Method, "path", c.Request().URL.Path,
			"status", c.Response().Status, "bytes", c.Response().Size, "took", time.Since(began).Round(time.Microsecond), "from", c.RealIP())
		return nil
	}
}
