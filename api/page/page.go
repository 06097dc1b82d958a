// Package page splits lists into pages.
package page

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"slipway.io/slipway/api/input"
	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/strictyaml"
	"slipway.io/slipway/release/v1alpha1"
)

// The default and maximum page sizes.
const (
	defaultLimit = 100
	MaxLimit     = 500
)

// Limit returns the page size of a request.
func Limit(limit *schema.Limit) (int, error) {
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

// AnswerObjects responds with one page of objects: list reads them from the home cluster, show converts each to an
// item.
func AnswerObjects[E, T any](c echo.Context, limit *schema.Limit, cursor *schema.Cursor,
	list func(ctx context.Context, limit int, cursor string) ([]E, string, error), show func(*E) (T, error)) error {
	most, err := Limit(limit)
	if err != nil {
		return err
	}
	objects, next, err := list(c.Request().Context(), most, input.Text(cursor))
	if input.Text(cursor) != "" && failure.Is(err, failure.Refused) {
		return BadCursor()
	}
	if err != nil {
		return err
	}
	answer := List[T]{Items: make([]T, len(objects)), NextCursor: next}
	for i := range objects {
		if answer.Items[i], err = show(&objects[i]); err != nil {
			return err
		}
	}
	return c.JSON(http.StatusOK, answer)
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

// Request is the requested page of a list of records.
type Request struct {
	limit int
	after position
}

// Parse reads limit and cursor of a list of records.
func Parse(limit *schema.Limit, cursor *schema.Cursor) (page Request, err error) {
	if page.limit, err = Limit(limit); err != nil {
		return page, err
	}
	if input.Text(cursor) == "" {
		return page, nil
	}
	if page.after, err = parsePosition(*cursor); err != nil {
		return page, BadCursor()
	}
	return page, nil
}

// FromRecords returns one page of the items of records, which are sorted newest first. item reports whether a record is
// wanted; a record that was just withdrawn or pruned (not found) is skipped.
func FromRecords[T any](page Request, records []*v1alpha1.ReleaseRecord,
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
