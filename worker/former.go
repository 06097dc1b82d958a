package worker

import (
	"context"
	"fmt"
	"slices"

	"go.temporal.io/api/workflowservice/v1"

	"slipway.io/slipway/release/phrase"
)

// formerReleases selects running releases that were started before version 0.9.0. Their histories have a version marker
// that this build can't replay.
const formerReleases = "ExecutionStatus = 'Running' AND TemporalChangeVersion IN (" +
	"'settles-before-commands-1', 'settles-before-commands-2', 'settles-before-commands-3', " +
	"'settles-before-commands-4', 'settles-before-commands-5', 'settles-before-commands-6', " +
	"'settles-before-commands-7', 'settles-before-commands-8', 'settles-before-commands-9')"

// refuseFormerReleases returns an error while such releases are running: this build would neither continue nor end
// them.
func (f *Fleet) refuseFormerReleases(ctx context.Context) error {
	if !slices.ContainsFunc(f.queues, func(q Queue) bool { return q.Workflows }) {
		return nil
	}
	found, err := f.temporal.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{
		Namespace: f.options.Namespace, Query: formerReleases})
	if err != nil {
		return fmt.Errorf("cannot check for releases of builds before 0.9.0: %w", err)
	}
	if found.GetCount() > 0 {
		return fmt.Errorf("the Temporal namespace %s has %s of a build before 0.9.0, which this build can't "+
			"continue: let the build that started them end them; a local stack is reset by `make clean`",
			f.options.Namespace, phrase.Count(int(found.GetCount()), "running workflow"))
	}
	return nil
}
