package cli_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/follow"
	clirollout "slipway.io/slipway/cli/rollout"
	"slipway.io/slipway/release/rollout"
)

func watchedRolloutAPI(t *testing.T, first rollout.Status, states ...rollout.Status) *fakeAPI {
	t.Helper()
	return watchedStates(t, "/api/v1/rollouts/shop/web", first, states)
}

// waiting is the rollout when it waits for that.
func waiting(phase rollout.Phase, kind rollout.WaitKind) rollout.Status {
	s := webRollout()
	s.Phase, s.WaitingFor = phase, &rollout.WaitingFor{Kind: kind, Since: noon, Message: "because"}
	return s
}

func TestRolloutWatchExitCodes(t *testing.T) {
	t.Parallel()
	healthy := webRolloutIn(rollout.PhaseHealthy, "done")
	cases := map[string]struct {
		reason string
		states []rollout.Status
		args   []string
		code   int
	}{
		"Healthy": {"The new version serves.", []rollout.Status{healthy}, nil, app.ExitOK},
		"RolledBack": {"The old version serves: neither success nor failure.",
			[]rollout.Status{webRolloutIn(rollout.PhaseRolledBack, "")}, nil, app.ExitStopped},
		"Cancelled": {"A frozen split is neither.", []rollout.Status{webRolloutIn(rollout.PhaseCancelled, "")}, nil, app.ExitStopped},
		"Failed": {"A failure that waits for a person fails the pipeline.",
			[]rollout.Status{waiting(rollout.PhaseFailed, rollout.WaitResume)}, nil, app.ExitFailure},
		"NeverBegan": {"A failure that is over is one too.", []rollout.Status{webRolloutIn(rollout.PhaseFailed, "")},
			[]string{"--through-failure"}, app.ExitFailure},
		"Retried": {"Whoever wants to see the retry says so.",
			[]rollout.Status{waiting(rollout.PhaseFailed, rollout.WaitResume), healthy}, []string{"--through-failure"}, app.ExitOK},
		"Approval": {"An approval is waited for.",
			[]rollout.Status{waiting(rollout.PhaseProgressing, rollout.WaitApproval), healthy}, nil, app.ExitOK},
		"Paused": {"Unless asked otherwise.", []rollout.Status{waiting(rollout.PhaseProgressing, rollout.WaitApproval), healthy},
			[]string{"--exit-on-paused"}, app.ExitPaused},
		"Drift": {"Somebody's edit is a person's business too.",
			[]rollout.Status{waiting(rollout.PhaseProgressing, rollout.WaitDrift)}, []string{"--exit-on-paused"}, app.ExitPaused},
		"Timer": {"A pause that ends by itself is not.",
			[]rollout.Status{waiting(rollout.PhaseProgressing, rollout.WaitTimer), healthy}, []string{"--exit-on-paused"}, app.ExitOK},
		"Interrupted": {"A party that is away ends the watch when asked.",
			[]rollout.Status{waiting(rollout.PhaseProgressing, rollout.WaitParty)}, []string{"--exit-on-interrupted"}, app.ExitInterrupted},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := watchedRolloutAPI(t, waiting(rollout.PhaseProgressing, rollout.WaitPods), c.states...)
			got := slipway(t, api, append([]string{"rollout", "watch", "shop/web"}, c.args...)...)
			require.Equal(t, c.code, got.code, "%s\n%s%s", c.reason, got.out, got.err)
		})
	}
}

func TestRolloutWait(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		goal   string
		state  rollout.Status
		code   int
	}{
		"Healthy":      {"It is there.", "healthy", webRolloutIn(rollout.PhaseHealthy, "done"), app.ExitOK},
		"NeverHealthy": {"It will never be.", "healthy", webRolloutIn(rollout.PhaseRolledBack, ""), app.ExitStopped},
		"FailedOnTheWay": {"A failure does not become healthy by itself.", "healthy", waiting(rollout.PhaseFailed, rollout.WaitResume),
			app.ExitFailed},
		"FailedNoPause": {"A pipeline must not smoke-test a dead canary.", "paused", waiting(rollout.PhaseFailed, rollout.WaitResume),
			app.ExitFailed},
		"BackNoPause": {"Nor one that was taken back.", "paused", webRolloutIn(rollout.PhaseRolledBack, ""), app.ExitStopped},
		"FailedOver":  {"What never began has failed as well.", "paused", webRolloutIn(rollout.PhaseFailed, ""), app.ExitFailed},
		"AnyEnd":      {"Whoever asks for any end gets it.", "finished", webRolloutIn(rollout.PhaseFailed, ""), app.ExitOK},
		"Paused":      {"It waits for a person.", "paused", waiting(rollout.PhaseProgressing, rollout.WaitApproval), app.ExitOK},
		"NeverPaused": {"It is over and waits for nobody.", "paused", webRolloutIn(rollout.PhaseHealthy, ""), app.ExitStopped},
		"Finished":    {"Over is over.", "finished", webRolloutIn(rollout.PhaseCancelled, ""), app.ExitOK},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := watchedRolloutAPI(t, waiting(rollout.PhaseProgressing, rollout.WaitPods), c.state)
			got := slipway(t, api, "rollout", "wait", "shop/web", "--for", c.goal)
			require.Equal(t, c.code, got.code, "%s\n%s%s", c.reason, got.out, got.err)
			require.True(t, strings.HasPrefix(got.out, "rollout shop/web is "+string(c.state.Phase)), "the last word only: %s", got.out)
		})
	}
	api := watchedRolloutAPI(t, waiting(rollout.PhaseProgressing, rollout.WaitPods))
	late := slipway(t, api, "rollout", "wait", "shop/web", "--timeout", "100ms")
	require.Equal(t, app.ExitTimeout, late.code)
	require.Equal(t, "error: rollout shop/web is not over after 100ms; it goes on\n", late.err)
	require.Equal(t, app.ExitUsage, slipway(t, api, "rollout", "wait", "shop/web", "--for", "lunch").code)
}

