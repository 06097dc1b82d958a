// Package answer has helpers for responses: media types, statuses, times, and lists in pages.
package answer

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	"k8s.io/utils/ptr"

	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/recent"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/instant"
	"slipway.io/slipway/release/strictyaml"
	"slipway.io/slipway/release/v1alpha1"
)

// Put responds to a PUT with its result, or returns its error.
func Put(c echo.Context, created bool, result any, err error) error {
	switch {
	case err != nil:
		return problem.RefusedIsMalformed(err)
	case created:
		return c.JSON(http.StatusCreated, result)
	}
	return c.JSON(http.StatusOK, result)
}

// NoContent responds to a deletion, or returns its error.
func NoContent(c echo.Context, err error) error {
	if err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

// JSON responds with a value, or returns the error of reading it.
func JSON(c echo.Context, value any, err error) error {
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, value)
}

// Moment returns an optional time of a record as used in responses; nil for none.
func Moment(t *instant.Micro) *time.Time {
	if t == nil {
		return nil
	}
	return UTC(t.Time)
}

// UTC returns a time as used in responses.
func UTC(t time.Time) *time.Time {
	t = t.UTC()
	return &t
}

// Document responds with the document of an object as JSON or, if the client prefers it, as YAML.
func Document[O, D any](c echo.Context, name string, read func(context.Context, string) (O, error), of func(O) D,
	yaml func(D) ([]byte, error)) error {
	form, err := Type(c, TypeJSON, TypeYAML)
	if err != nil {
		return err
	}
	object, err := read(c.Request().Context(), name)
	if err != nil {
		return err
	}
	document := of(object)
	if form == TypeJSON {
		return c.JSON(http.StatusOK, document)
	}
	text, err := yaml(document)
	if err != nil {
		return err
	}
	return c.Blob(http.StatusOK, TypeYAML, text)
}

// The media types of responses and documents.
const (
	TypeJSON     = "application/json"
	TypeYAML     = "application/yaml"
	TypeMarkdown = "text/markdown"
)

// Type returns the offered type that the Accept header prefers; the first offer if several are equal or there is no
// header.
func Type(c echo.Context, offers ...string) (string, error) {
	header := strings.Join(c.Request().Header.Values(echo.HeaderAccept), ",")
	if strings.TrimSpace(header) == "" {
		return offers[0], nil
	}
	best := slices.MaxFunc(offers, func(a, b string) int {
		return cmp.Compare(acceptQuality(header, a), acceptQuality(header, b))
	})
	if acceptQuality(header, best) > 0 {
		return best, nil
	}
	return "", problem.NotAcceptable.Because("Accept is %q: the answer exists as %s", header,
		strings.Join(offers, " and "))
}

// acceptQuality returns the weight of a type in an Accept header, from 0 (excluded) to 1; the most specific matching
// range decides (RFC 9110 §12.5.1).
func acceptQuality(header, offer string) float64 {
	quality, decidedBy := 0.0, 0
	for entry := range strings.SplitSeq(header, ",") {
		accepted, parameters, err := mime.ParseMediaType(strings.TrimSpace(entry))
		if err != nil {
			continue
		}
		specific := rangeMatch(accepted, offer)
		if specific <= decidedBy {
			continue
		}
		decidedBy, quality = specific, 1
		if text, ok := parameters["q"]; ok {
			if quality, err = strconv.ParseFloat(text, 64); err != nil {
				quality = 0
			}
		}
	}
	return quality
}

// rangeMatch returns 3 for an exact match, 2 for "text/*", 1 for "*/*", 0 for no match. Older names of YAML count as
// exact matches.
func rangeMatch(accepted, offer string) int {
	switch {
	case accepted == offer, offer == TypeYAML && (accepted == "application/x-yaml" || accepted == "text/yaml" ||
		accepted == "text/x-yaml"):
		return 3
	case strings.HasSuffix(accepted, "/*") && strings.HasPrefix(offer, strings.TrimSuffix(accepted, "*")):
		return 2
	case accepted == "*/*":
		return 1
	}
	return 0
}

// The maximum ages of a cached response shared by several clients.
const (
	ObjectMaxAge = 100 * time.Millisecond
	ListMaxAge   = 300 * time.Millisecond
)

// Shared responds with JSON that may be shared by all requests for the same URL for up to maxAge. After a write through
// this server, clients never get an older response.
func Shared[V any](c echo.Context, answers *recent.Cache, maxAge time.Duration,
	read func(context.Context) (V, error)) error {
	body, err := recent.Get(c.Request().Context(), answers, c.Request().URL.RequestURI(), maxAge,
		func(ctx context.Context) ([]byte, error) {
			value, err := read(ctx)
			if err != nil {
				return nil, err
			}
			body, err := json.Marshal(value)
			return append(body, '\n'), err
		})
	if err != nil {
		return err
	}
	return c.JSONBlob(http.StatusOK, body)
}

