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

func TestKusciasPathsAreAnsweredByItsOwnHandler(t *testing.T) {
	t.Parallel()
	var asked []string
	kuscia := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
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
		asked = nil
		answer := httptest.NewRecorder()
		a.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "http://127.0.0.1"+path, strings.NewReader("{}")))
		require.Equal(t, []string{path}, asked)
		require.Equal(t, http.StatusUnauthorized, answer.Code, "what it says is what the client gets, a wrong token included")
		require.Empty(t, answer.Body.String())
	}
}
