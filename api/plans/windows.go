package plans

import (
	"time"

	"slipway.io/slipway/api/schema"
	"slipway.io/slipway/release/window"
)

// neverOpens refuses times that leave no moment from now on to begin in: the task would wait for ever.
func neverOpens(times []window.Times) []schema.FieldProblem {
	answer, err := window.NextOpening(window.Question{Times: times, At: time.Now()})
	switch {
	case err != nil:
		return []schema.FieldProblem{{Field: "windows", Reason: err.Error()}}
	case answer.Never():
		return []schema.FieldProblem{{Field: "windows", Reason: "never open again: " + answer.Reason + "; change them, or leave them out"}}
	}
	return nil
}
