package kuscia

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"

	"github.com/labstack/echo/v4"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"

	"slipway.io/slipway/api/answer"
	"slipway.io/slipway/api/auth"
	"slipway.io/slipway/api/problem"
)

// HeaderToken is the HTTP header, and the gRPC metadata key, of a client's token.
const HeaderToken = "Token"

// Handler serves Kuscia's API over HTTP.
type Handler struct {
	echo     *echo.Echo
	paths    map[string]bool
	security Security
	log      *slog.Logger
}

// NewHandler creates the handler. It enforces security on every listener: the HTTP API serves the same paths, and must
// not bypass it.
func NewHandler(s *Service, security Security) *Handler {
	h := &Handler{echo: echo.New(), paths: map[string]bool{}, security: security, log: s.log}
	h.echo.HideBanner, h.echo.HidePort = true, true
	h.echo.HTTPErrorHandler, h.echo.IPExtractor = h.handleNotFound, security.Proxies.Client
	h.echo.Pre(answer.LogRequests(h.log, "request of Kuscia's API", "/healthZ"), h.checkOrigin, h.redirectTrailingSlash,
		h.requireCredentials)
	handle(h, "/api/v1/serving/create", s.CreateServing)
	handle(h, "/api/v1/serving/update", s.UpdateServing)
	handle(h, "/api/v1/serving/delete", s.DeleteServing)
	handle(h, "/api/v1/serving/query", s.QueryServing)
	handle(h, "/api/v1/serving/status/batchQuery", s.BatchQueryServingStatus)
	handle(h, "/api/v1/appimage/create", s.CreateAppImage)
	handle(h, "/api/v1/appimage/update", s.UpdateAppImage)
	handle(h, "/api/v1/appimage/delete", s.DeleteAppImage)
	handle(h, "/api/v1/appimage/query", s.QueryAppImage)
	handle(h, "/api/v1/appimage/list", s.ListAppImage)
	handle(h, "/api/v1/appimage/batchQuery", s.BatchQueryAppImage)
	handle(h, "/healthZ", s.HealthZ)
	return h
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.echo.ServeHTTP(w, r) }

// handle adds the route of an operation.
func handle[Q any, R interface {
	*Q
	proto.Message
}, A proto.Message](h *Handler, path string, operation func(context.Context, R) (A, error)) {
	h.paths[path] = true
	h.echo.POST(path, func(c echo.Context) error {
		request := R(new(Q))
		return h.answer(c, request, func() (proto.Message, error) { return operation(c.Request().Context(), request) })
	})
}

// answer decodes and executes a request. The HTTP status is always 200.
func (h *Handler) answer(c echo.Context, request proto.Message, execute func() (proto.Message, error)) error {
	body, err := h.call(c, request, execute)
	if err != nil {
		body = frameworkError(codeOf(err, codeUnexpected), err.Error())
	}
	contentType := typeJSONUTF8
	if isProtobuf(c.Request().Header.Get(echo.HeaderContentType)) {
		contentType = typeProtobuf
	}
	return c.Blob(http.StatusOK, contentType, body)
}

// call executes an operation; a panic becomes an error.
func (h *Handler) call(c echo.Context, request proto.Message, execute func() (proto.Message, error)) (body []byte,
	err error) {
	defer func() {
		if value := recover(); value != nil {
			h.log.Error("panic in an operation of Kuscia's API", "panic", value, "stack", string(debug.Stack()))
			err = fmt.Errorf("doBizProcess panic, err: %v", value)
		}
	}()
	if err := refuseBrowser(c.Request()); err != nil {
		return nil, err
	}
	raw, err := readBody(c.Response(), c.Request())
	if err != nil {
		return nil, err
	}
	contentType := c.Request().Header.Get(echo.HeaderContentType)
	if err := decode(contentType, raw, request); err != nil {
		return nil, err
	}
	answer, err := execute()
	if err != nil {
		return nil, err
	}
	if isProtobuf(contentType) {
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
		if err := h.security.guard().Admit(c.Request()); err != nil {
			return c.Blob(http.StatusForbidden, typeJSONUTF8, frameworkError(codeRequestValidate, err.Error()))
		}
		return next(c)
	}
}

