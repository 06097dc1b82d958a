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

// waiting is the rollout in this phase, waiting for this kind of event.
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
		"Healthy": {"The new version is serving.", []rollout.Status{healthy}, nil, app.ExitOK},
		"RolledBack": {"The old version is serving: neither success nor failure.",
			[]rollout.Status{webRolloutIn(rollout.PhaseRolledBack, "")}, nil, app.ExitStopped},
		"Cancelled": {"So is a frozen split.", []rollout.Status{webRolloutIn(rollout.PhaseCancelled, "")}, nil,
			app.ExitStopped},
		"Failed": {"A failure that waits for user action fails the pipeline.",
			[]rollout.Status{waiting(rollout.PhaseFailed, rollout.WaitResume)}, nil, app.ExitFailure},
		"NeverBegan": {"So does a failure that has ended.", []rollout.Status{webRolloutIn(rollout.PhaseFailed, "")},
			[]string{"--through-failure"}, app.ExitFailure},
		"Retried": {"--through-failure keeps watching.",
			[]rollout.Status{waiting(rollout.PhaseFailed, rollout.WaitResume), healthy}, []string{"--through-failure"},
			app.ExitOK},
		"Approval": {"The watch waits for approvals.",
			[]rollout.Status{waiting(rollout.PhaseProgressing, rollout.WaitApproval), healthy}, nil, app.ExitOK},
		"Paused": {"Unless --exit-on-paused is set.",
			[]rollout.Status{waiting(rollout.PhaseProgressing, rollout.WaitApproval), healthy},
			[]string{"--exit-on-paused"}, app.ExitPaused},
		"Drift": {"Drift needs user action too.",
			[]rollout.Status{waiting(rollout.PhaseProgressing, rollout.WaitDrift)}, []string{"--exit-on-paused"},
			app.ExitPaused},
		"Timer": {"A timed pause does not.",
			[]rollout.Status{waiting(rollout.PhaseProgressing, rollout.WaitTimer), healthy},
			[]string{"--exit-on-paused"}, app.ExitOK},
		"Interrupted": {"With --exit-on-interrupted an unreachable party ends the watch.",
			[]rollout.Status{waiting(rollout.PhaseProgressing, rollout.WaitParty)}, []string{"--exit-on-interrupted"},
			app.ExitInterrupted},
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
		"Healthy": {"It is healthy.", "healthy", webRolloutIn(rollout.PhaseHealthy, "done"), app.ExitOK},
		"NeverHealthy": {"It will never be healthy.", "healthy", webRolloutIn(rollout.PhaseRolledBack, ""),
			app.ExitStopped},
		"FailedOnTheWay": {"A failure does not become healthy by itself.", "healthy",
			waiting(rollout.PhaseFailed, rollout.WaitResume),
			app.ExitFailed},
		"FailedNoPause": {"A failed rollout is not paused.", "paused", waiting(rollout.PhaseFailed, rollout.WaitResume),
			app.ExitFailed},
		"BackNoPause": {"Neither is one that was rolled back.", "paused", webRolloutIn(rollout.PhaseRolledBack, ""),
			app.ExitStopped},
		"FailedOver": {"So has one that never started.", "paused", webRolloutIn(rollout.PhaseFailed, ""),
			app.ExitFailed},
		"AnyEnd": {"Any end is accepted.", "finished", webRolloutIn(rollout.PhaseFailed, ""), app.ExitOK},
		"Paused": {"It waits for user action.", "paused", waiting(rollout.PhaseProgressing, rollout.WaitApproval),
			app.ExitOK},
		"NeverPaused": {"It has ended, so it never pauses.", "paused", webRolloutIn(rollout.PhaseHealthy, ""),
			app.ExitStopped},
		"Finished": {"It has ended.", "finished", webRolloutIn(rollout.PhaseCancelled, ""), app.ExitOK},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := watchedRolloutAPI(t, waiting(rollout.PhaseProgressing, rollout.WaitPods), c.state)
			got := slipway(t, api, "rollout", "wait", "shop/web", "--for", c.goal)
			require.Equal(t, c.code, got.code, "%s\n%s%s", c.reason, got.out, got.err)
			require.True(t, strings.HasPrefix(got.out, "rollout shop/web is "+string(c.state.Phase)),
				"only the final lines: %s", got.out)
		})
	}
	api := watchedRolloutAPI(t, waiting(rollout.PhaseProgressing, rollout.WaitPods))
	late := slipway(t, api, "rollout", "wait", "shop/web", "--timeout", "100ms")
	require.Equal(t, app.ExitTimeout, late.code)
	require.Equal(t, "error: rollout shop/web has not ended after 100ms; it continues on the server\n", late.err)
	require.Equal(t, app.ExitUsage, slipway(t, api, "rollout", "wait", "shop/web", "--for", "lunch").code)
}

