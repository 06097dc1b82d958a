package store_test

import (
	"net/http"
	"net/http/httptest"
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
