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

var errCount = errors.New("it does not end well")

// count is an activity that counts one on, from what the attempt before left or from ten.
func count(ctx context.Context, well bool) error {
	details, stop := heartbeat.Start(ctx, tally{Count: 10})
	defer stop(well)
	details.Note(func(p *tally) { p.Count++ })
	if !well {
		return errCount
	}
	return nil
}

func TestWhatAnAttemptKnowsIsLeftToTheNext(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason string
		left   any
		told   int
	}{
		{"the first attempt begins with what it is given", nil, 11},
		{"the next goes on where that one was", tally{Count: 41}, 42},
		{"what cannot be read counts for nothing", "another form", 11},
	} {
		var suite testsuite.WorkflowTestSuite
		env := suite.NewTestActivityEnvironment()
		env.RegisterActivity(count)
		if c.left != nil {
			env.SetHeartbeatDetails(c.left)
		}
		var told tally
		env.SetOnActivityHeartbeatListener(func(_ *activity.Info, details converter.EncodedValues) {
			if err := details.Get(&told); err != nil {
				t.Error(err)
			}
		})
		_, err := env.ExecuteActivity(count, false)
		require.Error(t, err, c.reason)
		require.Equal(t, c.told, told.Count, "%s: it is told a last time", c.reason)
	}
}

func TestAnAttemptThatEndsWellHasNothingToLeave(t *testing.T) {
	t.Parallel()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivity(count)
	env.SetOnActivityHeartbeatListener(func(*activity.Info, converter.EncodedValues) {
		t.Error("its answer is on the way: another write of Temporal's is for nothing")
	})
	_, err := env.ExecuteActivity(count, true)
	require.NoError(t, err)
}

func TestOutsideOfAnActivityNobodyIsTold(t *testing.T) {
	t.Parallel()
	details, stop := heartbeat.Start(context.Background(), tally{Count: 10})
	details.Note(func(p *tally) { p.Count++ })
	stop(false)
	require.Equal(t, 11, details.Now().Count)
}
