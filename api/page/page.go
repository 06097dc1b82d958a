// Package page cuts lists into pages.
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

// The sizes of a page of a list.
const (
	defaultLimit = 100
	Most         = 500
)

// Limit is how many items a page has.
func Limit(limit *schema.Limit) (int, error) {
	if limit == nil {
		return defaultLimit, nil
	}
	if *limit < 1 || *limit > Most {
		return 0, problem.BadQuery(schema.FieldProblem{Field: "limit", Reason: problem.LimitRule})
	}
	return *limit, nil
}

// BadCursor says what is wrong with a cursor that was not made by the page before.
func BadCursor() error {
	return problem.BadQuery(schema.FieldProblem{Field: "cursor",
		Reason: "is not the nextCursor of a page of this list: leave it out to begin anew"})
}

// List is one page of a list as it is answered.
type List[T any] struct {
	Items []T `json:"items"`
	// NextCursor is "" on the last page.
	NextCursor string `json:"nextCursor,omitempty"`
}

// AnswerObjects answers one page of the objects of a kind: list reads it from the home cluster, show makes an item of each.
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

// OneOf are the values that a list is filtered by, each of which has to be legal.
func OneOf[T ~string](field string, wanted *[]T, legal []T) ([]T, error) {
	if wanted == nil {
		return nil, nil
	}
	for _, value := range *wanted {
		if !slices.Contains(legal, value) {
			return nil, problem.BadQuery(schema.FieldProblem{Field: field, Reason: fmt.Sprintf("%q is none of %s", value, strictyaml.List(legal))})
		}
	}
	return *wanted, nil
}

// Asked is which part of a list of records was asked for.
type Asked struct {
	limit int
	after position
}

// Parse reads which part of a list of records was asked for.
func Parse(limit *schema.Limit, cursor *schema.Cursor) (page Asked, err error) {
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

// OfRecords is one page of the items that belong to records; see of.
func OfRecords[T any](page Asked, records []*v1alpha1.ReleaseRecord,
	item func(*v1alpha1.ReleaseRecord) (one T, wanted bool, err error)) (list List[T], err error) {
	list.Items, list.NextCursor, err = of(page, records, item)
	return list, err
}

// of makes one page of the items that belong to records, which come newest first. item says of a record whether it is wanted; one that was
// withdrawn or pruned just now is not found, and left out. next is "" on the last page.
func of[T any](page Asked, records []*v1alpha1.ReleaseRecord,
	item func(*v1alpha1.ReleaseRecord) (one T, wanted bool, err error)) (items []T, next string, err error) {
	items = []T{}
	var last position
	for _, record := range records {
		if !page.after.precedes(record) {
			continue
		}
		one, wanted, err := item(record)
		if problem.IsGone(err) || err == nil && !wanted {
			continue
		}
		if err != nil {
			return nil, "", err
		}
		if len(items) == page.limit {
			return items, last.String(), nil
		}
		items, last = append(items, one), positionOf(record)
	}
	return items, "", nil
}

// position is a place in a list of records: newest first, then by name.
type position struct {
	created time.Time
	name    string
}

func positionOf(record *v1alpha1.ReleaseRecord) position {
	return position{record.Spec.CreatedAt.Time, record.Name}
}

// precedes says whether the record comes after this place. The zero position is before everything.
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
