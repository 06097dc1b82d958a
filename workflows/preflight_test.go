package workflows

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"slipway.io/slipway/release/rollout"
)

// Rollouts that are checked together cost one activity per queue, but each gets its own answer.
func TestPreflightOfManyRollouts(t *testing.T) {
	const unreachable = "this party's cluster is unreachable"
	for name, c := range map[string]struct {
		reason string
		// unchecked is the workload that the worker cannot check.
		unchecked string
	}{
		"Together":  {"one activity per queue, with at most 16 rollouts", ""},
		"Unchecked": {"a check without an answer is not taken as success, and does not affect the others", "web-4"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			var mu sync.Mutex
			asked := map[string]int{}
			s.RegisterActivityWithOptions(func(ctx context.Context,
				in rollout.PreflightRequests) (results []rollout.PreflightResult, err error) {
				mu.Lock()
				defer mu.Unlock()
				asked[activity.GetInfo(ctx).TaskQueue]++
				for _, req := range in.Rollouts {
					result := answerOf(req)
					if req.Workload.WorkloadRef.Name == c.unchecked {
						result = rollout.PreflightResult{Unchecked: unreachable}
					}
					results = append(results, result)
				}
				return results, nil
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
				want := PreflightOutcome{Party: in.Rollouts[i].Party}
				if in.Rollouts[i].Request.Workload.WorkloadRef.Name == c.unchecked {
					want.Unreachable = unreachable
				} else {
					answer := answerOf(in.Rollouts[i].Request)
					want.Rollout = &answer
				}
				require.Equal(t, want, o, c.reason)
			}
			require.Equal(t, map[string]int{"alice": 2, "bob": 1}, asked, c.reason)
		})
	}
}

// Unreachable parties are unreachable for all their rollouts, and are not asked again.
func TestPreflightOfManyRollouts_AsksOnce_WhenPartyUnreachable(t *testing.T) {
	s := newStage(t)
	var asked atomic.Int32
	s.RegisterActivityWithOptions(func(rollout.PreflightRequests) ([]rollout.PreflightResult, error) {
		asked.Add(1)
		return nil, temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START, nil)
	}, activity.RegisterOptions{Name: rollout.ActivityPreflight})
	check, other := RolloutPreflight{Party: "alice", Queue: "shared"}, RolloutPreflight{Party: "bob", Queue: "shared"}
	s.ExecuteWorkflow(TypePreflight, PreflightInput{Rollouts: []RolloutPreflight{check, check, other}})
	var outcomes []PreflightOutcome
	require.NoError(t, s.GetWorkflowResult(&outcomes))
	require.Len(t, outcomes, 3)
	for i, party := range []string{"alice", "alice", "bob"} {
		o := outcomes[i]
		require.Contains(t, o.Unreachable, "party "+party, "each of the parties that share a queue is named")
		require.Nil(t, o.Rollout)
	}
	require.LessOrEqual(t, asked.Load(), int32(3), "the attempts of one activity")
}

// answerOf is a worker's answer to one request; it contains the workload's name.
func answerOf(in rollout.PreflightRequest) rollout.PreflightResult {
	return rollout.PreflightResult{Notices: []string{in.Workload.WorkloadRef.Name}}
}

// The result of a workflow has a maximum size: every rollout keeps its first reason.
func TestPreflight_ShortensReasons_WhenResultTooLarge(t *testing.T) {
	reasons := make([]rollout.Refusal, rollout.MaxReasons)
	for i := range reasons {
		reasons[i].Reason = fmt.Sprintf("%d %s", i, strings.Repeat("x", rollout.MaxReason-10))
	}
	s := newStage(t)
	s.RegisterActivityWithOptions(func(in rollout.PreflightRequests) ([]rollout.PreflightResult, error) {
		results := make([]rollout.PreflightResult, len(in.Rollouts))
		for i := range results {
			results[i] = rollout.PreflightResult{Refusals: reasons, Replicas: 3}
		}
		return results, nil
	}, activity.RegisterOptions{Name: rollout.ActivityPreflight})
	in := PreflightInput{Rollouts: make([]RolloutPreflight, 1000)}
	for i := range in.Rollouts {
		in.Rollouts[i] = RolloutPreflight{Party: "alice", Queue: "alice"}
	}
	s.ExecuteWorkflow(TypePreflight, in)
	require.NoError(t, s.GetWorkflowError())
	var outcomes []PreflightOutcome
	require.NoError(t, s.GetWorkflowResult(&outcomes))
	text, err := json.Marshal(outcomes)
	require.NoError(t, err)
	require.Less(t, len(text), 2<<20)
	require.Len(t, outcomes, 1000)
	for _, outcome := range outcomes {
		require.Equal(t, []rollout.Refusal{reasons[0], {Reason: "and 19 more reasons, not listed here"}},
			outcome.Rollout.Refusals)
		require.EqualValues(t, 3, outcome.Rollout.Replicas, "the other fields stay")
	}
}
