package download_test

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/activities/source/download"
	"slipway.io/slipway/release/source"
)

func TestUnchanged(t *testing.T) {
	const date, later = "Mon, 23 Nov 2026 10:00:00 GMT", "Mon, 23 Nov 2026 10:00:01 GMT"
	type version struct {
		etag, modified, body string
		// deaf: the server ignores conditions. chunked: it sends no length. target: it redirects there first.
		deaf, chunked bool
		target        string
	}
	for _, c := range []struct {
		reason   string
		was, now version
		want     bool
	}{
		{"a strong ETag", version{etag: `"1"`, body: "a"}, version{etag: `"1"`, body: "a"}, true},
		{"a weak ETag", version{etag: `W/"1"`, body: "a"}, version{etag: `W/"1"`, body: "a"}, true},
		{"a balancer that weakens", version{etag: `"1"`, body: "a"}, version{etag: `W/"1"`, body: "a", deaf: true},
			true},
		{"another ETag and length", version{etag: `"1"`, body: "a"}, version{etag: `"2"`, body: "bb"},
			false},
		{"another ETag alone proves nothing", version{etag: `"1"`, body: "a"}, version{etag: `"2"`, body: "b"},
			false},
		{"a date", version{modified: date, body: "a"}, version{modified: date, body: "a"}, true},
		{"another date alone proves nothing", version{modified: date, body: "a"}, version{modified: later, body: "b"},
			false},
		{"another date and length", version{modified: date, body: "a"}, version{modified: later, body: "bb"},
			false},
		{"an ETag counts more than a date", version{etag: `"1"`, modified: date, body: "a"},
			version{etag: `"2"`, modified: date, body: "b"}, false},
		{"conditions ignored, same ETag", version{etag: `"1"`, body: "a"}, version{etag: `"1"`, body: "a", deaf: true},
			true},
		{"conditions ignored, same date and length", version{modified: date, body: "a"},
			version{modified: date, body: "a", deaf: true}, true},
		{"conditions ignored, same date, no length", version{modified: date, body: "a"},
			version{modified: date, body: "a", deaf: true, chunked: true}, false},
		{"conditions ignored, same ETag, no length", version{etag: `"1"`, body: "a"},
			version{etag: `"1"`, body: "a", deaf: true, chunked: true}, true},
		{"nothing to compare", version{body: "a"}, version{body: "a"}, false},
		{"nothing to compare but the length", version{body: "a"}, version{body: "bb"}, false},
		{"nothing to compare and no length", version{body: "a"}, version{body: "bb", chunked: true}, false},
		{"a redirect to the same place", version{etag: `"1"`, body: "a", target: "/v1?sig=1"},
			version{etag: `"1"`, body: "a", target: "/v1?sig=2"}, true},
		{"a redirect to another place with the same ETag", version{etag: `"1"`, body: "a", target: "/v1"},
			version{etag: `"1"`, body: "a", target: "/v2"}, false},
		{"the same, conditions ignored", version{etag: `"1"`, body: "a", target: "/v1"},
			version{etag: `"1"`, body: "a", target: "/v2", deaf: true}, false},
		{"a redirect that differs in its query, with a date alone", version{modified: date, body: "a", target: "/v?1"},
			version{modified: date, body: "a", target: "/v?2"}, false},
	} {
		now := c.was
		server := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if now.target != "" && r.URL.Path == "/latest.zip" {
				http.Redirect(w, r, now.target, http.StatusFound)
				return
			}
			for name, value := range map[string]string{"ETag": now.etag, "Last-Modified": now.modified} {
				if value != "" {
					w.Header().Set(name, value)
				}
			}
			if now.deaf {
				r.Header.Del("If-None-Match")
				r.Header.Del("If-Modified-Since")
			}
			if !now.chunked && r.Header.Get("If-None-Match") == "" && r.Header.Get("If-Modified-Since") == "" {
				w.Header().Set("Content-Length", strconv.Itoa(len(now.body)))
			}
			if now.chunked {
				w.(http.Flusher).Flush()
				_, _ = io.WriteString(w, now.body)
				return
			}
			conditional(w, r, now.body)
		})
		client := download.New(download.Options{Allow: loopback(t)})
		was, err := client.Fetch(context.Background(), server.URL+"/latest.zip", newFile(t))
		require.NoError(t, err, c.reason)
		now = c.now
		answer, err := client.Unchanged(context.Background(), server.URL+"/latest.zip", was)
		require.NoError(t, err, c.reason)
		require.Equal(t, c.want, answer, c.reason)
	}
}

// conditional answers like the standard library's file server.
func conditional(w http.ResponseWriter, r *http.Request, body string) {
	modified, _ := http.ParseTime(w.Header().Get("Last-Modified"))
	http.ServeContent(w, r, "app.zip", modified, strings.NewReader(body))
}

func TestUnchanged_FailsWhenNotAvailable(t *testing.T) {
	status := http.StatusNotFound
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	client := download.New(download.Options{Allow: loopback(t)})
	answer, err := client.Unchanged(context.Background(), server.URL+"/app.zip?s3cret", source.Fetched{ETag: `"1"`})
	require.True(t, download.Is(err, download.NotAvailable))
	require.EqualError(t, err, server.URL+"/app.zip?…: the server answered 404 Not Found: check the URL")
	require.False(t, answer)
	status = http.StatusServiceUnavailable
	_, err = client.Unchanged(context.Background(), server.URL, source.Fetched{ETag: `"1"`})
	require.True(t, download.Is(err, download.Temporary))
	_, err = download.New(download.Options{Allow: allow(t)}).Unchanged(context.Background(), server.URL,
		source.Fetched{ETag: `"1"`})
	require.True(t, download.Is(err, download.Refused))
}

// Checking a large package must not read its body.
func TestUnchanged_ReadsNoBody(t *testing.T) {
	ended := make(chan error, 1)
	block := make([]byte, 1<<20)
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", `"1"`)
		for {
			if _, err := w.Write(block); err != nil {
				ended <- err
				return
			}
		}
	})
	answer, err := download.New(download.Options{Allow: loopback(t)}).Unchanged(context.Background(), server.URL,
		source.Fetched{ETag: `"1"`, FinalURL: server.URL})
	require.NoError(t, err)
	require.True(t, answer)
	require.Error(t, <-ended, "the connection is closed")
}
