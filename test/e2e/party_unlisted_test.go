package e2e

import (
	"encoding/json"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/release/guard"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/harness"
)

// engineIdentity is an account that the guard of the party's cluster knows: not that of the party's worker.
const engineIdentity = "system:serviceaccount:slipway:slipway"

// relist installs a guard again, with this list.
func (h *hosted) relist(g *harness.Guard, identities ...string) {
	h.t.Helper()
	args := []string{"guard", "install", "--name", g.Name, "--kubeconfig", h.Kubeconfig, "--namespace-selector",
		guard.LabelGuard + "=" + g.Name}
	for _, identity := range identities {
		args = append(args, "--engine-identity", identity)
	}
	out, err := exec.Command(h.Binary("slipway"), args...).CombinedOutput()
	require.NoError(h.t, err, "%s", out)
}

// waitWorkerGuard waits until the party's worker reports what the guard does to its account.
func (h *hosted) waitWorkerGuard(want string) {
	h.t.Helper()
	var state struct {
		Workers []struct{ Account, Guard string }
	}
	require.Eventually(h.t, func() bool {
		a := h.Call(http.MethodGet, "/api/v1/parties/alice", "")
		return json.Unmarshal(a.Body, &state) == nil && len(state.Workers) == 1 && state.Workers[0].Guard == want &&
			state.Workers[0].Account == harness.PartyUser(h.Apps)
	}, harness.Patience, harness.Tick, "the worker does not report %s: %+v", want, &state)
}

// A party's worker whose account is not on the list of its cluster's guard says so at the start and in party get. Its
// releases are refused before anything is written, and a list that loses the account later stops a running release
// before the next write, instead of undoing that.
func TestPartyWorker_IsRefused_WhenGuardDoesNotKnowIt(t *testing.T) {
	t.Parallel()
	h := newHosted(t)
	h.InstallRollouts(t)
	h.Grant(t, "guard-reader.yaml", h.Apps)
	g := h.InstallGuardFor(t, engineIdentity)
	g.EnforceOn(t, h.Apps)
	h.startWorker()
	account := harness.PartyUser(h.Apps)
	unknown := "the guard " + g.Name + " of this cluster doesn't know this worker's account " + account
	require.Eventually(t, func() bool {
		return strings.Contains(h.worker.Output(), "the guard does not know the account of this worker: its releases "+
			"are refused") && strings.Contains(h.worker.Output(), unknown)
	}, harness.Patience, harness.Tick, "the worker does not say it at the start")
	h.waitWorkerGuard("unlisted")
	out, err := exec.Command(h.Binary("slipway"), "party", "get", "alice", "--api", h.URL).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--engine-identity "+account)

	h.Subject(harness.Deployment, "web", nil)
	h.WaitReadyPods("web", harness.SubjectSize)
	h.service("Deployment", "web")
	before := h.Object(harness.Deployment, "web")
	r := harness.Rollout{Kind: harness.Deployment, Name: "web", ExtraFields: map[string]any{"party": "alice"},
		Strategy: strategy.Strategy{Style: strategy.StylePartition, Steps: []strategy.Step{harness.Step("25%", -1),
			harness.Step("100%", -1)}}}
	body, err := json.Marshal(r.Body(h.Apps))
	require.NoError(t, err)
	requireRefused := func(path, body string, status int) {
		a := h.Call(http.MethodPost, path, body)
		require.Equal(t, status, a.Status, "%s: %s", path, a.Body)
		require.Contains(t, string(a.Body), unknown, path)
		require.Contains(t, string(a.Body), "--engine-identity "+account, path)
	}
	requireRefused("/api/v1/rollouts/validate", string(body), http.StatusOK)
	requireRefused("/api/v1/rollouts", string(body), http.StatusUnprocessableEntity)
	requireRefused("/api/v1/plans/web/execute", "", http.StatusUnprocessableEntity)
	after := h.Object(harness.Deployment, "web")
	require.Equal(t, before.GetGeneration(), after.GetGeneration())
	require.Equal(t, before.GetAnnotations(), after.GetAnnotations(), "nothing was written")

	h.relist(g, engineIdentity, account)
	require.Eventually(t, func() bool {
		a := h.TryStartRollout(r)
		return a.Status == http.StatusCreated || a.Status == http.StatusAccepted || a.Status == http.StatusOK
	}, harness.Patience, harness.Tick, "a listed worker releases")
	waiting := h.waitAlice("an approval", func(s rollout.Status) bool {
		return s.WaitingFor != nil && s.WaitingFor.Kind == rollout.WaitApproval
	})
	h.relist(g, engineIdentity)
	require.Eventually(t, func() bool {
		return strings.Contains(string(h.Call(http.MethodPost, "/api/v1/rollouts/validate", string(body)).Body), unknown)
	}, harness.Patience, harness.Tick, "the list is in force")
	gate, err := json.Marshal(map[string]any{"gate": waiting.WaitingFor.Gate})
	require.NoError(t, err)
	unchanged := h.Object(harness.Deployment, "web")
	a := h.Call(http.MethodPost, "/api/v1/rollouts/"+h.Apps+"/web/approve?party=alice", string(gate))
	require.Equal(t, http.StatusOK, a.Status, "%s", a.Body)
	h.waitAlice("a refusal that names the account", func(s rollout.Status) bool {
		return s.WaitingFor != nil && strings.Contains(s.Reason, unknown)
	})
	require.Equal(t, unchanged.GetGeneration(), h.Object(harness.Deployment, "web").GetGeneration(),
		"no write was made that the API server would have undone")

	h.relist(g, engineIdentity, account)
	require.Eventually(t, func() bool {
		return !strings.Contains(string(h.Call(http.MethodPost, "/api/v1/rollouts/validate", string(body)).Body), unknown)
	}, harness.Patience, harness.Tick, "the list is in force")
	a = h.Call(http.MethodPost, "/api/v1/rollouts/"+h.Apps+"/web/retry?party=alice", "")
	require.Equal(t, http.StatusOK, a.Status, "%s", a.Body)
	h.waitHealthy("web")
	require.NoError(t, h.worker.Stop())
	h.startWorker()
	h.waitWorkerGuard("listed")
}

// waitAlice waits until the party's rollout fulfils a condition.
func (h *hosted) waitAlice(what string, is func(rollout.Status) bool) (last rollout.Status) {
	h.t.Helper()
	require.Eventually(h.t, func() bool {
		a := h.Call(http.MethodGet, "/api/v1/rollouts/"+h.Apps+"/web?party=alice", "")
		last = rollout.Status{}
		return a.Status == http.StatusOK && json.Unmarshal(a.Body, &last) == nil && is(last)
	}, harness.Patience, harness.Tick, "the rollout does not show %s: %+v", what, &last)
	return last
}
