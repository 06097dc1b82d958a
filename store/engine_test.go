package store_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/workload"
	"slipway.io/slipway/store"
	"slipway.io/slipway/test/harness"
)

func TestAnEngineHasOneUID(t *testing.T) {
	t.Parallel()
	stack := harness.SharedStack(t)
	own := stack.Namespace(t, "store")
	process := func() *store.Store {
		s, err := store.New(stack.REST, own, own)
		require.NoError(t, err)
		return s
	}
	var wg sync.WaitGroup
	engines := make([]workload.Engine, 5)
	for i := range engines {
		s := process()
		wg.Go(func() { engines[i], _ = s.Engine(testContext(t)) })
	}
	wg.Wait()
	require.NotEmpty(t, engines[0].UID)
	for _, engine := range engines {
		require.Equal(t, workload.Engine{UID: engines[0].UID, Name: own}, engine,
			"five processes that start at once get one UID, and the namespace as name")
	}

	server := process()
	server.SetEngineName("blue")
	renamed, err := server.Engine(testContext(t))
	require.NoError(t, err)
	require.Equal(t, workload.Engine{UID: engines[0].UID, Name: "blue"}, renamed,
		"a server sets the name, the UID is unchanged")
	worker, err := process().Engine(testContext(t))
	require.NoError(t, err)
	require.Equal(t, renamed, worker, "a worker uses the stored name")

	home, err := kubernetes.NewForConfig(stack.REST)
	require.NoError(t, err)
	maps := home.CoreV1().ConfigMaps(own)
	found, err := maps.Get(t.Context(), "slipway-engine", metav1.GetOptions{})
	require.NoError(t, err)
	found.Data["uid"] = ""
	_, err = maps.Update(t.Context(), found, metav1.UpdateOptions{})
	require.NoError(t, err)
	_, err = process().Engine(testContext(t))
	require.True(t, failure.Is(err, failure.Refused), "a removed UID is not replaced by a new one: %v", err)
	require.ErrorContains(t, err, "has no uid: restore the one in the claims of this engine's releases")
}
