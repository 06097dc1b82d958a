package centre

import (
	"context"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/window"
)

// NextOpening says whether the times of a release allow something to begin, and when they do next.
func (a *Activities) NextOpening(_ context.Context, q window.Question) (window.Answer, error) {
	answer, err := window.NextOpening(q)
	if err != nil {
		return answer, attempt.ApplicationError(failure.New(failure.Refused, "the release windows cannot be reckoned with: %s", err))
	}
	return answer, nil
}