// LogRequests returns middleware that writes one log line for each completed request; those of the quiet paths, which
// monitoring requests every few seconds, are logged at debug level.
func LogRequests(log *slog.Logger, text string, quiet ...string) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			began := time.Now()
			if err := next(c); err != nil {
				c.Error(err)
			}
			level := slog.LevelInfo
			if slices.Contains(quiet, c.Request().URL.Path) {
				level = slog.LevelDebug
			}
			var request slog.Attr // no attribute without an ID
			if id := c.Response().Header().Get(echo.HeaderXRequestID); id != "" {
				request = slog.String("request", id)
			}
			log.Log(c.Request().Context(), level, text, request, "method", c.Request().Method,
				"path", c.Request().URL.Path, "status", c.Response().Status, "bytes", c.Response().Size, "took",
				time.Since(began).Round(time.Microsecond), "from", c.RealIP())
			return nil
		}
	}
}

// The default and maximum page sizes.
const (
	defaultLimit = 100
	MaxLimit     = 500
)

// pageLimit returns the page size of a request.
func pageLimit(limit *schema.Limit) (int, error) {
	if limit == nil {
		return defaultLimit, nil
	}
	if *limit < 1 || *limit > MaxLimit {
		return 0, problem.BadQuery("limit", problem.LimitRule)
	}
	return *limit, nil
}

// BadCursor returns the error for a cursor that does not come from the previous page.
func BadCursor() error {
	return problem.BadQuery("cursor",
		"is not the nextCursor of a page of this list: leave it out to start from the first page")
}

// List is one page of a list, as returned to the client.
type List[T any] struct {
	Items []T `json:"items"`
	// NextCursor is the cursor of the next page; "" on the last page.
	NextCursor string `json:"nextCursor,omitempty"`
}

// Objects responds with one page of objects: list reads them from the home cluster, show converts each to an
// item.
func Objects[E, T any](c echo.Context, limit *schema.Limit, cursor *schema.Cursor,
	list func(ctx context.Context, limit int, cursor string) ([]E, string, error), show func(*E) (T, error)) error {
	most, err := pageLimit(limit)
	if err != nil {
		return err
	}
	objects, next, err := list(c.Request().Context(), most, ptr.Deref(cursor, ""))
	if ptr.Deref(cursor, "") != "" && failure.Is(err, failure.Refused) {
		return BadCursor()
	}
	if err != nil {
		return err
	}
	shown := List[T]{Items: make([]T, len(objects)), NextCursor: next}
	for i := range objects {
		if shown.Items[i], err = show(&objects[i]); err != nil {
			return err
		}
	}
	return c.JSON(http.StatusOK, shown)
}

// OneOf returns the values of a list filter; each must be in legal.
func OneOf[T ~string](field string, wanted *[]T, legal []T) ([]T, error) {
	if wanted == nil {
		return nil, nil
	}
	for _, value := range *wanted {
		if !slices.Contains(legal, value) {
			return nil, problem.BadQuery(field, fmt.Sprintf("%q is none of %s", value, strictyaml.List(legal)))
		}
	}
	return *wanted, nil
}

// Page is the requested page of a list of records.
type Page struct {
	limit int
	after position
}

// ParsePage reads limit and cursor of a list of records.
func ParsePage(limit *schema.Limit, cursor *schema.Cursor) (page Page, err error) {
	if page.limit, err = pageLimit(limit); err != nil {
		return page, err
	}
	if ptr.Deref(cursor, "") == "" {
		return page, nil
	}
	if page.after, err = parsePosition(*cursor); err != nil {
		return page, BadCursor()
	}
	return page, nil
}

// FromRecords returns one page of the items of records, which are sorted newest first. item reports whether a record is
// wanted; a record that was just withdrawn or pruned (not found) is skipped.
func FromRecords[T any](page Page, records []*v1alpha1.ReleaseRecord,
	item func(*v1alpha1.ReleaseRecord) (one T, wanted bool, err error)) (List[T], error) {
	list := List[T]{Items: []T{}}
	var last position
	for _, record := range records {
		if !page.after.precedes(record) {
			continue
		}
		one, wanted, err := item(record)
		if problem.IsNotFound(err) || err == nil && !wanted {
			continue
		}
		if err != nil {
			return List[T]{}, err
		}
		if len(list.Items) == page.limit {
			list.NextCursor = last.String()
			break
		}
		list.Items, last = append(list.Items, one), positionOf(record)
	}
	return list, nil
}

// position is a place in a list of records, which is sorted by creation time (newest first), then by name (descending).
type position struct {
	created time.Time
	name    string
}

func positionOf(record *v1alpha1.ReleaseRecord) position {
	return position{record.Spec.CreatedAt.Time, record.Name}
}

// precedes reports whether the record comes after this position. The zero position precedes every record.
func (p position) precedes(record *v1alpha1.ReleaseRecord) bool {
	if p.name == "" {
		return true
	}
	if order := record.Spec.CreatedAt.Compare(p.created); order != 0 {
		return order < 0
	}
	return record.Name < p.name
}

func (p position) String() string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(p.created.UnixMicro(), 10) + " " + p.name))
}

func parsePosition(cursor string) (position, error) {
	plain, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return position{}, err
	}
	micros, name, found := strings.Cut(string(plain), " ")
	created, err := strconv.ParseInt(micros, 10, 64)
	if err != nil || !found || name == "" {
		return position{}, fmt.Errorf("malformed cursor")
	}
	return position{time.UnixMicro(created).UTC(), name}, nil
}
