package worker

import (
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
)

// countingClient counts workflows of former builds.
type countingClient struct {
	client.Client
	running int64
	asked   int
}

func (c *countingClient) CountWorkflow(_ context.Context, _ *workflowservice.CountWorkflowExecutionsRequest) (
	*workflowservice.CountWorkflowExecutionsResponse, error) {
	c.asked++
	return &workflowservice.CountWorkflowExecutionsResponse{Count: c.running}, nil
}

func TestFleet_RefusesToStart_WhileReleasesOfFormerBuildsRun(t *testing.T) {
	t.Parallel()
	fleetOf := func(c *countingClient, workflows bool) *Fleet {
		return newFleet(c, []Queue{{Name: "slipway", Workflows: workflows}},
			Options{Namespace: "shop", Log: slog.New(slog.DiscardHandler)})
	}
	old := &countingClient{running: 2}
	err := fleetOf(old, true).refuseFormerReleases(t.Context())
	require.ErrorContains(t, err, "the Temporal namespace shop has 2 running workflows of a build before 0.9.0")
	require.ErrorContains(t, err, "make clean")
	require.NoError(t, fleetOf(old, false).refuseFormerReleases(t.Context()), "a party's worker replays no history")
	require.Equal(t, 1, old.asked)
	require.NoError(t, fleetOf(&countingClient{}, true).refuseFormerReleases(t.Context()))
}
