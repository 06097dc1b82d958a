package serving

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/release/workload"
)

// groupOf returns the request for parties.
func groupOf(domains ...string) (req serving.GroupRequest) {
	for _, domain := range domains {
		req.Parties = append(req.Parties, serving.PartyRequest{Domain: domain})
	}
	return req
}

// Parties that execute a step together end together: a result is not delayed by late parties.
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
		"Unreachable": {"a later read may succeed", func(j *group, _ func(time.Duration)) {
			j.members[0].Note(func(p *workload.Progress) { p.RecordFailure(start) })
		}, 30 * time.Second},
		"UnreachableOnce": {"a step that is not retried leaves the wait for the cluster to another one",
			func(j *group, _ func(time.Duration)) {
				j.once = true
				j.members[0].Note(func(p *workload.Progress) { p.RecordFailure(start) })
			}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			now := start
			options := Options{Now: func() time.Time { return now }}.withDefaults()
			j := newGroup(t.Context(), options, groupOf("alice", "bob"))
			c.play(j, func(d time.Duration) { now = now.Add(d) })
			if c.until < 0 {
				require.True(t, j.members[1].SlotDeadline().Before(now), c.reason)
				return
			}
			require.Equal(t, start.Add(c.until), j.members[1].SlotDeadline(), c.reason)
		})
	}
}

// ends is a step that ends with the error of each party.
func ends(errs map[string]error) stepFunc {
	return func(_ context.Context, m *member) (*serving.DeploymentSnapshot, error) {
		if m.req.Domain == "panics" {
			panic("a bug")
		}
		m.Note(func(p *workload.Progress) { p.ElapsedSeconds += 7 })
		return &serving.DeploymentSnapshot{Version: m.req.Domain}, errs[m.req.Domain]
	}
}

// Each party has its own outcome: a final failure is reported, after any other the party is unfinished.
func TestRunStep_ReportsOutcomePerParty(t *testing.T) {
	a := &Activities{options: Options{Logger: slog.New(slog.DiscardHandler)}.withDefaults()}
	result, err := a.runStep(t.Context(), groupOf("done", "refused", "late", "forbidden", "broken", "panics"),
		ends(map[string]error{
			"refused":   attempt.ApplicationError(failure.New(failure.Refused, "no such image")),
			"late":      attempt.ApplicationError(failure.New(failure.NotReady, "1 of 2")),
			"forbidden": attempt.ApplicationError(failure.New(failure.Forbidden, "may not")),
			"broken":    errors.New("connection refused"),
		}))
	require.NoError(t, err)
	require.Equal(t, []serving.PartyOutcome{{Done: true, Snapshot: &serving.DeploymentSnapshot{Version: "done"}},
		{Kind: failure.Refused, Message: "no such image"}, {Unfinished: true, SpentSeconds: 7},
		{Kind: failure.Forbidden, Message: "may not"}, {Unfinished: true, SpentSeconds: 7}, {Unfinished: true}},
		result.Parties)
}

// As long as no party has ended, Temporal retries the activity, which costs no event; what each party has used of its
// deadline is kept.
func TestRunStep_IsRetried_WhileNoPartyHasEnded(t *testing.T) {
	a := &Activities{options: Options{}.withDefaults()}
	for name, domains := range map[string][]string{"One": {"late"}, "Several": {"late", "later"}} {
		t.Run(name, func(t *testing.T) {
			env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
			errs, req := map[string]error{"later": errors.New("connection refused"),
				"late": attempt.ApplicationError(failure.New(failure.NotReady, "1 of 2"))}, groupOf(domains...)
			step := func(ctx context.Context) (*serving.GroupResult, error) { return a.runStep(ctx, req, ends(errs)) }
			env.RegisterActivity(step)
			var kept []partyProgress
			env.SetOnActivityHeartbeatListener(func(_ *activity.Info, details converter.EncodedValues) {
				require.NoError(t, details.Get(&kept))
			})
			_, err := env.ExecuteActivity(step)
			var app *temporal.ApplicationError
			require.ErrorAs(t, err, &app)
			require.Equal(t, string(failure.NotReady), app.Type(), "the first party decides on the pause")
			require.Len(t, kept, len(domains))
			require.Equal(t, 7*time.Second, kept[0].Elapsed())

			env.SetHeartbeatDetails(kept)
			errs["late"] = attempt.ApplicationError(failure.New(failure.Refused, "no such image"))
			value, err := env.ExecuteActivity(step)
			require.NoError(t, err)
			var result serving.GroupResult
			require.NoError(t, value.Get(&result))
			require.Equal(t, failure.Refused, result.Parties[0].Kind)
			if len(domains) > 1 {
				require.Equal(t, serving.PartyOutcome{Unfinished: true, SpentSeconds: 14}, result.Parties[1])
			}
		})
	}
}

// The heartbeat reports what each party waits for.
func TestGroup_HeartbeatNamesEachParty(t *testing.T) {
	j := newGroup(t.Context(), Options{}.withDefaults(), groupOf("alice", "bob", "carol"))
	for i, text := range []string{"0 of 1 pods are available", "", "1 of 2 pods are available"} {
		j.members[i].Note(func(p *workload.Progress) { p.Message = text })
	}
	require.Equal(t, []partyProgress{{"alice", workload.Progress{Message: "0 of 1 pods are available"}},
		{Domain: "bob"}, {"carol", workload.Progress{Message: "1 of 2 pods are available"}}}, j.Progress())
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
		"AtOnce":     {"no newer attempt can exist so soon", 0, serviceerror.NewNotFound("missing"), 0, true},
		"Late":       {"Temporal still accepts its heartbeat", frozenAfter, nil, 1, true},
		"Superseded": {"another attempt has continued", frozenAfter, serviceerror.NewNotFound("missing"), 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			temporal := &answering{err: c.answer}
			env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
			asks := func(ctx context.Context) (bool, error) {
				j := newGroup(ctx, Options{}.withDefaults(), groupOf("alice"))
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
