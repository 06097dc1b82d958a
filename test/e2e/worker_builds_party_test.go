package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/party"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// A party whose worker has another build than the engine's keeps working, and the API shows that build. The worker is
// updated and downgraded while a canary runs.
func TestLongPartyWorker_KeepsWorking_WithOlderBuild(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	h := &hosted{t: t, Engine: harness.Start(t, harness.Options{Stack: harness.NewOwnTemporal(t)})}
	h.alice = h.Account(t, "party.yaml", h.Apps)
	require.Equal(t, http.StatusCreated, h.Call(http.MethodPut, "/api/v1/parties/alice",
		"namespace: "+h.Apps+"\n").Status)
	behind := *h.Engine
	behind.Bin = t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(behind.Bin, "slipway"),
		[]byte("#!/bin/sh\nSLIPWAY_TEST_BUILD="+older+" exec "+h.Binary("slipway-failpoints")+" \"$@\"\n"), 0o700))
	h.worker = behind.PartyWorker("alice", h.alice.Kubeconfig)
	h.waitReachable(party.Reachable)
	require.Equal(t, []string{older}, h.builds())

	h.Deployment("web", 2, nil)
	h.WaitReadyPods("web", 2)
	h.service("Deployment", "web")
	task := h.WaitTask(h.Execute("web"), plan.TaskSucceeded, plan.TaskFailed, plan.TaskInterrupted)
	require.Equal(t, plan.TaskSucceeded, task.State, task.Reason)
	h.startTimedRollout(deploymentCell(strategy.StyleCanary, harness.Nginx), "first", nil)
	h.waitHealthy("first")

	h.startTimedRollout(deploymentCell(strategy.StyleCanary, harness.Nginx), "second", nil)
	current := h.PartyWorker("alice", h.alice.Kubeconfig)
	require.Eventually(t, func() bool {
		return len(h.builds()) == 2
	}, harness.Patience, harness.Tick, "the API shows both builds")
	h.waitHealthy("second")
	require.NoError(t, current.Stop())
	h.startTimedRollout(deploymentCell(strategy.StyleCanary, harness.Nginx), "third", nil)
	h.waitHealthy("third")
}

// builds returns the build IDs of the party's workers.
func (h *hosted) builds() (builds []string) {
	h.t.Helper()
	var state struct{ Workers []struct{ Build string } }
	require.NoError(h.t, json.Unmarshal(h.Call(http.MethodGet, "/api/v1/parties/alice", "").Body, &state))
	for _, w := range state.Workers {
		builds = append(builds, w.Build)
	}
	slices.Sort(builds)
	return slices.Compact(builds)
}
