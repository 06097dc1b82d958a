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

// Rollouts that are checked together cost one activity of each queue; each has an answer of its own all the same.
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
		// level is the newest version that is recorded.
		level workflow.Version
		// answers are how the worker answers the others of a request.
		answers func(others []rollout.PreflightRequest) []rollout.PreflightResult
		// asked is how often each queue is.
		asked map[string]int
		// unreachable is what is said of the fifth.
		unreachable string
	}{
		"Together":      {"one activity of each queue, of 16 at most", versionChecksTogether, answerAll, map[string]int{"alice": 2, "bob": 1}, ""},
		"EarlierBuild":  {"a build of before may have to go on with it", workflow.DefaultVersion, answerAll, map[string]int{"alice": 17, "bob": 1}, ""},
		"EarlierWorker": {"a worker of an earlier build answers the first one alone", versionChecksTogether, func([]rollout.PreflightRequest) []rollout.PreflightResult { return nil }, map[string]int{"alice": 17, "bob": 1}, ""},
		"Alone": {"what could not be answered is asked once more", versionChecksTogether, instead(rollout.PreflightResult{Alone: true}),
			map[string]int{"alice": 3, "bob": 1}, ""},
		"Unanswered": {"what cannot be answered is not taken for good", versionChecksTogether, instead(rollout.PreflightResult{Unanswered: "this party's cluster is out of reach"}),
			map[string]int{"alice": 2, "bob": 1}, "this party's cluster is out of reach"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.OnGetVersion(changeLoop, workflow.DefaultVersion, versionChecksTogether).Return(c.level)
			var mu sync.Mutex
			asked := map[string]int{}
			s.RegisterActivityWithOptions(func(ctx context.Context, in rollout.PreflightRequest) (rollout.PreflightResult, error) {
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

// One that has no answer when it is asked alone is not asked for ever.
func TestPreflightThatIsNeverAnswered(t *testing.T) {
	s := newStage(t)
	s.RegisterActivityWithOptions(func(rollout.PreflightRequest) (rollout.PreflightResult, error) {
		return rollout.PreflightResult{Alone: true}, nil
	},
		activity.RegisterOptions{Name: rollout.ActivityPreflight})
	check := RolloutPreflight{Party: "alice", Queue: "slipway.party.alice"}
	s.ExecuteWorkflow(TypePreflight, PreflightInput{Rollouts: []RolloutPreflight{check, check}})
	var outcomes []PreflightOutcome
	require.NoError(t, s.GetWorkflowResult(&outcomes))
	for _, o := range outcomes {
		require.Equal(t, "party alice: its worker has no answer", o.Unreachable)
	}
}

// A party that is away is away for all, and is not waited for once more.
func TestPreflightOfManyRolloutsOfAnAbsentParty(t *testing.T) {
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

// A worker of an earlier build knows of the first alone: what it fails with is not said of the others.
func TestPreflightWhoseFirstFailsOnAnEarlierBuild(t *testing.T) {
	s := newStage(t)
	s.RegisterActivityWithOptions(func(in rollout.PreflightRequest) (rollout.PreflightResult, error) {
		if in.Workload.WorkloadRef.Name == "first" {
			return rollout.PreflightResult{}, temporal.NewNonRetryableApplicationError("no permission", string(failure.Forbidden), nil)
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

// answerOf is a worker's answer to one request, which tells whose it is.
func answerOf(in rollout.PreflightRequest) rollout.PreflightResult {
	return rollout.PreflightResult{Notices: []string{in.Workload.WorkloadRef.Name}}
}

func answerAll(others []rollout.PreflightRequest) (answers []rollout.PreflightResult) {
	for _, other := range others {
		answers = append(answers, answerOf(other))
	}
	return answers
}
