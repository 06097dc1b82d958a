package serving_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"k8s.io/client-go/kubernetes/fake"

	partyservings "slipway.io/slipway/activities/serving"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/serving"
)

// checks records the requested checks, by workflow ID.
type checks struct {
	client.Client
	mu    sync.Mutex
	asked map[string]serving.ExpectedRequest
}

func (c *checks) ExecuteWorkflow(_ context.Context, o client.StartWorkflowOptions, _ any,
	args ...any) (client.WorkflowRun, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, open := c.asked[o.ID]; !open {
		c.asked[o.ID] = args[0].(serving.ExpectedRequest)
	}
	return nil, nil
}

// Workers of one queue that serve different namespaces each check their own.
func TestObserver_ChecksNamespacesOfEachWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		temporal := &checks{asked: map[string]serving.ExpectedRequest{}}
		for _, namespaces := range [][]string{{"alice"}, {"bob", "carol"}, {"carol", "bob"}, nil} {
			acts := workerOf(t, namespaces)
			observer := partyservings.NewObserver(acts, temporal)
			require.NoError(t, observer.Start(t.Context()))
			synctest.Wait()
			require.NoError(t, observer.Stop(context.Background()))
		}
		var asked [][]string
		for _, one := range temporal.asked {
			require.Equal(t, "q", one.Queue)
			asked = append(asked, one.Namespaces)
		}
		slices.SortFunc(asked, slices.Compare[[]string])
		require.Equal(t, [][]string{nil, {"alice"}, {"bob", "carol"}}, asked,
			"the same namespaces are checked once, in any order")
	})
}

func workerOf(t *testing.T, namespaces []string) *partyservings.Activities {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	cluster := fake.NewClientset()
	watch := partyservings.NewWatch(cluster, namespaces, log)
	return partyservings.New(cluster, nil, watch, partyservings.Options{Namespaces: namespaces, Queues: []string{"q"},
		Logger: log})
}

// A worker that does not serve the namespace leaves the check to another worker of the queue.
func TestCheck_IsNotReady_WhenNamespaceIsNotServed(t *testing.T) {
	t.Parallel()
	expected := serving.CheckRequest{Expected: []serving.Expected{{ID: "s1", Domain: "bob", Deployment: "s1"}}}
	_, err := workerOf(t, []string{"alice"}).Check(t.Context(), expected)
	requireKind(t, failure.NotReady, err)
	found, err := workerOf(t, []string{"bob"}).Check(t.Context(), expected)
	require.NoError(t, err)
	require.Len(t, found.Missing, 1)
}
