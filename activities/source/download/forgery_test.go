package download_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/activities/source/download"
	"slipway.io/slipway/release/source"
)

// fetch calls Fetch with a file that the test does not read.
func fetch(t *testing.T, options download.Options, rawURL string) (source.Fetched, error) {
	t.Helper()
	return download.New(options).Fetch(context.Background(), rawURL, newFile(t))
}

func requireRefused(t *testing.T, err error, says string) {
	t.Helper()
	require.Error(t, err)
	require.True(t, download.Is(err, download.Refused), err.Error())
	require.ErrorContains(t, err, says)
}

func TestDNSRebinding_IsRefused(t *testing.T) {
	var outsideHits, insideHits atomic.Int32
	outside, err := net.Listen("tcp", "127.0.0.2:0")
	require.NoError(t, err)
	port := outside.Addr().(*net.TCPAddr).Port
	inside, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	require.NoError(t, err)
	serveAt := func(listener net.Listener, count *atomic.Int32) {
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			count.Add(1)
			_, _ = io.WriteString(w, "package")
		})}
		go func() { _ = server.Serve(listener) }()
		t.Cleanup(func() { server.Close() })
	}
	serveAt(outside, &outsideHits)
	serveAt(inside, &insideHits)
	var lookups atomic.Int32
	resolver := newResolver(t, func() string {
		if lookups.Add(1) == 1 {
			return "127.0.0.2"
		}
		return "127.0.0.1"
	})
	// 127.0.0.2 is the allowed address of the attacker's name, and 127.0.0.1 the internal service that the name is
	// rebound to.
	client := download.New(download.Options{Allow: allow(t, "127.0.0.2"), Resolver: resolver})
	address := fmt.Sprintf("http://rebind.example.com:%d/app.zip", port)

	_, err = client.Fetch(context.Background(), address, newFile(t))
	require.NoError(t, err)
	require.EqualValues(t, 1, lookups.Load(), "the checked address is the one connected to: there is only one lookup")
	_, err = client.Fetch(context.Background(), address, newFile(t))
	requireRefused(t, err, fmt.Sprintf("host rebind.example.com resolves to 127.0.0.1:%d (loopback)", port))
	require.EqualValues(t, 1, outsideHits.Load())
	require.Zero(t, insideHits.Load())
}

func TestForgedURLs_AreRefused(t *testing.T) {
	server := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the server was asked") })
	port := server.Listener.Addr().(*net.TCPAddr).Port
	for forged, says := range map[string]string{
		"http://127.0.0.1:%d/":                     "(loopback)",
		"http://127.0.0.1.:%d/":                    "(loopback)",
		"http://[::ffff:127.0.0.1]:%d/":            "(loopback)",
		"http://[::ffff:7f00:1]:%d/":               "(loopback)",
		"http://[64:ff9b::127.0.0.1]:%d/":          "as it means 127.0.0.1",
		"http://0.0.0.0:%d/":                       "(unspecified)",
		"http://[::]:%d/":                          "(unspecified)",
		"http://[::1]:%d/":                         "(loopback)",
		"http://[fe80::1%%25lo]:%d/":               "zones",
		"http://2130706433:%d/":                    "notation",
		"http://0177.0.0.1:%d/":                    "notation",
		"http://0x7f.0.0.1:%d/":                    "notation",
		"http://127.1:%d/":                         "notation",
		"http://１２７.０.０.１:%d/":                     "(loopback)",
		"http://①②⑦.0.0.1:%d/":                     "(loopback)",
		"http://LOCALHOST:%d/":                     "(loopback)",
		"http://localhost.:%d/":                    "(loopback)",
		"http://name.example.com:%d/":              "(loopback)",
		"http://name.example.com.:%d/":             "(loopback)",
		"http://public.example@127.0.0.1:%d/":      "user name",
		"http://:@127.0.0.1:%d/":                   "user name",
		"ftp://127.0.0.1:%d/":                      "only http and https",
		"file://127.0.0.1:%d/etc/passwd":           "only http and https",
		"gopher://127.0.0.1:%d/":                   "only http and https",
		"//127.0.0.1:%d/":                          "only http and https",
		"http://169.254.169.254/latest/?port=%d":   "(link-local)",
		"http://[2002:7f00:1::1]:%d/":              "as it means 127.0.0.1",
		"http://[2001:0:7f00:1::8100:fffe]:%d/":    "(Teredo)",
		"http://255.255.255.255:%d/":               "(broadcast)",
		"http://example.com#@127.0.0.1:%d/a b%%zz": "not a valid URL",
	} {
		target := fmt.Sprintf(forged, port)
		_, err := fetch(t, download.Options{Allow: allow(t), Resolver: atLoopback(t)}, target)
		requireRefused(t, err, says)

		// A redirect from an allowed server is refused in the same way.
		entrance := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Location"] = []string{target}
			w.WriteHeader(http.StatusTemporaryRedirect)
		})
		if strings.HasPrefix(target, "//") {
			says = "(loopback)" // a scheme-relative URL is valid in a redirect
		}
		if strings.Contains(says, "not a valid URL") {
			says = "not a URL"
		}
		_, err = fetch(t, download.Options{Allow: allow(t, "public", entrance.Listener.Addr().String()),
			Resolver: atLoopback(t)}, entrance.URL)
		requireRefused(t, err, says)
	}
}

