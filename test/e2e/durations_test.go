package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/test/harness"
)

// A release engineer writes durations with units and shares with or without the sign, as other tools take them. The
// release runs by them, and answers have numbers as ever.
func TestRollout_DurationsAsPeopleWriteThem_AreItsOwn(t *testing.T) {
	t.Parallel()
	e := harness.Shared(t)
	const name = "order"
	e.Deployment(name, 4, nil)
	e.WaitReadyPods(name, 4)
	body := fmt.Sprintf(`namespace: %s
workloadRef: {apiVersion: apps/v1, kind: Deployment, name: %s}
images: {app: %s}
strategy:
  canary:
    steps:
    - {replicas: "1", pause: {duration: 2s}}
    - {replicas: 50%%, pause: {}}
    - {replicas: 100%%, pause: {duration: "0"}}
policy: {stepDeadlineSeconds: 10m, settleSeconds: "90", approvals: {expiresSeconds: 1h30m}}
`, e.Apps, name, harness.NewImage(name))
	foreign := e.Call(http.MethodPost, "/api/v1/rollouts", strings.Replace(body, "replicas: 50%", "setWeight: 50", 1))
	require.Equal(t, http.StatusBadRequest, foreign.Status, "%s", foreign.Body)
	require.Contains(t, string(foreign.Body), "write traffic: 20% for the share of the requests")

	started := e.Call(http.MethodPost, "/api/v1/rollouts", body)
	require.Equal(t, http.StatusAccepted, started.Status, "%s", started.Body)
	at := e.WaitForApproval(name, 2)
	require.Equal(t, []string{"2s", "approval", "none"}, []string{at.Steps[0].Pause, at.Steps[1].Pause,
		at.Steps[2].Pause})
	paused := at.Steps[0].FinishedAt.Sub(*at.Steps[0].StartedAt)
	require.GreaterOrEqual(t, paused, 2*time.Second, "the pause was made")
	require.Equal(t, "1", at.Steps[0].Replicas.String())
	out, err := exec.Command(e.Binary("slipway"), "rollout", "approve", e.Apps+"/"+name, "--yes", "--api",
		e.URL).CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.Command(e.Binary("slipway"), "rollout", "wait", e.Apps+"/"+name, "--timeout", "90", "--api",
		e.URL).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, rollout.PhaseHealthy, e.Rollout(name).Phase)
	out, err = exec.Command(e.Binary("slipway"), "rollout", "rollback", e.Apps+"/"+name, "--yes", "--api",
		e.URL).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "is final", "it is refused for its state, not for a flag that it doesn't know")

	service := e.Call(http.MethodPut, "/api/v1/services/durations", fmt.Sprintf("deadlineSeconds: 15m\nworkloads:\n"+
		"- namespace: %s\n  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: %s}\n", e.Apps, name))
	require.Equal(t, http.StatusCreated, service.Status, "%s", service.Body)
	var stored struct {
		DeadlineSeconds int64 `json:"deadlineSeconds"`
	}
	require.NoError(t, json.Unmarshal(e.Call(http.MethodGet, "/api/v1/services/durations", "").Body, &stored))
	require.EqualValues(t, 900, stored.DeadlineSeconds, "an answer has the number")
}
