package cli_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/render"
	cliserving "slipway.io/slipway/cli/serving"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

func watchedServingAPI(t *testing.T, first serving.View, states ...serving.View) *fakeAPI {
	t.Helper()
	return watchedStates(t, "/api/v1/servings/serving-01", first, states)
}

func TestServingWatchExitCodes(t *testing.T) {
	t.Parallel()
	asked := ended(kuscia.PhaseAvailable, "")
	asked.Generation = 3
	away := updating()
	away.Parties[1].Phase, away.Parties[1].Unreachable = kuscia.PhaseUnknown, "no worker polls slipway.party.bob"
	putRight := ended(kuscia.PhaseAvailable, serving.ReasonPartyFailed)
	putRight.Reason = ""
	stuck := updating()
	stuck.Phase, stuck.Operation.Reason = kuscia.PhaseFailed, serving.ReasonUpdateRolledBack
	cases := map[string]struct {
		reason string
		states []serving.View
		args   []string
		code   int
	}{
		"Available": {"All parties have all replicas.", []serving.View{ended(kuscia.PhaseAvailable, "")}, nil,
			app.ExitOK},
		"Failed": {"A party failed.", []serving.View{ended(kuscia.PhaseFailed, serving.ReasonPartyFailed)}, nil,
			app.ExitFailure},
		"Refused": {"The requested version is invalid; the previous one is serving.",
			[]serving.View{ended(kuscia.PhaseAvailable, serving.ReasonValidateFailed)}, nil, app.ExitFailure},
		"RolledBack": {"The update failed, and the previous version is serving.",
			[]serving.View{ended(kuscia.PhaseAvailable, serving.ReasonUpdateRolledBack)}, nil, app.ExitStopped},
		"PutRight": {"It failed, but became available later.", []serving.View{putRight}, nil, app.ExitOK},
		"NoWayBack": {"The rollback fails: it is retried, but the watch does not wait.", []serving.View{stuck}, nil,
			app.ExitFailure},
		"Partial": {"Pods are still starting.", []serving.View{ended(kuscia.PhasePartialAvailable, ""),
			ended(kuscia.PhaseAvailable, "")}, nil, app.ExitOK},
		"NotBegun": {"The previous operation is not the requested one.",
			[]serving.View{asked, ended(kuscia.PhaseFailed, serving.ReasonPartyFailed)}, nil, app.ExitFailure},
		"Away": {"The watch waits for an unreachable party.",
			[]serving.View{away, ended(kuscia.PhaseAvailable, "")}, nil, app.ExitOK},
		"AwayEnds": {"Unless --exit-on-interrupted is set.", []serving.View{away}, []string{"--exit-on-interrupted"},
			app.ExitInterrupted},
		"Asks": {"The watch waits for an approval.", []serving.View{asking(), ended(kuscia.PhaseAvailable, "")},
			nil, app.ExitOK},
		"AsksEnds": {"Unless --exit-on-paused is set.", []serving.View{asking()}, []string{"--exit-on-paused"},
			app.ExitPaused},
		"Timeout": {"No event arrives.", nil, []string{"--timeout", "100ms"}, app.ExitTimeout},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := watchedServingAPI(t, updating(), c.states...)
			got := slipway(t, api, append([]string{"serving", "watch", "serving-01"}, c.args...)...)
			require.Equal(t, c.code, got.code, "%s\n%s%s", c.reason, got.out, got.err)
		})
	}
}

