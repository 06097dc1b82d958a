package problem_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"

	"slipway.io/slipway/api/problem"
)

// A Temporal or workflow outage is not an internal error of the engine: the client should repeat the request.
func TestOf_MapsTemporalErrors(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		err    error
		status int
		detail string
	}{
		"task fails": {serviceerror.NewWorkflowNotReady("Workflow Task in failed state"),
			http.StatusServiceUnavailable, "no worker of the engine can currently process"},
		"credentials": {serviceerror.NewPermissionDenied("expired", ""), http.StatusServiceUnavailable,
			"rejects the engine's credentials"},
		"away": {serviceerror.NewUnavailable("connection refused"), http.StatusServiceUnavailable,
			"does not answer"},
		"anything else": {errors.New("broken"), http.StatusInternalServerError, "look up the request's ID"},
	}
	for name, tc := range cases {
		p := problem.Of(fmt.Errorf("approve: %w", tc.err))
		require.Equal(t, tc.status, p.Status, name)
		require.Contains(t, p.Detail, tc.detail, name)
	}
}
