package download_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/activities/source/download"
)

// part is one response of a server whose connections break.
type part struct {
	status  int
	header  string
	body    string
	cut     int // bytes by which the declared length exceeds the body, or completeChunks
	chunked bool
}

// completeChunks as cut means that a chunked body is complete.
const completeChunks = -1

func (p part) bytes() string {
	if p.status == 0 {
		return ""
	}
	head := fmt.Sprintf("HTTP/1.1 %d X\r\n%s", p.status, strings.ReplaceAll(p.header, "\n", "\r\n"))
	if p.header != "" {
		head += "\r\n"
	}
	if p.chunked {
		end := map[bool]string{true: "0\r\n\r\n"}[p.cut == completeChunks]
		return head + fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n%s", len(p.body), p.body, end)
	}
	return head + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(p.body)+p.cut, p.body)
}

func TestContinuationOfInterruptedDownload(t *testing.T) {
	const etag, other = `ETag: "1"`, `ETag: "2"`
	whole := part{200, etag, "0123", 6, false}
	broken := "the connection ended before the whole answer had arrived"
	spoiled := "did not continue the same file"
	for _, c := range []struct {
		reason string
		parts  []part
		// asks are the headers Range and If-Range of each request.
		asks []string
		body string
		says string
	}{
		{"the rest", []part{whole, {206, etag + "\nContent-Range: bytes 4-9/10", "456789", 0, false}},
			[]string{"", `bytes=4- "1"`}, "0123456789", ""},
		{"the rest, in three pieces", []part{whole, {206, etag + "\nContent-Range: bytes 4-9/10", "45", 4, false},
			{206, etag + "\nContent-Range: bytes 6-9/10", "6789", 0, false}},
			[]string{"", `bytes=4- "1"`, `bytes=6- "1"`}, "0123456789", ""},
		{"the first response had no length", []part{{200, etag, "0123", 0, true},
			{206, etag + "\nContent-Range: bytes 4-9/10", "456789", 0, false}},
			[]string{"", `bytes=4- "1"`}, "0123456789", ""},
		{"the server is unavailable for a moment",
			[]part{whole, {}, {503, "Retry-After: 9", "", 0, false},
				{206, etag + "\nContent-Range: bytes 4-9/10", "456789", 0, false}},
			[]string{"", `bytes=4- "1"`, `bytes=4- "1"`, `bytes=4- "1"`}, "0123456789", ""},
		{"the file has changed: the complete file again", []part{whole, {200, other, "abc", 0, false}},
			[]string{"", `bytes=4- "1"`}, "abc", ""},
		{"the changed file breaks off too, and is continued with its own ETag",
			[]part{whole, {200, other, "abc", 2, false}, {206, other + "\nContent-Range: bytes 3-4/5", "de", 0, false}},
			[]string{"", `bytes=4- "1"`, `bytes=3- "2"`}, "abcde", ""},
		{"no ETag", []part{{200, "", "0123", 6, false}}, []string{""}, "", broken},
		{"a weak ETag does not identify exact bytes", []part{{200, `ETag: W/"1"`, "0123", 6, false}}, []string{""}, "",
			broken},
		{"a date does not identify exact bytes", []part{{200, "Last-Modified: Mon, 23 Nov 2026 10:00:00 GMT", "0123", 6,
			false}}, []string{""}, "", broken},
		{"nothing had arrived", []part{{200, etag, "", 6, false}}, []string{""}, "", broken},
		{"a part of another version", []part{whole, {206, other + "\nContent-Range: bytes 4-9/10", "456789", 0, false}},
			[]string{"", `bytes=4- "1"`}, "", spoiled},
		{"a part without a version", []part{whole, {206, "Content-Range: bytes 4-9/10", "456789", 0, false}},
			[]string{"", `bytes=4- "1"`}, "", spoiled},
		{"another part", []part{whole, {206, etag + "\nContent-Range: bytes 5-9/10", "56789", 0, false}},
			[]string{"", `bytes=4- "1"`}, "", spoiled},
		{"a part in the middle", []part{whole, {206, etag + "\nContent-Range: bytes 4-8/10", "45678", 0, false}},
			[]string{"", `bytes=4- "1"`}, "", spoiled},
		{"a part of another size", []part{whole, {206, etag + "\nContent-Range: bytes 4-10/11", "456789a", 0, false}},
			[]string{"", `bytes=4- "1"`}, "", spoiled},
		{"a body of another length than its part",
			[]part{whole, {206, etag + "\nContent-Range: bytes 4-9/10", "45678", 0, false}},
			[]string{"", `bytes=4- "1"`}, "", spoiled},
		{"a chunked part that is shorter than its header claims",
			[]part{whole, {206, etag + "\nContent-Range: bytes 4-9/10", "45", completeChunks, true}},
			[]string{"", `bytes=4- "1"`}, "", spoiled},
		{"a chunked part that is longer than its header claims",
			[]part{whole, {206, etag + "\nContent-Range: bytes 4-9/10", "456789a", completeChunks, true}},
			[]string{"", `bytes=4- "1"`}, "", spoiled},
		{"a chunked part", []part{whole, {206, etag + "\nContent-Range: bytes 4-9/10", "456789", completeChunks, true}},
			[]string{"", `bytes=4- "1"`}, "0123456789", ""},
		{"an unknown part", []part{whole, {206, etag, "456789", 0, false}}, []string{"", `bytes=4- "1"`}, "", spoiled},
		{"an unknown size", []part{whole, {206, etag + "\nContent-Range: bytes 4-9/*", "456789", 0, false}},
			[]string{"", `bytes=4- "1"`}, "", spoiled},
		{"a compressed part", []part{whole, {206, etag + "\nContent-Encoding: gzip\nContent-Range: bytes 4-9/10",
			"456789", 0, false}},
			[]string{"", `bytes=4- "1"`}, "", spoiled},
		{"no such part", []part{whole, {416, etag + "\nContent-Range: bytes */3", "", 0, false}},
			[]string{"", `bytes=4- "1"`}, "", spoiled},
		{"no longer available", []part{whole, {404, "", "", 0, false}}, []string{"", `bytes=4- "1"`}, "", "404"},
		{"too large after all", []part{{200, etag, "0123", 0, true},
			{206, etag + "\nContent-Range: bytes 4-99/100", "456789", 90, false}},
			[]string{"", `bytes=4- "1"`}, "", "larger than the limit"},
		{"the number of continuations is limited", []part{whole, {}, {}, {}, {}, {}, {}, {}},
			[]string{"", `bytes=4- "1"`, `bytes=4- "1"`, `bytes=4- "1"`, `bytes=4- "1"`, `bytes=4- "1"`}, "",
			"closed the connection without an answer"},
	} {
		var asks []string
		server := rawServer(t, func(request string) string {
			r, err := http.ReadRequest(newReader(request))
			if err != nil {
				return ""
			}
			asks = append(asks, strings.TrimSpace(r.Header.Get("Range")+" "+r.Header.Get("If-Range")))
			if len(asks) > len(c.parts) {
				return ""
			}
			return c.parts[len(asks)-1].bytes()
		})
		var pauses []time.Duration
		client := download.New(download.Options{Allow: loopback(t), MaxBytes: 20}).WithoutPauses(
			func(wait time.Duration) { pauses = append(pauses, wait) })
		file := newFile(t)
		done, err := client.Fetch(context.Background(), server+"/app.zip", file)
		require.Equal(t, c.asks, asks, c.reason)
		require.Len(t, pauses, len(asks)-1, c.reason)
		if c.says != "" {
			require.ErrorContains(t, err, c.says, c.reason)
			continue
		}
		require.NoError(t, err, c.reason)
		require.Equal(t, c.body, content(t, file), c.reason)
		require.Equal(t, digest(c.body), done.SHA256, c.reason)
		require.EqualValues(t, len(c.body), done.Bytes, c.reason)
		if c.reason == "the server is unavailable for a moment" {
			require.Equal(t, 9*time.Second, pauses[2], "the server's Retry-After")
		}
	}
}

