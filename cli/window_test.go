package cli_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/window"
)

func TestPlanRunWithTimes(t *testing.T) {
	t.Parallel()
	startsWithTimes(t, "POST /api/v1/plans/shop/execute", "plan", "run", "shop")
}

func TestTaskRerunWithTimes(t *testing.T) {
	t.Parallel()
	startsWithTimes(t, "POST /api/v1/tasks/shop-0/rerun", "task", "rerun", "shop-0")
}

// startsWithTimes checks that a command sends times and rejects invalid ones.
func startsWithTimes(t *testing.T, route string, command ...string) {
	api := newFakeAPI(t)
	api.on(route, func(request) answer {
		return answerJSON(http.StatusAccepted, client.ExecuteResult{ID: "shop-1"})
	})
	file := filepath.Join(t.TempDir(), "times.yaml")
	require.NoError(t, os.WriteFile(file, []byte("freezes:\n- {start: 2026-12-23T00:00:00, duration: 2w, timeZone: "+
		"Europe/Berlin}\n"), 0o600))
	got := slipway(t, api, append(slices.Clone(command), "--not-before", "2026-12-01T06:00:00+01:00", "--times",
		file)...)
	require.Equal(t, 0, got.code, got.err)
	var sent client.ExecuteRequest
	require.NoError(t, json.Unmarshal([]byte(api.requests()[0].body), &sent))
	require.Equal(t, "2026-12-01T06:00:00+01:00", sent.NotBefore)
	require.Equal(t, []window.Window{{Start: "2026-12-23T00:00:00", Duration: "2w", TimeZone: "Europe/Berlin"}},
		sent.Freezes)

	require.NoError(t, os.WriteFile(file, []byte("freezes:\n- {start: 2026-12-23T00:00:00, duration: 0h, timezone: "+
		"Europe/Berlin}\n"), 0o600))
	twice := filepath.Join(t.TempDir(), "twice.yaml")
	require.NoError(t, os.WriteFile(twice, []byte("notBefore: 2026-12-01T06:00:00Z\n"), 0o600))
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--times", file}, "error: invalid times in " + file +
			":\nline 2, freezes[0].timezone: unknown key \"timezone\": did you mean \"timeZone\"?"},
		{[]string{"--not-before", "tomorrow"}, "error: --not-before: \"tomorrow\" is not a time with an offset"},
		{[]string{"--times", file + ".none"}, "error: --times: open " + file + ".none"},
		{[]string{"--times", twice, "--not-before", "2026-12-01T06:00:00Z"},
			"error: notBefore is set both in " + twice + " and by --not-before: use only one of them"},
	} {
		got := slipway(t, api, append(slices.Clone(command), c.args...)...)
		require.Equal(t, 2, got.code, "usage error: %v", c.args)
		require.Contains(t, got.err, c.says)
	}
	require.Len(t, api.requests(), 1, "errors are reported before a request is sent")
}

func TestPlanGetShowsItsTimes(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.on("GET /api/v1/services", func(request) answer {
		return answerJSON(http.StatusOK, client.ServiceList{Items: []client.ServiceSummary{}})
	})
	api.on("GET /api/v1/plans/shop", func(request) answer {
		return answerJSON(http.StatusOK, decoded(t, "notBefore: 2026-12-01T06:00:00+01:00\n"+
			"windows:\n- {start: 2026-12-01T22:00:00, duration: 4h, rrule: 'FREQ=WEEKLY;BYDAY=TU', timeZone: "+
			"Europe/Berlin}\n"+
			"freezes:\n- {start: 2026-12-23T00:00:00Z, duration: 2w}\ndeployPlanItems:\n- {serviceId: 111, "+
			"deployment: RESTART}\n"))
	})
	require.Contains(t, slipway(t, api, "plan", "get", "shop").out, `plan shop
not before 2026-12-01T06:00:00+01:00
within a window from 2026-12-01T22:00:00 (Europe/Berlin) for 4h, FREQ=WEEKLY;BYDAY=TU
outside a freeze from 2026-12-23T00:00:00Z for 2w

wave 1 of 1`, "the times of the plan are shown")
}

func TestTaskGet_ShowsReleaseWindowWait(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	task := shopTaskIn(plan.TaskRunning, "wave 1 of 2: 0 services run")
	until := time.Now().Add(48 * time.Hour)
	task.WaitingFor = &plan.RolloutWait{Kind: "window", Since: time.Now().Add(-time.Hour), Until: &until,
		Message: "a freeze lasts"}
	api.on("GET /api/v1/tasks/shop-1", func(request) answer { return answerJSON(http.StatusOK, task) })
	api.on("GET /api/v1/services", func(request) answer {
		return answerJSON(http.StatusOK, client.ServiceList{Items: []client.ServiceSummary{}})
	})
	got := slipway(t, api, "task", "get", "shop-1")
	require.Equal(t, outcome{out: got.out}, got)
	require.Contains(t, got.out, "a release window")
	require.Contains(t, got.out, "until ")
	require.Contains(t, got.out, "slipway task approve shop-1 --reason TEXT")
}
