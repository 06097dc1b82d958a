package outcome

import (
	"errors"

	"go.temporal.io/sdk/temporal"

	"slipway.io/slipway/release/failure"
)

// WrapHome is Wrap for the centre's activities on the home cluster: system trouble is tried again for as long as the workflow allows,
// since only the workflow knows whether the release can wait for the home cluster.
func WrapHome(err error) error {
	var f *failure.Error
	if errors.As(err, &f) && f.Kind.System() {
		return temporal.NewApplicationError(cut(f.Message), string(f.Kind), failure.Details{})
	}
	return Wrap(err)
}