// If the second request is redirected to another server, it gets another file, even with the same ETag.
func TestContinuation_WhenRedirectedElsewhere(t *testing.T) {
	count := 0
	broken := rawServer(t, func(string) string { return part{200, `ETag: "1"`, "0123", 6, false}.bytes() })
	elsewhere := rawServer(t, func(string) string {
		return part{206, "ETag: \"1\"\nContent-Range: bytes 4-9/10", "456789", 0, false}.bytes()
	})
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		count++
		http.Redirect(w, r, map[bool]string{true: broken, false: elsewhere}[count == 1], http.StatusFound)
	})
	client := download.New(download.Options{Allow: loopback(t)}).WithoutPauses(func(time.Duration) {})
	_, err := client.Fetch(context.Background(), server.URL+"/app.zip", newFile(t))
	require.True(t, download.Is(err, download.Temporary))
	require.ErrorContains(t, err, "did not continue the same file")
}

// The standard library's file server, with a connection that breaks after every 3000 bytes.
func TestContinuation_WithStandardFileServer(t *testing.T) {
	body := strings.Repeat("0123456789", 1000)
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"1"`)
		http.ServeContent(&truncatingWriter{ResponseWriter: w, left: 3000}, r, "app.zip", time.Time{},
			strings.NewReader(body))
	})
	client := download.New(download.Options{Allow: loopback(t)}).WithoutPauses(func(time.Duration) {})
	done, err := client.Fetch(context.Background(), server.URL, newFile(t))
	require.NoError(t, err)
	require.Equal(t, digest(body), done.SHA256)
}

func TestContinuation_StopsWhenContextEnds(t *testing.T) {
	server := rawServer(t, func(string) string { return part{200, `ETag: "1"`, "0123", 6, false}.bytes() })
	ctx, cancel := context.WithCancel(context.Background())
	client := download.New(download.Options{Allow: loopback(t)}).WithoutPauses(func(time.Duration) { cancel() })
	_, err := client.Fetch(ctx, server, newFile(t))
	require.ErrorIs(t, err, context.Canceled)
}

// truncatingWriter breaks the connection after some bytes.
type truncatingWriter struct {
	http.ResponseWriter
	left int
}

func (c *truncatingWriter) Write(bytes []byte) (int, error) {
	if len(bytes) <= c.left {
		c.left -= len(bytes)
		return c.ResponseWriter.Write(bytes)
	}
	_, _ = c.ResponseWriter.Write(bytes[:c.left])
	_ = http.NewResponseController(c.ResponseWriter).Flush()
	panic(http.ErrAbortHandler)
}