// requireCredentials answers 401 without the token, 429 after too many wrong ones, both without a body as Kuscia does,
// and 403 without the required client certificate, for all paths.
func (h *Handler) requireCredentials(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if err := h.security.authenticate(c.RealIP(), c.Request().Header.Values); err != nil {
			status := problem.Of(err).Status
			if status == http.StatusTooManyRequests {
				c.Response().Header().Set(echo.HeaderRetryAfter, problem.RetryAfterFailures)
			}
			return c.NoContent(status)
		}
		if cas := h.security.TLS.ClientCAs(); cas != nil && !auth.PresentsCertificate(c.Request(), cas) {
			return c.Blob(http.StatusForbidden, typeJSONUTF8,
				frameworkError(codeRequestValidate, "Kuscia's API requires a client certificate "+
					"(--kuscia-protocol MTLS), and this connection has none issued by its CA: use the address of "+
					"--kuscia-listen"))
		}
		return next(c)
	}
}

// handleNotFound answers requests for unknown paths and methods.
func (h *Handler) handleNotFound(err error, c echo.Context) {
	if !c.Response().Committed {
		err = c.Blob(http.StatusNotFound, typePlain, []byte("404 page not found"))
	}
	if err != nil {
		h.log.Debug("a response of Kuscia's API could not be sent", "path", c.Path(), "error", err)
	}
}

// Media types of bodies.
const (
	typeJSON     = "application/json"
	typeJSONUTF8 = "application/json; charset=utf-8"
	typeProtobuf = "application/x-protobuf"
	typePlain    = "text/plain"
)

// maxBody is the maximum request size in bytes, on HTTP and gRPC. The content has to fit into an object of the home
// cluster, whose limit is lower.
const maxBody = 2 << 20

func isProtobuf(contentType string) bool { return strings.HasPrefix(contentType, typeProtobuf) }

// refuseBrowser refuses a request from a browser whose body type a page of any site may send without a CORS preflight,
// such as text/plain. Scripts may use these types.
func refuseBrowser(r *http.Request) error {
	contentType := r.Header.Get("Content-Type")
	if strings.HasPrefix(contentType, typeJSON) || isProtobuf(contentType) || !auth.FromBrowser(r.Header) {
		return nil
	}
	return invalid("a browser sent this request, with the Content-Type %q, which any page may send: send %s",
		contentType, typeJSON)
}

// decode decodes a request. As in Kuscia, none of its fields are read from other types, including HTML forms.
func decode(contentType string, body []byte, into proto.Message) error {
	switch {
	case contentType == "", contentType == typePlain, strings.HasPrefix(contentType, typeJSON):
		return decodeJSON(body, into)
	case isProtobuf(contentType):
		return proto.Unmarshal(body, into)
	}
	return nil
}

// decodeJSON decodes JSON with protojson, ignoring unknown fields. If that fails, it decodes with encoding/json, which
// accepts repeated keys and trailing text, but no unknown fields; clients see the errors of encoding/json.
func decodeJSON(body []byte, into proto.Message) error {
	if (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(body, into) == nil {
		return nil
	}
	proto.Reset(into)
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if path := nullElement(into.ProtoReflect()); path != "" {
		return fmt.Errorf("doBizProcess panic, err: %s is null", path)
	}
	return nil
}

// nullElement returns the path of a null in a list of messages, which only encoding/json accepts; "" if there is none.
func nullElement(message protoreflect.Message) (path string) {
	_ = protorange.Range(message, func(values protopath.Values) error {
		element, is := values.Index(-1).Value.Interface().(protoreflect.Message)
		if !is || element.IsValid() {
			return nil
		}
		path = strings.TrimPrefix(values.Path[1:].String(), ".")
		return protorange.Terminate
	})
	return path
}

// encodeJSON encodes a response as protojson does, with the field names of the .proto files and with default values.
// protojson inserts random blanks, which are removed: some clients search for `"code":0`.
func encodeJSON(answer proto.Message) ([]byte, error) {
	spread, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(answer)
	if err != nil {
		return nil, err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, spread); err != nil {
		return nil, err
	}
	return compact.Bytes(), nil
}

// frameworkError is the response body for a request that reached no operation. It has no details and no data, and is
// JSON even for protobuf requests.
func frameworkError(code int32, message string) []byte {
	raw, err := json.Marshal(map[string]any{"status": map[string]any{"code": code, "message": message}})
	if err != nil {
		panic(err) // a number and a string
	}
	return raw
}

// readBody reads a request's body, and stops reading if it is too large.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLarge, is := errors.AsType[*http.MaxBytesError](err); is {
		return nil, invalid("the body is larger than %d bytes: nothing so large can be kept; let the application "+
			"fetch what is large", tooLarge.Limit)
	}
	return body, err
}
