package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
	"slipway.io/slipway/test/harness"
)

// history is what was done to a serving, newest first.
func (u *union) history(id string) (releases []serving.Release) {
	u.t.Helper()
	releases, err := u.tryHistory(id)
	require.NoError(u.t, err)
	return releases
}

// tryHistory is history for a moment in which the engine or Temporal may not answer.
func (u *union) tryHistory(id string) ([]serving.Release, error) {
	answer, err := u.TryCall(http.MethodGet, "/api/v1/servings/"+id+"/history", "")
	if err != nil {
		return nil, err
	}
	if answer.Status != http.StatusOK {
		return nil, fmt.Errorf("the history of serving %s: %d %s", id, answer.Status, answer.Body)
	}
	var page struct {
		Items []serving.Release `json:"items"`
	}
	err = json.Unmarshal(answer.Body, &page)
	return page.Items, err
}

// waitHistory returns the history when it has so many operations, the newest of them in that state. An answer that fails is asked for again.
func (u *union) waitHistory(id string, n int, state serving.ReleaseState) (releases []serving.Release) {
	u.t.Helper()
	require.Eventually(u.t, func() bool {
		now, err := u.tryHistory(id)
		if err != nil {
			return false
		}
		releases = now
		return len(releases) == n && releases[0].State == state
	}, harness.Patience, harness.Tick, "%s never came to %d operations, the newest %s", id, n, state)
	return releases
}

// What was asked of a serving, and what became of it, is told after it is gone.
func TestLongServingHistoryOutlivesTheServing(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	u := unite(t, harness.Shared(t))
	u.create("told", serving.Policy{})
	u.WaitServing("told", "Available", harness.ServingAvailable)
	u.waitHistory("told", 1, serving.StateSucceeded)
	u.policy("told", serving.Policy{ProgressDeadlineSeconds: 60})
	u.update("told", u.better, u.bad)
	u.WaitServing("told", "trouble", func(kd *kuscia.KusciaDeployment) bool {
		return kd.Status.PartyDeploymentStatuses[u.bob]["told"].PodReason == "ImagePullBackOff"
	})
	live := u.history("told")[0]
	require.Equal(t, []string{serving.KindUpdate, string(serving.StateProgressing)}, []string{live.Kind, string(live.State)}, "the one that is under way is told too")
	require.Contains(t, live.Message, "the parties are brought to the version that was asked")
	u.waitHistory("told", 2, serving.StateRolledBack)
	u.remove("told")
	releases := u.waitHistory("told", 3, serving.StateSucceeded)
	require.Nil(t, u.Serving(u.Home, "told"), "a deletion is over when nothing is left")

	deletion, update, creation := releases[0], releases[1], releases[2]
	require.Equal(t, []string{serving.KindDelete, serving.KindUpdate, serving.KindCreate}, []string{deletion.Kind, update.Kind, creation.Kind})
	require.Equal(t, []int64{3, 2, 1}, []int64{deletion.Generation, update.Generation, creation.Generation})
	require.Equal(t, []serving.ReleaseState{serving.StateSucceeded, serving.StateRolledBack}, []serving.ReleaseState{creation.State, update.State})
	require.Equal(t, serving.ReasonUpdateRolledBack, update.Reason)
	require.Contains(t, update.Message, "manifest unknown", "the registry's own word")
	require.Equal(t, creation.Version, update.Previous)
	require.NotEqual(t, creation.Version, update.Version)
	require.Equal(t, []serving.ReleaseParty{{Domain: u.alice, AppImage: u.better, Image: "x:v2"}, {Domain: u.bob, AppImage: u.bad, Image: "x:bad"}}, update.Parties)
	require.Equal(t, []serving.ReleaseParty{{Domain: u.alice}, {Domain: u.bob}}, deletion.Parties)
	for _, r := range releases {
		require.NotNil(t, r.FinishedAt)
		require.False(t, r.FinishedAt.Before(r.StartedAt))
		require.NotEmpty(t, r.Workflow.RunID)
	}
}

// Whoever is killed between what the status says and what the record says does both.
func TestLongServingRecordsOutliveCrashes(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	c := newSupervised(t)
	u := unite(t, c.Engine)
	kill := func(point string, during func()) {
		t.Logf("kill at %s", point)
		died := c.dead()
		require.NoError(t, os.WriteFile(c.arm, fmt.Appendf(nil, `{"name":%q}`, point), 0o600))
		during()
		require.Eventually(t, func() bool { return c.dead() > died }, harness.Patience, harness.Tick, "the worker never came by %s", point)
	}
	for n, point := range []string{"serving.record.create.before", "serving.record.create.after", "serving.record.complete.before", "serving.record.complete.after"} {
		id := fmt.Sprintf("s%d", n)
		kill(point, func() { u.create(id, serving.Policy{}) })
		releases := u.waitHistory(id, 1, serving.StateSucceeded)
		require.Equal(t, serving.KindCreate, releases[0].Kind)
		u.WaitServing(id, "Available", harness.ServingAvailable)
	}
	kill("serving.record.complete.before", func() { u.remove("s0") })
	releases := u.waitHistory("s0", 2, serving.StateSucceeded)
	require.Equal(t, serving.KindDelete, releases[0].Kind)
	require.Nil(t, u.Serving(u.Home, "s0"))
}
