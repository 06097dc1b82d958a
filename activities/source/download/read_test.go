package download_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/activities/source/download"
)

func TestRead(t *testing.T) {
	t.Parallel()
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/list":
			w.Header().Set("Content-Type", "application/x-list; charset=utf-8")
			_, _ = io.WriteString(w, strings.Repeat("x", 1000))
		case "/part":
			w.WriteHeader(http.StatusNoContent)
		default:
			http.NotFound(w, r)
		}
	})
	client := download.New(download.Options{Allow: loopback(t)})
	document, err := client.Read(t.Context(), server.URL+"/list", 1000)
	require.NoError(t, err)
	require.Equal(t, "application/x-list", document.MediaType)
	require.Len(t, document.Body, 1000)
	_, err = client.Read(t.Context(), server.URL+"/list?sig=s3cr3t", 999)
	requireRefused(t, err, "larger than 999 bytes")
	require.NotContains(t, err.Error(), "s3cr3t")
	_, err = client.Read(t.Context(), server.URL+"/part", 999)
	requireRefused(t, err, "200 OK is needed")
	_, err = client.Read(t.Context(), server.URL+"/none", 999)
	require.True(t, download.Is(err, download.NotAvailable), "%v", err)
	_, err = download.New(download.Options{}).Read(t.Context(), server.URL+"/list", 1000)
	requireRefused(t, err, "SLIPWAY_SOURCE_ALLOW")
}
