package store_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/store"
)

func TestListParties_ReadsAllPages_AlsoPastForgottenCursor(t *testing.T) {
	t.Parallel()
	pages := map[string]struct {
		status int
		body   string
	}{
		"": {http.StatusOK, `{"kind":"PartyList","apiVersion":"slipway.io/v1alpha1","metadata":{"continue":"old"},
			"items":[{"metadata":{"name":"alice"}},{"metadata":{"name":"bob"}}]}`},
		"old": {http.StatusGone, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"reason":"Expired",
			"metadata":{"continue":"new"}}`},
		"new": {http.StatusOK, `{"kind":"PartyList","apiVersion":"slipway.io/v1alpha1","metadata":{},
			"items":[{"metadata":{"name":"carol"}}]}`},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page := pages[r.URL.Query().Get("continue")]
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(page.status)
		_, _ = w.Write([]byte(page.body))
	}))
	t.Cleanup(server.Close)
	home, err := store.New(&rest.Config{Host: server.URL}, "", "")
	require.NoError(t, err)
	found, err := home.ListParties(testContext(t))
	require.NoError(t, err)
	var names []string
	for _, party := range found {
		names = append(names, party.Name)
	}
	require.Equal(t, []string{"alice", "bob", "carol"}, names)
}

// An API server that hangs is noticed. A watch lasts as long as the process.
func TestRequests_AreBoundedExceptWatches(t *testing.T) {
	t.Parallel()
	timeouts := make(chan string, 1000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case timeouts <- r.URL.Query().Get("timeout"):
		default:
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(server.Close)
	home, err := store.New(&rest.Config{Host: server.URL}, "", "")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(testContext(t))
	for name, ask := range map[string]func() error{
		"DeployPlan":     func() error { _, err := home.GetPlan(ctx, "shop"); return err },
		"TrafficRouting": func() error { _, err := home.GetTrafficRouting(ctx, "shop", "mse"); return err },
		"Namespace":      func() error { return home.CheckCluster(ctx) },
		"Record":         func() error { _, err := home.PruneRecords(ctx, "Task", "shop", "", 0); return err },
	} {
		require.Error(t, ask(), name)
		require.Equal(t, "10s", <-timeouts, name)
	}
	var watching sync.WaitGroup
	watching.Go(func() { home.Run(ctx) })
	watching.Go(func() { home.WatchConversion(ctx, func() {}) })
	for range 3 {
		require.NotEqual(t, "10s", <-timeouts)
	}
	cancel()
	watching.Wait()
}
