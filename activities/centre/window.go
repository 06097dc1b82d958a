package centre

import (
	"context"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/window"
)

// NextOpening reports whether the release windows allow a release to begin now, and otherwise when they do next.
func (a *Activities) NextOpening(_ context.Context, q window.Question) (window.Answer, error) {
	answer, err := window.NextOpening(q)
	if err != nil {
		return answer, attempt.ApplicationError(failure.New(failure.Refused,
			"the release windows cannot be evaluated: %s", err))
	}
	return answer, nil
}
