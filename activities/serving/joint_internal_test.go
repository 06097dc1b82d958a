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

// Parties that take a step together end together: an answer is not held back by whoever is late, and trouble is for each alone.
func TestWhenPartiesEndTogether(t *testing.T) {
	start := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		reason string
		play   func(j *joint, pass func(time.Duration))
		// until is when the others end, from the start; negative: at once.
		until time.Duration
	}{
		"Waiting": {"as one alone", func(*joint, func(time.Duration)) {}, 30 * time.Second},
		"Moving": {"a wait for a turn makes it longer", func(j *joint, pass func(time.Duration)) {
			pass(15 * time.Second)
			j.members[1].Moved()
		}, 45 * time.Second},
		"TooLong": {"but not longer than an attempt may take", func(j *joint, pass func(time.Duration)) {
			pass(29 * time.Second)
			j.members[1].Moved()
		}, jointLongest},
		"Done": {"the first that is done waits a while for the others", func(j *joint, pass func(time.Duration)) {
			pass(5 * time.Second)
			j.ended(nil)
			pass(2 * time.Second)
			j.ended(nil)
			j.members[1].Moved()
		}, 5*time.Second + lateBy},
		"Failed": {"a failure is told at once", func(j *joint, _ func(time.Duration)) {
			j.ended(failure.New(failure.Refused, "no"))
			j.members[1].Moved()
		}, -1},
		"Unreachable": {"how long a cluster is away is counted by an activity of its own", func(j *joint, _ func(time.Duration)) {
			j.members[0].Note(func(p *workloadops.Progress) { p.Failed(start) })
		}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			now := start
			options := Options{Now: func() time.Time { return now }}.withDefaults()
			j := newJoint(t.Context(), options, serving.PartyRequest{Domain: "alice", Others: []serving.PartyRequest{{Domain: "bob"}}})
			c.play(j, func(d time.Duration) { now = now.Add(d) })
			if c.until < 0 {
				require.True(t, j.members[1].Until().Before(now), c.reason)
				return
			}
			require.Equal(t, start.Add(c.until), j.members[1].Until(), c.reason)
		})
	}
}

// Each party's outcome is its own: a final failure is told, and of all else the party is asked alone.
func TestWhatPartiesEndWith(t *testing.T) {
	a := &Activities{options: Options{Logger: slog.New(slog.DiscardHandler)}.withDefaults()}
	ends := map[string]error{
		"refused": attempt.ApplicationError(failure.New(failure.Refused, "no such image")), "late": attempt.ApplicationError(failure.New(failure.NotReady, "1 of 2")),
		"forbidden": attempt.ApplicationError(failure.New(failure.Forbidden, "may not")), "broken": errors.New("connection refused"),
	}
	req := serving.PartyRequest{Domain: "done"}
	for _, domain := range []string{"refused", "late", "forbidden", "broken", "panics"} {
		req.Others = append(req.Others, serving.PartyRequest{Domain: domain})
	}
	result, err := a.step(t.Context(), req, func(_ context.Context, r serving.PartyRequest) (*serving.Seen, error) {
		require.Empty(t, r.Others)
		if r.Domain == "panics" {
			panic("a mistake of ours")
		}
		return &serving.Seen{Version: r.Domain}, ends[r.Domain]
	})
	require.NoError(t, err)
	require.Equal(t, []serving.PartyOutcome{{Done: true, Seen: &serving.Seen{Version: "done"}}, {Kind: failure.Refused, Message: "no such image"}, {},
		{Kind: failure.Forbidden, Message: "may not"}, {}, {}}, result.Parties)
}

// What each waits for is what the heartbeat says.
func TestTheHeartbeatOfPartiesTogether(t *testing.T) {
	j := newJoint(t.Context(), Options{}.withDefaults(), serving.PartyRequest{Domain: "alice", Others: []serving.PartyRequest{{Domain: "bob"}, {Domain: "carol"}}})
	for i, text := range []string{"0 of 1 pods are available", "", "1 of 2 pods are available"} {
		j.members[i].Note(func(p *workloadops.Progress) { p.Message = text })
	}
	require.Equal(t, "alice: 0 of 1 pods are available; carol: 1 of 2 pods are available", j.details.Now().Message)
}

// answering is what Temporal answers to a heartbeat.
type answering struct {
	err   error
	asked int
}

func (a *answering) RecordActivityHeartbeat(context.Context, []byte, ...any) error {
	a.asked++
	return a.err
}

// An attempt that asked the parties for so long that another one may have gone on asks whether it is wanted still, before it writes.
func TestWhoeverAskedForLongAsksWhetherItIsWanted(t *testing.T) {
	for name, c := range map[string]struct {
		reason string
		since  time.Duration
		answer error
		asks   int
		wanted bool
	}{
		"AtOnce":     {"nobody can have taken its place so soon", 0, serviceerror.NewNotFound("gone"), 0, true},
		"Late":       {"Temporal still waits for it", frozenFor, nil, 1, true},
		"Superseded": {"another attempt has gone on", frozenFor, serviceerror.NewNotFound("gone"), 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			temporal := &answering{err: c.answer}
			env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
			asks := func(ctx context.Context) (bool, error) {
				j := newJoint(ctx, Options{}.withDefaults(), serving.PartyRequest{Domain: "alice"})
				j.began, j.recorder = j.began.Add(-c.since), temporal
				return j.isWanted(ctx), nil
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
