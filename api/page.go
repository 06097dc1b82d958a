package api

import (
	"slipway.io/slipway/release/failure"
)

// The sizes of a page of a list.
const (
	defaultLimit = 100
	maxLimit     = 500
)

// pageLimit is how many items a page has.
func pageLimit(limit *Limit) (int, error) {
	if limit == nil {
		return defaultLimit, nil
	}
	if *limit < 1 || *limit > maxLimit {
		return 0, badQuery(FieldProblem{Field: "limit", Reason: "must be a whole number from 1 to 500"})
	}
	return *limit, nil
}

func text(value *string) string {
	if value == nil {
		return ""
	}
	return *value
}

// badCursor says what is wrong with a cursor that was not made by the page before.
func badCursor() error {
	return badQuery(FieldProblem{Field: "cursor", Reason: "is not the nextCursor of a page of this list: leave it out to begin anew"})
}

// cursorError blames the cursor, if there is one, when the home cluster refuses to list.
func cursorError(err error, cursor *Cursor) error {
	if text(cursor) != "" && isFailure(err, failure.Refused) {
		return badCursor()
	}
	return err
}
