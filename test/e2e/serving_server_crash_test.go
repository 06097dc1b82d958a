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

// The server, whose controller starts the operations, dies at random moments while a serving is created, updated and deleted, and comes back: whoever repeats
// a request that was not answered gets what it asked, once.
func TestLongServingServerKilledAtRandom(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	killServerDuringServings(t, 1)
}

func TestSoakServingServerKilledAtRandom(t *testing.T) {
	harness.Soak(t)
	t.Parallel()
	killServerDuringServings(t, 20)
}

// killServerDuringServings has so many servings live while the server dies three times each.
func killServerDuringServings(t *testing.T, servings int) {
	t.Helper()
	random := harness.Random(t)
	o := harness.Options{Apart: true}
	u := unite(t, harness.Start(t, o))
	server := u.Processes[0]
	for round := range servings {
		id := fmt.Sprintf("server-%d", round)
		// asks sends a request, with the server killed at a random moment, and again when it has come back.
		asks := func(verb, body string, codes ...int) {
			moment := time.Duration(random.Int64N(int64(300 * time.Millisecond)))
			t.Logf("%s: %s, kill after %s", id, verb, moment)
			killed := make(chan struct{})
			time.AfterFunc(moment, func() { server.Kill(); close(killed) })
			if response, err := http.Post(u.KusciaURL+"/api/v1/serving/"+verb, "application/json", strings.NewReader(body)); err == nil {
				_ = response.Body.Close()
			}
			<-killed
			server = u.Server(o)
			u.WaitReady()
			a := u.Kuscia("/api/v1/serving/"+verb, body)
			require.Contains(t, codes, a.Status.Code, "%s again: %s", verb, a.Text)
		}
		asks("create", fmt.Sprintf(`{"serving_id":%q,"initiator":%q,"parties":[{"domain_id":%q,"app_image":%q},{"domain_id":%q,"app_image":%q}]}`,
			id, u.alice, u.alice, u.good, u.bob, u.good), 0, 11600) // 11600: it is there already
		kd := u.WaitServing(id, "Available", harness.ServingAvailable)
		require.Equal(t, int64(1), kd.Generation)
		asks("update", fmt.Sprintf(`{"serving_id":%q,"parties":[{"domain_id":%q,"app_image":%q},{"domain_id":%q,"app_image":%q}]}`,
			id, u.alice, u.better, u.bob, u.better), 0)
		kd = u.WaitServing(id, "the new version", harness.ServingAvailable)
		require.Equal(t, int64(2), kd.Generation, "the same update twice is one")
		require.Equal(t, []string{"v2", "v2"}, []string{u.tag(u.alice, id), u.tag(u.bob, id)})
		for _, domain := range []string{u.alice, u.bob} {
			require.Equal(t, "2", u.deployment(domain, id).Annotations["deployment.kubernetes.io/revision"], "the pods are replaced once")
		}
		asks("delete", fmt.Sprintf(`{"serving_id":%q}`, id), 0, 11604) // 11604: it is gone already
		require.Eventually(t, func() bool { return u.Serving(u.Home, id) == nil }, harness.Patience, harness.Tick)
		require.Zero(t, leftOf(t, u.Engine, u.alice, id)+leftOf(t, u.Engine, u.bob, id))
		require.Eventually(t, func() bool { return u.operations(id) == 3 }, harness.Patience, harness.Tick, "a creation, an update, a deletion")
	}
	for round := range servings {
		require.Equal(t, 3, u.operations(fmt.Sprintf("server-%d", round)), "no operation was started twice")
	}
	harness.Covered(t, 3*servings, "random kills of a server during a serving")
}

// operations counts the workflows of a serving that are over.
func (u *union) operations(id string) int {
	u.t.Helper()
	list, err := u.Workflows.ListWorkflow(context.Background(), &workflowservice.ListWorkflowExecutionsRequest{Namespace: u.TemporalNamespace,
		Query: fmt.Sprintf("WorkflowType = '%s' AND SlipwayName = '%s' AND ExecutionStatus = 'Completed'", workflows.TypeServing, id)})
	require.NoError(u.t, err)
	return len(list.GetExecutions())
}
