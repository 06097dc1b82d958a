package heartbeat_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"

	"slipway.io/slipway/activities/heartbeat"
)

type tally struct{ Count int }

var errCount = errors.New("failed on purpose")

// count is an activity that adds one to what the previous attempt left, or to ten.
func count(ctx context.Context, well bool) error {
	details, stop := heartbeat.Start(ctx, tally{Count: 10})
	defer stop(well)
	details.Note(func(p *tally) { p.Count++ })
	if !well {
		return errCount
	}
	return nil
}

func TestProgress_PassesToNextAttempt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason string
		left   any
		sent   int
	}{
		{"the first attempt starts with the given value", nil, 11},
		{"the next attempt continues from there", tally{Count: 41}, 42},
		{"details that cannot be decoded are ignored", "another type", 11},
	} {
		var suite testsuite.WorkflowTestSuite
		env := suite.NewTestActivityEnvironment()
		env.RegisterActivity(count)
		if c.left != nil {
			env.SetHeartbeatDetails(c.left)
		}
		var sent tally
		env.SetOnActivityHeartbeatListener(func(_ *activity.Info, details converter.EncodedValues) {
			if err := details.Get(&sent); err != nil {
				t.Error(err)
			}
		})
		_, err := env.ExecuteActivity(count, false)
		require.Error(t, err, c.reason)
		require.Equal(t, c.sent, sent.Count, "%s: a failed attempt sends its progress a last time", c.reason)
	}
}

func TestSuccessfulAttempt_SendsNoFinalHeartbeat(t *testing.T) {
	t.Parallel()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivity(count)
	env.SetOnActivityHeartbeatListener(func(*activity.Info, converter.EncodedValues) {
		t.Error("a heartbeat right before the result is a useless write in Temporal")
	})
	_, err := env.ExecuteActivity(count, true)
	require.NoError(t, err)
}

func TestOutsideOfActivity_NothingIsSent(t *testing.T) {
	t.Parallel()
	details, stop := heartbeat.Start(context.Background(), tally{Count: 10})
	details.Note(func(p *tally) { p.Count++ })
	stop(false)
	require.Equal(t, 11, details.Progress().Count)
}