func TestRolloutWatchOnAPipeTellsEachChangeOnce(t *testing.T) {
	t.Parallel()
	first := webRollout()
	first.CurrentStepIndex, first.Reason, first.WaitingFor, first.CanaryReplicas, first.CanaryReadyReplicas = 1,
		"step 1 of 3: pods are getting ready", nil, 2, 1
	first.Traffic = &rollout.TrafficStatus{CanaryWeight: 20, StableWeight: 80}
	first.Steps[0].FinishedAt, first.Steps[1].StartedAt = nil, nil
	api := watchedRolloutAPI(t, first, first, webRollout(), webRolloutIn(rollout.PhaseHealthy, "all 10 pods are new"))
	got := slipway(t, api, "rollout", "watch", "shop/web")
	require.Equal(t, app.ExitOK, got.code, got.err)
	at := func(t time.Time) string { return clockTime(t) }
	require.Equal(t, at(before(5*time.Minute))+`  step 1 of 3 begins: pods 20%, traffic 20%
`+at(noon)+`    pods: 2 of 10 are new, 1 of these ready
`+at(noon)+`    traffic: 20 % goes to the new version, 80 % to the stable one
`+at(noon)+`  rollout shop/web is Progressing: step 1 of 3: pods are getting ready
`+at(before(4*time.Minute))+`  step 1 of 3: Completed after 1m00s
`+at(before(4*time.Minute))+`  step 2 of 3 begins: pods 50%, traffic 50%, then an approval
`+at(noon)+`    pods: 5 of 10 are new, 4 of these ready
`+at(noon)+`    traffic: 50 % goes to the new version, 50 % to the stable one
`+at(noon)+`  rollout shop/web is Progressing: step 2 of 3 waits for an approval
`+at(noon)+`    to go on: slipway rollout approve shop/web
`+at(noon)+`    to go back to the stable version: slipway rollout rollback shop/web
`+at(before(10*time.Second))+`  rollout shop/web is Healthy: all 10 pods are new
rollout shop/web is Healthy after 4m50s: all 10 pods are new
`, got.out)
}

func TestRolloutWatchOnATerminal(t *testing.T) {
	t.Parallel()
	screen := &terminal{}
	a := newSession(t, "").app
	a.Out = screen
	a.Screen = func() (int, int, bool) { return 120, 40, true }
	view := follow.NewView(a, follow.Portrait[rollout.Status]{Fit: clirollout.Fit, Changes: clirollout.Changes, Epilogue: clirollout.Epilogue})
	s := webRollout()
	view.Show(follow.Update[rollout.Status]{State: &s})
	require.Equal(t, drawnTree(), screen.String())
	a.Now = func() time.Time { return noon.Add(time.Minute) }
	live, ok := view.(*follow.LiveView[rollout.Status])
	require.True(t, ok)
	live.Drawing.Now = a.Now
	view.Tick()
	require.Contains(t, screen.String(), "(1h59m left)", "the countdown goes on between the events")
}

func TestTrafficAtTheEnd(t *testing.T) {
	t.Parallel()
	s := webRolloutIn(rollout.PhaseHealthy, "all 10 pods are new")
	s.CanaryReplicas, s.CanaryReadyReplicas, s.Traffic = 10, 10, &rollout.TrafficStatus{CanaryWeight: 0, StableWeight: 100}
	text := strings.Join(clirollout.Whole(plainDrawing, s), "\n")
	require.Contains(t, text, "traffic   [####################]  the routes are given back, it follows the pods",
		"routes that are given back say nothing of a weight: nobody may read that the new version gets no traffic")
	s.FinishedAt, s.Phase = nil, rollout.PhaseProgressing
	require.Contains(t, strings.Join(clirollout.Whole(plainDrawing, s), "\n"),
		"0 % goes to the new version, 100 % to the stable one", "in a step a weight of 0 is what is asked")
}
