package cli_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/window"
)

func TestPlanRunWithTimes(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.on("POST /api/v1/plans/shop/execute", func(request) answer {
		return answerJSON(http.StatusAccepted, client.ExecuteResult{ID: "shop-1"})
	})
	file := filepath.Join(t.TempDir(), "times.yaml")
	require.NoError(t, os.WriteFile(file, []byte("freezes:\n- {start: 2026-12-23T00:00:00, duration: 2w, timeZone: Europe/Berlin}\n"), 0o600))
	got := slipway(t, api, "plan", "run", "shop", "--not-before", "2026-12-01T06:00:00+01:00", "--times", file)
	require.Equal(t, 0, got.code, got.err)
	var sent client.ExecuteRequest
	require.NoError(t, json.Unmarshal([]byte(api.requests()[0].body), &sent))
	require.Equal(t, "2026-12-01T06:00:00+01:00", sent.NotBefore)
	require.Equal(t, []window.Window{{Start: "2026-12-23T00:00:00", Duration: "2w", TimeZone: "Europe/Berlin"}}, sent.Freezes)

	require.NoError(t, os.WriteFile(file, []byte("freezes:\n- {start: 2026-12-23T00:00:00, duration: 0h, timezone: Europe/Berlin}\n"), 0o600))
	for _, args := range [][]string{{"--times", file}, {"--not-before", "tomorrow"}, {"--times", file + ".none"}} {
		got := slipway(t, api, append([]string{"plan", "run", "shop"}, args...)...)
		require.NotZero(t, got.code, "%v", args)
	}
	require.Contains(t, slipway(t, api, "plan", "run", "shop", "--times", file).err, "line 2, freezes[0].duration: is \"0h\", which lasts no time")
	require.Len(t, api.requests(), 1, "what is wrong is told before anything is sent")
}

func TestTaskThatWaitsForAWindow(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	task := shopTaskIn(plan.TaskRunning, "wave 1 of 2: 0 services run")
	until := time.Now().Add(48 * time.Hour)
	task.WaitingFor = &plan.RolloutWait{Kind: "window", Since: time.Now().Add(-time.Hour), Until: &until, Message: "a freeze lasts"}
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
