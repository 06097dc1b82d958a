package centre

import (
	"context"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

// TrustInputs makes the activities take every input of an operation as the engine's: the test is about what follows.
func (a *Activities) TrustInputs() *Activities {
	a.foreign = func(context.Context, *kuscia.KusciaDeployment, serving.NoteRequest) (string, error) { return "", nil }
	return a
}
