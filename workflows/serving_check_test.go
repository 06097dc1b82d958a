package workflows

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/serving"
)

// A starting worker checks everything that is expected, page by page. The missing objects of a page are written
// together, and what could not be written is written again.
func TestServingCheck(t *testing.T) {
	t.Parallel()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.RegisterWorkflowWithOptions(ServingCheck, workflow.RegisterOptions{Name: TypeServingCheck})
	pages := map[string]serving.ExpectedPage{
		"": {Expected: []serving.Expected{{ID: "s1", Domain: "alice", Deployment: "s1"},
			{ID: "s1", Domain: "bob", Deployment: "s1"}, {ID: "s2", Domain: "bob", Deployment: "s2"}}, Next: "2"},
		"2": {Next: "3"},
		"3": {Expected: []serving.Expected{{ID: "s3", Domain: "bob", Deployment: "s3"},
			{ID: "s4", Domain: "bob", Deployment: "s4"}}},
	}
	env.RegisterActivityWithOptions(func(_ context.Context, in serving.ExpectedRequest) (serving.ExpectedPage, error) {
		require.Equal(t, "q", in.Queue)
		return pages[in.Cursor], nil
	}, activity.RegisterOptions{Name: serving.ActivityExpected})
	env.RegisterActivityWithOptions(func(_ context.Context, in serving.CheckRequest) (result serving.CheckResult,
		err error) {
		for _, one := range in.Expected {
			if one.ID != "s3" {
				result.Missing = append(result.Missing, one.Deleted())
			}
		}
		return result, nil
	}, activity.RegisterOptions{Name: serving.ActivityCheck})
	noted := map[string][]string{}
	writes := 0
	env.RegisterActivityWithOptions(func(_ context.Context,
		in serving.ObserveManyRequest) (result serving.ObserveManyResult, _ error) {
		writes++
		for _, s := range in.Servings {
			if s.ID == "s2" && writes == 1 {
				result.Unwritten = []serving.Unwritten{{ID: "s2", Message: "not yet"}}
				continue
			}
			for _, o := range s.Observations {
				noted[s.ID] = append(noted[s.ID], o.Domain)
			}
		}
		return result, nil
	}, activity.RegisterOptions{Name: serving.ActivityObserveMany})
	env.ExecuteWorkflow(TypeServingCheck, serving.ExpectedRequest{Queue: "q"})
	require.NoError(t, env.GetWorkflowError())
	require.Equal(t, map[string][]string{"s1": {"alice", "bob"}, "s2": {"bob"}, "s4": {"bob"}}, noted, "s3 is complete")
	require.Equal(t, 3, writes)
}
