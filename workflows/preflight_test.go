package workflows

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
)

// Rollouts that are checked together cost one activity per queue, but each gets its own answer.
func TestPreflightOfManyRollouts(t *testing.T) {
	instead := func(of rollout.PreflightResult) func([]rollout.PreflightRequest) []rollout.PreflightResult {
		return func(others []rollout.PreflightRequest) []rollout.PreflightResult {
			answers := answerAll(others)
			if len(answers) > 3 {
				answers[3] = of
			}
			return answers
		}
	}
	for name, c := range map[string]struct {
		reason string
		// level is the newest recorded version.
		level workflow.Version
		// answers is how the worker answers the other requests.
		answers func(others []rollout.PreflightRequest) []rollout.PreflightResult
		// asked is how often each queue was asked.
		asked map[string]int
		// unreachable is the error of the fifth rollout.
		unreachable string
	}{
		"Together": {"one activity per queue, with at most 16 rollouts", versionChecksTogether, answerAll,
			map[string]int{"alice": 2, "bob": 1}, ""},
		"EarlierBuild": {"an earlier build may have to continue it", workflow.DefaultVersion, answerAll,
			map[string]int{"alice": 17, "bob": 1}, ""},
		"EarlierWorker": {"a worker of an earlier build answers the first rollout only", versionChecksTogether,
			func([]rollout.PreflightRequest) []rollout.PreflightResult {
				return nil
			}, map[string]int{"alice": 17, "bob": 1}, ""},
		"Alone": {"an unanswered rollout is checked once more, alone", versionChecksTogether,
			instead(rollout.PreflightResult{AskAlone: true}),
			map[string]int{"alice": 3, "bob": 1}, ""},
		"Unanswered": {"a check without an answer is not taken as success", versionChecksTogether,
			instead(rollout.PreflightResult{Unchecked: "this party's cluster is unreachable"}),
			map[string]int{"alice": 2, "bob": 1}, "this party's cluster is unreachable"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.OnGetVersion(changeLoop, workflow.DefaultVersion, versionChecksTogether).Return(c.level)
			var mu sync.Mutex
			asked := map[string]int{}
			s.RegisterActivityWithOptions(func(ctx context.Context,
				in rollout.PreflightRequest) (rollout.PreflightResult, error) {
				mu.Lock()
				defer mu.Unlock()
				asked[activity.GetInfo(ctx).TaskQueue]++
				result := answerOf(in)
				result.Others = c.answers(in.Others)
				return result, nil
			}, activity.RegisterOptions{Name: rollout.ActivityPreflight})
			var in PreflightInput
			for i := range 18 {
				check := RolloutPreflight{Party: "alice", Queue: "alice"}
				if i == 5 {
					check = RolloutPreflight{Party: "bob", Queue: "bob"}
				}
				check.Request.Workload.WorkloadRef.Name = fmt.Sprintf("web-%d", i)
				in.Rollouts = append(in.Rollouts, check)
			}
			s.ExecuteWorkflow(TypePreflight, in)
			require.NoError(t, s.GetWorkflowError())
			var outcomes []PreflightOutcome
			require.NoError(t, s.GetWorkflowResult(&outcomes))
			require.Len(t, outcomes, len(in.Rollouts))
			for i, o := range outcomes {
				require.Equal(t, in.Rollouts[i].Party, o.Party)
				if i == 4 && c.unreachable != "" {
					require.Equal(t, c.unreachable, o.Unreachable, c.reason)
					require.Nil(t, o.Rollout)
					continue
				}
				require.Empty(t, o.Unreachable, c.reason)
				require.Equal(t, answerOf(in.Rollouts[i].Request), *o.Rollout, c.reason)
			}
			require.Equal(t, c.asked, asked, c.reason)
		})
	}
}

// A rollout without an answer when checked alone is not checked again.
func TestPreflight_GivesUp_WhenWorkerReturnsNoResult(t *testing.T) {
	s := newStage(t)
	s.RegisterActivityWithOptions(func(rollout.PreflightRequest) (rollout.PreflightResult, error) {
		return rollout.PreflightResult{AskAlone: true}, nil
	},
		activity.RegisterOptions{Name: rollout.ActivityPreflight})
	check := RolloutPreflight{Party: "alice", Queue: "slipway.party.alice"}
	s.ExecuteWorkflow(TypePreflight, PreflightInput{Rollouts: []RolloutPreflight{check, check}})
	var outcomes []PreflightOutcome
	require.NoError(t, s.GetWorkflowResult(&outcomes))
	for _, o := range outcomes {
		require.Equal(t, "party alice: its worker returned no result", o.Unreachable)
	}
}

// An unreachable party is unreachable for all its rollouts, and is not asked again.
func TestPreflightOfManyRollouts_AsksOnce_WhenPartyUnreachable(t *testing.T) {
	s := newStage(t)
	var asked atomic.Int32
	s.RegisterActivityWithOptions(func(rollout.PreflightRequest) (rollout.PreflightResult, error) {
		asked.Add(1)
		return rollout.PreflightResult{}, temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START, nil)
	}, activity.RegisterOptions{Name: rollout.ActivityPreflight})
	check := RolloutPreflight{Party: "alice", Queue: "slipway.party.alice"}
	s.ExecuteWorkflow(TypePreflight, PreflightInput{Rollouts: []RolloutPreflight{check, check}})
	var outcomes []PreflightOutcome
	require.NoError(t, s.GetWorkflowResult(&outcomes))
	for _, o := range outcomes {
		require.Contains(t, o.Unreachable, "party alice")
		require.Nil(t, o.Rollout)
	}
	require.LessOrEqual(t, asked.Load(), int32(3), "the attempts of one activity")
}

// A worker of an earlier build checks the first rollout only: its error is not the error of the others.
func TestPreflight_ChecksOthersAlone_WhenFirstFailsOnEarlierBuild(t *testing.T) {
	s := newStage(t)
	s.RegisterActivityWithOptions(func(in rollout.PreflightRequest) (rollout.PreflightResult, error) {
		if in.Workload.WorkloadRef.Name == "first" {
			return rollout.PreflightResult{}, temporal.NewNonRetryableApplicationError("no permission",
				string(failure.Forbidden), nil)
		}
		return answerOf(in), nil
	}, activity.RegisterOptions{Name: rollout.ActivityPreflight})
	first, second := RolloutPreflight{Party: "alice", Queue: "alice"}, RolloutPreflight{Party: "alice", Queue: "alice"}
	first.Request.Workload.WorkloadRef.Name, second.Request.Workload.WorkloadRef.Name = "first", "second"
	s.ExecuteWorkflow(TypePreflight, PreflightInput{Rollouts: []RolloutPreflight{first, second}})
	var outcomes []PreflightOutcome
	require.NoError(t, s.GetWorkflowResult(&outcomes))
	require.Equal(t, "no permission", outcomes[0].Unreachable)
	require.Empty(t, outcomes[1].Unreachable)
	require.Equal(t, answerOf(second.Request), *outcomes[1].Rollout)
}

// answerOf is a worker's answer to one request; it contains the workload's name.
func answerOf(in rollout.PreflightRequest) rollout.PreflightResult {
	return rollout.PreflightResult{Notices: []string{in.Workload.WorkloadRef.Name}}
}

func answerAll(others []rollout.PreflightRequest) (answers []rollout.PreflightResult) {
	for _, other := range others {
		answers = append(answers, answerOf(other))
	}
	return answers
}
