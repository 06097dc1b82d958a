package outcome

import (
	"errors"

	"go.temporal.io/sdk/temporal"

	"slipway.io/slipway/release/failure"
)

// WrapPatiently is Wrap for activities that have no budget of their own: system trouble is tried again for as long as the workflow allows,
// since only the workflow knows how long the release can wait.
func WrapPatiently(err error) error {
	var f *failure.Error
	if errors.As(err, &f) && f.Kind.System() {
		return temporal.NewApplicationError(Message(f), string(f.Kind), failure.Details{})
	}
	return Wrap(err)
}
