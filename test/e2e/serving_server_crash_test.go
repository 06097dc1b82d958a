package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"

	"slipway.io/slipway/test/harness"
	"slipway.io/slipway/workflows"
)

// The server, whose controller starts the operations, is killed and restarted at random times while a serving is
// created, updated and deleted. A client that repeats an unanswered request gets the result, and the operation runs
// once.
func TestLongServing_RunsOperationsOnce_WhenServerIsKilled(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	killServerDuringServings(t, 1)
}

func TestSoakServing_RunsOperationsOnce_WhenServerIsKilled(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	killServerDuringServings(t, 20)
}

// killServerDuringServings runs that many servings and kills the server three times during each.
func killServerDuringServings(t *testing.T, servings int) {
	t.Helper()
	random := harness.Random(t)
	o := harness.Options{SeparateWorker: true}
	u := newTwoParties(t, harness.Start(t, o))
	server := u.Processes[0]
	for round := range servings {
		id := fmt.Sprintf("server-%d", round)
		// request sends a request while the server is killed at a random time, and repeats it after the restart.
		request := func(verb, body string, codes ...int) {
			delay := time.Duration(random.Int64N(int64(300 * time.Millisecond)))
			t.Logf("%s: %s, kill after %s", id, verb, delay)
			killed := make(chan struct{})
			time.AfterFunc(delay, func() { server.Kill(); close(killed) })
			if response, err := http.Post(u.KusciaURL+"/api/v1/serving/"+verb, "application/json",
				strings.NewReader(body)); err == nil {
				_ = response.Body.Close()
			}
			<-killed
			server = u.Server(o)
			u.WaitReady()
			a := u.Kuscia("/api/v1/serving/"+verb, body)
			require.Contains(t, codes, a.Status.Code, "%s again: %s", verb, a.Text)
		}
		request("create",
			fmt.Sprintf(
				`{"serving_id":%q,"initiator":%q,"parties":[{"domain_id":%q,"app_image":%q},{"domain_id":%q,"app_image":%q}]}`,
				id, u.alice, u.alice, u.good, u.bob, u.good), 0, 11600) // 11600: the serving exists already
		kd := u.WaitServing(id, "Available", harness.ServingAvailable)
		require.Equal(t, int64(1), kd.Generation)
		request("update",
			fmt.Sprintf(`{"serving_id":%q,"parties":[{"domain_id":%q,"app_image":%q},{"domain_id":%q,"app_image":%q}]}`,
				id, u.alice, u.better, u.bob, u.better), 0)
		kd = u.WaitServing(id, "the new version", harness.ServingAvailable)
		require.Equal(t, int64(2), kd.Generation, "the repeated update is one operation")
		require.Equal(t, []string{"v2", "v2"}, []string{u.tag(u.alice, id), u.tag(u.bob, id)})
		for _, domain := range []string{u.alice, u.bob} {
			require.Equal(t, "2", u.deployment(domain, id).Annotations["deployment.kubernetes.io/revision"],
				"the pods are replaced once")
		}
		request("delete", fmt.Sprintf(`{"serving_id":%q}`, id), 0, 11604) // 11604: the serving is deleted already
		require.Eventually(t, func() bool { return u.Serving(u.Home, id) == nil }, harness.Patience, harness.Tick)
		require.Zero(t, remainingObjects(t, u.Engine, u.alice, id)+remainingObjects(t, u.Engine, u.bob, id))
		require.Eventually(t, func() bool {
			return u.completedOperations(id) == 3
		}, harness.Patience, harness.Tick, "a creation, an update, a deletion")
	}
	for round := range servings {
		require.Equal(t, 3, u.completedOperations(fmt.Sprintf("server-%d", round)), "no operation was started twice")
	}
	harness.Covered(t, 3*servings, "random kills of a server during a serving")
}

// completedOperations counts the completed workflows of a serving.
func (u *twoParties) completedOperations(id string) int {
	u.t.Helper()
	list, err := u.Workflows.ListWorkflow(context.Background(),
		&workflowservice.ListWorkflowExecutionsRequest{Namespace: u.TemporalNamespace,
			Query: fmt.Sprintf("WorkflowType = '%s' AND SlipwayName = '%s' AND ExecutionStatus = 'Completed'",
				workflows.TypeServing, id)})
	require.NoError(u.t, err)
	return len(list.GetExecutions())
}