func TestServingWatch_PrintsEachChangeOnce_InPipe(t *testing.T) {
	t.Parallel()
	failed := updating()
	failed.Phase, failed.Reason, failed.Message, failed.AvailableParties = kuscia.PhaseAvailable,
		serving.ReasonUpdateRolledBack,
		"party bob/server: 15 s passed", 2
	failed.Operation.Done, failed.Operation.Reason, failed.Operation.Message = true, failed.Reason, failed.Message
	failed.Parties = twoParties().Parties
	got := slipway(t, watchedServingAPI(t, updating(), updating(), failed), "serving", "watch", "serving-01")
	require.Equal(t, `11:59:00  update of generation 2 is running
12:00:00    alice: Available, 2 of 2 available
12:00:00    bob/server: Progressing, 1 of 2 available, 1 new: ImagePullBackOff: manifest unknown
12:00:00  serving serving-01 is Progressing: ImagePullBackOff: party bob/server: manifest unknown
12:00:00  update of generation 2 failed: UpdateRolledBack: party bob/server: 15 s passed
12:00:00    bob/server: Available, 2 of 2 available
12:00:00  serving serving-01 is Available: UpdateRolledBack: party bob/server: 15 s passed
serving serving-01 is Available: UpdateRolledBack: party bob/server: 15 s passed
2 of 2 parties serving
For details: slipway serving get serving-01
To retry: fix the cause, and run slipway serving update -f FILE
`, got.out)
	require.Equal(t, app.ExitStopped, got.code)
}

func TestServingWatch_Ends_WhenDeleted(t *testing.T) {
	t.Parallel()
	deleted := twoParties()
	deleted.DeletedAt = beforeP(time.Second)
	api := newFakeAPI(t)
	api.on("GET /api/v1/servings/serving-01", func(request) answer { return answerJSON(http.StatusOK, deleted) })
	api.on("GET /api/v1/servings/serving-01/events",
		func(request) answer { return problem(http.StatusNotFound, "serving serving-01 does not exist") })
	got := slipway(t, api, "serving", "watch", "serving-01")
	require.Equal(t, app.ExitOK, got.code)
	require.Equal(t, "serving serving-01 was deleted\n", got.err)
	deleted.DeletedAt = nil
	deleted.Operation.Done = false
	got = slipway(t, api, "serving", "watch", "serving-01")
	require.Equal(t, app.ExitFailure, got.code, "a serving that disappears without a deletion is an error")
}

func TestServingCreateAndWatch(t *testing.T) {
	t.Parallel()
	path := write(t, "serving.json", documentText(t, "create.json"))
	api := watchedServingAPI(t, updating(), ended(kuscia.PhaseAvailable, ""))
	api.on("GET /api/v1/appimages/sf-serving-image", func(request) answer {
		return answerJSON(http.StatusOK, appImage("sf-serving-image", "v1"))
	})
	api.on("PUT /api/v1/servings/serving-01", func(request) answer { return stored("serving-01", 1, true, true) })
	got := slipway(t, api, "serving", "create", "-f", path, "--watch")
	require.Equal(t, app.ExitOK, got.code, got.err)
	require.Equal(t, "serving serving-01 created\n", got.err)
	require.Contains(t, got.out, "serving serving-01 is Available\n2 of 2 parties serving\n")
	require.Equal(t, app.ExitUsage, slipway(t, api, "serving", "create", "-f", path, "--timeout", "1m").code,
		"--timeout requires --watch")
	require.Equal(t, app.ExitUsage, slipway(t, api, "serving", "create", "-f", path, "-f", path, "-w").code,
		"--watch supports one serving")
}

func TestServingDrawing_OmitsAvailableParties(t *testing.T) {
	t.Parallel()
	v := updating()
	for range 30 {
		v.Parties = append(v.Parties, twoParties().Parties[0])
	}
	d := render.Drawing{Now: func() time.Time { return noon }}
	require.Equal(t, []string{
		"serving serving-01 of alice, generation 2",
		"Progressing: ImagePullBackOff: party bob/server: manifest unknown",
		"update of generation 2 is running, started 1m00s ago; generation 1 serves",
		"",
		"  bob/server   Progressing   1 of 2 available, 1 new   ImagePullBackOff: manifest unknown",
		"  … and 31 parties Available",
	}, cliserving.Fit(d, v, 120, 10))
	require.Len(t, cliserving.Fit(d, v, 120, 4), 4, "it always fits")
}