func TestRedirects(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var left int
		switch _, err := fmt.Sscanf(r.URL.Path, "/%d", &left); {
		case r.URL.Path == "/nowhere":
			w.WriteHeader(http.StatusFound)
		case r.URL.Path == "/bad":
			w.Header()["Location"] = []string{"http://[::1/?token=s3cret"}
			w.WriteHeader(http.StatusFound)
		case r.URL.Path == "/choices":
			w.Header().Set("Location", "/0")
			w.WriteHeader(http.StatusMultipleChoices)
		case err == nil && left > 0:
			status := []int{301, 302, 303, 307, 308}[left%5]
			http.Redirect(w, r, fmt.Sprintf("%d", left-1), status)
		default:
			_, _ = io.WriteString(w, "package")
		}
	})
	options := download.Options{Allow: loopback(t)}
	done, err := fetch(t, options, server.URL+"/10")
	require.NoError(t, err)
	require.Equal(t, server.URL+"/0", done.FinalURL)
	for path, says := range map[string]string{
		"/11":      "more than 10 redirects",
		"/nowhere": "without a target",
		"/bad":     "not a URL",
		"/choices": "300 Multiple Choices",
	} {
		_, err := fetch(t, options, server.URL+path)
		requireRefused(t, err, says)
	}
}

func TestRedirect_PortIsChecked(t *testing.T) {
	inner := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the inner server was asked") })
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, inner.URL+"/?stolen=s3cret", http.StatusFound)
	})
	_, err := fetch(t, download.Options{Allow: allow(t, server.Listener.Addr().String())}, server.URL+"/app.zip")
	requireRefused(t, err, "redirected to "+inner.URL+"/?…: address "+inner.Listener.Addr().String()+
		" (loopback) is not an allowed source")
}

func TestProxyEnvironment_IsIgnored(t *testing.T) {
	proxy := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the proxy was asked") })
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY"} {
		t.Setenv(name, proxy.URL)
	}
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "package") })
	u, err := url.Parse(server.URL)
	require.NoError(t, err)
	// A host name, because the standard library never uses a proxy for loopback addresses.
	_, err = fetch(t, download.Options{Allow: loopback(t), Resolver: atLoopback(t)},
		"http://name.example.com:"+u.Port())
	require.NoError(t, err)
}

// A server may echo the request in every place that an HTTP client quotes in its errors.
func TestSecrets_AreNotLoggedOrReported(t *testing.T) {
	raw := rawServer(t, func(request string) string {
		line, _, _ := strings.Cut(request, "\r\n")
		_, path, _ := strings.Cut(line, " /")
		mode, _, _ := strings.Cut(path, "?")
		switch mode {
		case "garbage":
			return line + "\r\n\r\n"
		case "header":
			return "HTTP/1.1 200 OK\r\n" + line + " without a colon\r\n\r\n"
		case "status":
			return "HTTP/1.1 404 " + line + "\r\nContent-Length: 0\r\n\r\n"
		case "code":
			return "HTTP/1.1 s3cret " + line + "\r\n\r\n"
		case "length":
			return "HTTP/1.1 200 OK\r\nContent-Length: s3cret" + "\r\n\r\n"
		case "encoding":
			return "HTTP/1.1 200 OK\r\nTransfer-Encoding: s3cret" + "\r\n\r\n"
		case "chunk":
			return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\ns3cret\r\n"
		case "compressed":
			return "HTTP/1.1 200 OK\r\nContent-Encoding: s3cret\r\nContent-Length: 0\r\n\r\n"
		case "redirect":
			return "HTTP/1.1 302 Found\r\nLocation: http://user:s3cret@127.0.0.1/?s3cret\r\nContent-Length: 0\r\n\r\n"
		case "scheme":
			return "HTTP/1.1 302 Found\r\nLocation: ftp://127.0.0.1/?s3cret\r\nContent-Length: 0\r\n\r\n"
		case "bad":
			return "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:s3cret/\r\nContent-Length: 0\r\n\r\n"
		case "inner":
			return "HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/?s3cret\r\nContent-Length: 0\r\n\r\n"
		case "short":
			return "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ns3cret"
		}
		return ""
	})
	for _, mode := range []string{"garbage", "header", "status", "code", "length", "encoding", "chunk", "compressed",
		"redirect", "scheme", "bad",
		"inner", "short", "closed"} {
		var lines bytes.Buffer
		log := slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelDebug}))
		_, err := fetch(t, download.Options{Allow: loopback(t), Log: log}, raw+"/"+mode+"?signature=s3cret")
		require.Error(t, err, mode)
		require.ErrorContains(t, err, raw+"/"+mode+"?…: ", mode)
		require.NotContains(t, fmt.Sprintf("%v %+v %q", err, err, err), "s3cret", mode)
		require.NotContains(t, lines.String(), "s3cret", mode)
	}
	for _, unreadable := range []string{"http://user:s3cret@" + raw[len("http://"):], "http://127.0.0.1:s3cret",
		"s3cret", "http://s3cret%zz"} {
		_, err := fetch(t, download.Options{Allow: loopback(t)}, unreadable)
		require.Error(t, err)
		require.NotContains(t, err.Error(), "s3cret", unreadable)
	}
}

// rawServer answers each connection's request with the bytes that answer returns, then closes it.
func rawServer(t *testing.T, answer func(request string) string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				request := make([]byte, 4096)
				n, _ := connection.Read(request)
				_, _ = io.WriteString(connection, answer(string(request[:n])))
			}()
		}
	}()
	return "http://" + listener.Addr().String()
}

func newReader(text string) *bufio.Reader { return bufio.NewReader(strings.NewReader(text)) }
