package api

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/mocks"

	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/store"
)

func TestAPI_PassesKusciaPathsToItsHandler(t *testing.T) {
	t.Parallel()
	var requested []string
	kuscia := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requested = append(requested, r.URL.Path)
		w.WriteHeader(http.StatusUnauthorized)
	})
	a, err := New(Deps{Metrics: http.NotFoundHandler(), Kuscia: kuscia,
		Backend: backend.Backend{Home: &store.Store{}, Temporal: &mocks.Client{}, Log: slog.New(slog.DiscardHandler)}})
	require.NoError(t, err)
	var paths []string
	for path, item := range loadSpec(t).Paths.Map() {
		if item.Post != nil && slices.Contains(item.Post.Tags, "kuscia") {
			paths = append(paths, path)
		}
	}
	require.Len(t, paths, 12)
	for _, path := range paths {
		requested = nil
		answer := httptest.NewRecorder()
		a.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "http://127.0.0.1"+path, strings.NewReader("{}")))
		require.Equal(t, []string{path}, requested)
		require.Equal(t, http.StatusUnauthorized, answer.Code,
			"the client gets its response unchanged, including errors")
		require.Empty(t, answer.Body.String())
	}
}
