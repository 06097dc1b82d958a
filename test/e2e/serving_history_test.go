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

// history returns the operations on a serving, newest first.
func (u *twoParties) history(id string) (releases []serving.Release) {
	u.t.Helper()
	releases, err := u.tryHistory(id)
	require.NoError(u.t, err)
	return releases
}

// tryHistory is like history, for times when the engine or Temporal may not answer.
func (u *twoParties) tryHistory(id string) ([]serving.Release, error) {
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

// waitHistory returns the history once it has n operations and the newest is in the state. Failed requests are retried.
func (u *twoParties) waitHistory(id string, n int, state serving.ReleaseState) (releases []serving.Release) {
	u.t.Helper()
	require.Eventually(u.t, func() bool {
		now, err := u.tryHistory(id)
		if err != nil {
			return false
		}
		releases = now
		return len(releases) == n && releases[0].State == state
	}, harness.Patience, harness.Tick, "%s never had %d operations with the newest %s", id, n, state)
	return releases
}

// The history of a serving, with the outcome of each operation, stays available after the deletion.
func TestLongServingHistory_OutlivesTheServing(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	u := newTwoParties(t, harness.Shared(t))
	u.create("recorded", serving.Policy{})
	u.WaitServing("recorded", "Available", harness.ServingAvailable)
	u.waitHistory("recorded", 1, serving.StateSucceeded)
	u.policy("recorded", serving.Policy{ProgressDeadlineSeconds: 60})
	u.update("recorded", u.better, u.bad)
	u.WaitServing("recorded", "ImagePullBackOff at bob", func(kd *kuscia.KusciaDeployment) bool {
		return kd.Status.PartyDeploymentStatuses[u.bob]["recorded"].PodReason == "ImagePullBackOff"
	})
	live := u.history("recorded")[0]
	require.Equal(t, []string{serving.KindUpdate, string(serving.StateProgressing)},
		[]string{live.Kind, string(live.State)}, "the history includes the running operation")
	require.Contains(t, live.Message, "applying the requested version to the parties")
	u.waitHistory("recorded", 2, serving.StateRolledBack)
	u.remove("recorded")
	releases := u.waitHistory("recorded", 3, serving.StateSucceeded)
	require.Nil(t, u.Serving(u.Home, "recorded"), "a deletion ends when no object is left")

	deletion, update, creation := releases[0], releases[1], releases[2]
	require.Equal(t, []string{serving.KindDelete, serving.KindUpdate, serving.KindCreate},
		[]string{deletion.Kind, update.Kind, creation.Kind})
	require.Equal(t, []int64{3, 2, 1}, []int64{deletion.Generation, update.Generation, creation.Generation})
	require.Equal(t, []serving.ReleaseState{serving.StateSucceeded, serving.StateRolledBack},
		[]serving.ReleaseState{creation.State, update.State})
	require.Equal(t, serving.ReasonUpdateRolledBack, update.Reason)
	require.Contains(t, update.Message, "manifest unknown", "the message of the registry")
	require.Equal(t, creation.Version, update.Previous)
	require.NotEqual(t, creation.Version, update.Version)
	require.Equal(t, []serving.ReleaseParty{{Domain: u.alice, AppImage: u.better, Image: "x:v2"},
		{Domain: u.bob, AppImage: u.bad, Image: "x:bad"}}, update.Parties)
	require.Equal(t, []serving.ReleaseParty{{Domain: u.alice}, {Domain: u.bob}}, deletion.Parties)
	for _, r := range releases {
		require.NotNil(t, r.FinishedAt)
		require.False(t, r.FinishedAt.Before(r.StartedAt))
		require.NotEmpty(t, r.Workflow.RunID)
	}
}

// A worker that is killed between the status and the record writes both after the restart.
func TestLongServingRecords_AreCompleted_WhenWorkerIsKilled(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	c := newSupervised(t)
	u := newTwoParties(t, c.Engine)
	kill := func(point string, during func()) {
		t.Logf("kill at %s", point)
		died := c.deathCount()
		require.NoError(t, os.WriteFile(c.armFile, fmt.Appendf(nil, `{"name":%q}`, point), 0o600))
		during()
		require.Eventually(t, func() bool {
			return c.deathCount() > died
		}, harness.Patience, harness.Tick, "the worker never reached %s", point)
	}
	for n, point := range []string{"serving.record.create.before", "serving.record.create.after",
		"serving.record.complete.before", "serving.record.complete.after"} {
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