func TestRolloutWatch_PrintsEachChangeOnce_InPipe(t *testing.T) {
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
	require.Equal(t, at(before(5*time.Minute))+`  step 1 of 3 started: pods 20%, traffic 20%
`+at(noon)+`    pods: 2 of 10 are new, 1 of them ready
`+at(noon)+`    traffic: 20 % to the new version, 80 % to the stable version
`+at(noon)+`  rollout shop/web is Progressing: step 1 of 3: pods are getting ready
`+at(before(4*time.Minute))+`  step 1 of 3: Completed after 1m00s
`+at(before(4*time.Minute))+`  step 2 of 3 started: pods 50%, traffic 50%, then approval
`+at(noon)+`    pods: 5 of 10 are new, 4 of them ready
`+at(noon)+`    traffic: 50 % to the new version, 50 % to the stable version
`+at(noon)+`  rollout shop/web is Progressing: step 2 of 3 waits for approval
`+at(noon)+`    to continue: slipway rollout approve shop/web
`+at(noon)+`    to go back to the stable version: slipway rollout rollback shop/web
`+at(before(10*time.Second))+`  rollout shop/web is Healthy: all 10 pods are new
rollout shop/web is Healthy after 4m50s: all 10 pods are new
`, got.out)
}

func TestRolloutWatch_UpdatesCountdown_OnTerminal(t *testing.T) {
	t.Parallel()
	screen := &terminal{}
	a := newSession(t, "").app
	a.Out = screen
	a.Screen = func() (int, int, bool) { return 120, 40, true }
	view := follow.NewView(a, follow.Renderer[rollout.Status]{Fit: clirollout.Fit, Changes: clirollout.Changes,
		Summary: clirollout.Summary})
	s := webRollout()
	view.Show(follow.Update[rollout.Status]{State: &s})
	require.Equal(t, drawnTree(), screen.String())
	a.Now = func() time.Time { return noon.Add(time.Minute) }
	live, ok := view.(*follow.LiveView[rollout.Status])
	require.True(t, ok)
	live.Drawing.Now = a.Now
	view.Tick()
	require.Contains(t, screen.String(), "(1h59m left)", "the countdown is updated between events")
}

func TestRolloutDrawing_ShowsTrafficFollowingPods_AtEnd(t *testing.T) {
	t.Parallel()
	s := webRolloutIn(rollout.PhaseHealthy, "all 10 pods are new")
	s.CanaryReplicas, s.CanaryReadyReplicas, s.Traffic = 10, 10,
		&rollout.TrafficStatus{CanaryWeight: 0, StableWeight: 100}
	text := strings.Join(clirollout.DrawAll(plainDrawing, s), "\n")
	require.Contains(t, text, "traffic   [####################]  routes are restored, traffic follows the pods",
		"a restored route has weight 0, which does not mean that the new version gets no traffic")
	s.FinishedAt, s.Phase = nil, rollout.PhaseProgressing
	require.Contains(t, strings.Join(clirollout.DrawAll(plainDrawing, s), "\n"),
		"0 % to the new version, 100 % to the stable version", "in a step, weight 0 is the requested one")
}
