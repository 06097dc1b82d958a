package serving

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/testsuite"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/workloadops"
)

// Parties that execute a step together end together: a result is not delayed by late parties, and a blocked party
// continues in an activity of its own.
func TestGroup_EndsPartiesTogether(t *testing.T) {
	start := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		reason string
		play   func(j *group, pass func(time.Duration))
		// until is when the others end, counted from the start; negative means at once.
		until time.Duration
	}{
		"Waiting": {"like a single party", func(*group, func(time.Duration)) {}, 30 * time.Second},
		"Moving": {"waiting for a request slot extends the time", func(j *group, pass func(time.Duration)) {
			pass(15 * time.Second)
			j.members[1].Progressed()
		}, 45 * time.Second},
		"TooLong": {"but not beyond the maximum of an attempt", func(j *group, pass func(time.Duration)) {
			pass(29 * time.Second)
			j.members[1].Progressed()
		}, groupMaxWait},
		"Done": {"the others may continue for a while after the first has ended",
			func(j *group, pass func(time.Duration)) {
				pass(5 * time.Second)
				j.onEnd(nil)
				pass(2 * time.Second)
				j.onEnd(nil)
				j.members[1].Progressed()
			}, 5*time.Second + lateLimit},
		"Failed": {"a failure is reported at once", func(j *group, _ func(time.Duration)) {
			j.onEnd(failure.New(failure.Refused, "no"))
			j.members[1].Progressed()
		}, -1},
		"Unreachable": {"an unreachable cluster needs an activity of its own", func(j *group, _ func(time.Duration)) {
			j.members[0].Note(func(p *workloadops.Progress) { p.RecordFailure(start) })
		}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			now := start
			options := Options{Now: func() time.Time { return now }}.withDefaults()
			j := newGroup(t.Context(), options, serving.PartyRequest{Domain: "alice",
				Others: []serving.PartyRequest{{Domain: "bob"}}})
			c.play(j, func(d time.Duration) { now = now.Add(d) })
			if c.until < 0 {
				require.True(t, j.members[1].SlotDeadline().Before(now), c.reason)
				return
			}
			require.Equal(t, start.Add(c.until), j.members[1].SlotDeadline(), c.reason)
		})
	}
}

// Each party has its own outcome: a final failure is reported, after any other the party is executed separately.
func TestRunStep_ReportsOutcomePerParty(t *testing.T) {
	a := &Activities{options: Options{Logger: slog.New(slog.DiscardHandler)}.withDefaults()}
	ends := map[string]error{
		"refused":   attempt.ApplicationError(failure.New(failure.Refused, "no such image")),
		"late":      attempt.ApplicationError(failure.New(failure.NotReady, "1 of 2")),
		"forbidden": attempt.ApplicationError(failure.New(failure.Forbidden, "may not")),
		"broken":    errors.New("connection refused"),
	}
	req := serving.PartyRequest{Domain: "done"}
	for _, domain := range []string{"refused", "late", "forbidden", "broken", "panics"} {
		req.Others = append(req.Others, serving.PartyRequest{Domain: domain})
	}
	result, err := a.runStep(t.Context(), req, func(_ context.Context,
		r serving.PartyRequest) (*serving.DeploymentSnapshot, error) {
		require.Empty(t, r.Others)
		if r.Domain == "panics" {
			panic("a bug")
		}
		return &serving.DeploymentSnapshot{Version: r.Domain}, ends[r.Domain]
	})
	require.NoError(t, err)
	require.Equal(t, []serving.PartyOutcome{{Done: true, Snapshot: &serving.DeploymentSnapshot{Version: "done"}},
		{Kind: failure.Refused, Message: "no such image"}, {},
		{Kind: failure.Forbidden, Message: "may not"}, {}, {}}, result.Parties)
}

// The heartbeat reports what each party waits for.
func TestGroup_HeartbeatNamesEachParty(t *testing.T) {
	j := newGroup(t.Context(), Options{}.withDefaults(),
		serving.PartyRequest{Domain: "alice", Others: []serving.PartyRequest{{Domain: "bob"}, {Domain: "carol"}}})
	for i, text := range []string{"0 of 1 pods are available", "", "1 of 2 pods are available"} {
		j.members[i].Note(func(p *workloadops.Progress) { p.Message = text })
	}
	require.Equal(t, "alice: 0 of 1 pods are available; carol: 1 of 2 pods are available", j.details.Progress().Message)
}

// answering is Temporal's reply to a heartbeat.
type answering struct {
	err   error
	asked int
}

func (a *answering) RecordActivityHeartbeat(context.Context, []byte, ...any) error {
	a.asked++
	return a.err
}

// An attempt whose check took so long that another attempt may exist asks Temporal before it writes.
func TestStillCurrent_AsksTemporal_WhenCheckTookLong(t *testing.T) {
	for name, c := range map[string]struct {
		reason string
		since  time.Duration
		answer error
		asks   int
		wanted bool
	}{
		"AtOnce":     {"no newer attempt can exist so soon", 0, serviceerror.NewNotFound("gone"), 0, true},
		"Late":       {"Temporal still accepts its heartbeat", frozenAfter, nil, 1, true},
		"Superseded": {"another attempt has continued", frozenAfter, serviceerror.NewNotFound("gone"), 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			temporal := &answering{err: c.answer}
			env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
			asks := func(ctx context.Context) (bool, error) {
				j := newGroup(ctx, Options{}.withDefaults(), serving.PartyRequest{Domain: "alice"})
				j.began, j.recorder = j.began.Add(-c.since), temporal
				return j.stillCurrent(ctx), nil
			}
			env.RegisterActivity(asks)
			value, err := env.ExecuteActivity(asks)
			require.NoError(t, err)
			var wanted bool
			require.NoError(t, value.Get(&wanted))
			require.Equal(t, c.wanted, wanted, c.reason)
			require.Equal(t, c.asks, temporal.asked, c.reason)
		})
	}
}
