package download_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/activities/source/download"
	"slipway.io/slipway/release/source"
)

// site serves by HTTPS and by plain HTTP, under every name, and records the requests and their Authorization header.
type site struct {
	secure, plain *httptest.Server
	mutex         sync.Mutex
	requests      []string
	redirects     map[string]string
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{redirects: map[string]string{}}
	s.plain = serve(t, s.answer)
	s.secure = httptest.NewUnstartedServer(http.HandlerFunc(s.answer))
	s.secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.secure.StartTLS()
	t.Cleanup(s.secure.Close)
	return s
}

func (s *site) answer(w http.ResponseWriter, r *http.Request) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	host, _, _ := net.SplitHostPort(r.Host)
	s.requests = append(s.requests, scheme+"://"+host+r.URL.RequestURI()+" "+r.Header.Get("Authorization"))
	for name := range r.Header {
		if name != "Authorization" && name != "Accept-Encoding" && name != "User-Agent" && name != "Connection" {
			s.requests = append(s.requests, "also "+name)
		}
	}
	w.Header().Set("Set-Cookie", "session=1; Path=/")
	if target, ok := s.redirects[r.URL.Path]; ok {
		w.Header().Set("Location", target)
		w.WriteHeader(http.StatusFound)
		return
	}
	_, _ = io.WriteString(w, "package")
}

func port(server *httptest.Server) string {
	return strconv.Itoa(server.Listener.Addr().(*net.TCPAddr).Port)
}

func (s *site) https(host, path string) string {
	return "https://" + host + ":" + port(s.secure) + path
}

func (s *site) http(host, path string) string { return "http://" + host + ":" + port(s.plain) + path }

// options returns options that trust the site's certificate and resolve every name to it.
func (s *site) options(t *testing.T, data map[string]string) download.Options {
	t.Helper()
	options := download.Options{Allow: loopback(t), Resolver: atLoopback(t), RootCAs: x509.NewCertPool()}
	options.RootCAs.AddCert(s.secure.Certificate())
	if data != nil {
		bytes := map[string][]byte{}
		for key, value := range data {
			bytes[key] = []byte(value)
		}
		credentials, err := source.ParseCredentials("shop/nexus", bytes)
		require.NoError(t, err)
		options.Credentials = &credentials
	}
	return options
}

func TestCredentials_AreSentToNamedHostsOnly(t *testing.T) {
	const basic = "Basic bWU6cGFzcw=="
	for name, c := range map[string]struct {
		reason string
		from   func(*site) string
		// redirects maps paths to redirect targets.
		redirects func(*site) map[string]string
		requests  []string
	}{
		"named": {
			reason:   "the Secret names the host and its port",
			from:     func(s *site) string { return s.https("a.example.com", "/app.zip") },
			requests: []string{"https://a.example.com/app.zip " + basic},
		},
		"not named": {
			reason:   "another host of the same domain gets none",
			from:     func(s *site) string { return s.https("c.example.com", "/app.zip") },
			requests: []string{"https://c.example.com/app.zip "},
		},
		"plain": {
			reason:   "the Secret names the host for https only",
			from:     func(s *site) string { return s.http("a.example.com", "/app.zip") },
			requests: []string{"http://a.example.com/app.zip "},
		},
		"plain and permitted": {
			reason:   "the Secret permits plain http",
			from:     func(s *site) string { return s.http("plain.example.com", "/app.zip") },
			requests: []string{"http://plain.example.com/app.zip " + basic},
		},
		"redirect to another host": {
			reason: "a storage service must not see the registry's password",
			from:   func(s *site) string { return s.https("a.example.com", "/app.zip") },
			redirects: func(s *site) map[string]string {
				return map[string]string{"/app.zip": s.https("c.example.com", "/blob")}
			},
			requests: []string{"https://a.example.com/app.zip " + basic, "https://c.example.com/blob "},
		},
		"redirect to a subdomain": {
			reason: "net/http would send the header there; this client does not",
			from:   func(s *site) string { return s.https("a.example.com", "/app.zip") },
			redirects: func(s *site) map[string]string {
				return map[string]string{"/app.zip": s.https("127.0.0.1", "/blob")}
			},
			requests: []string{"https://a.example.com/app.zip " + basic, "https://127.0.0.1/blob "},
		},
		"redirect to another named host": {
			reason: "the Secret names both",
			from:   func(s *site) string { return s.https("c.example.com", "/app.zip") },
			redirects: func(s *site) map[string]string {
				return map[string]string{"/app.zip": s.https("b.example.com", "/blob")}
			},
			requests: []string{"https://c.example.com/app.zip ", "https://b.example.com/blob " + basic},
		},
		"redirect on the same host": {
			reason:    "a relative redirect stays on the host",
			from:      func(s *site) string { return s.https("a.example.com", "/app.zip") },
			redirects: func(*site) map[string]string { return map[string]string{"/app.zip": "/v1/app.zip"} },
			requests:  []string{"https://a.example.com/app.zip " + basic, "https://a.example.com/v1/app.zip " + basic},
		},
		"redirect to another port": {
			reason: "another port of the host is another service",
			from:   func(s *site) string { return s.https("a.example.com", "/app.zip") },
			redirects: func(s *site) map[string]string {
				return map[string]string{"/app.zip": s.http("a.example.com", "/blob")}
			},
			requests: []string{"https://a.example.com/app.zip " + basic, "http://a.example.com/blob "},
		},
		"down to http": {
			reason: "never from https to http, although the Secret permits plain http to this host",
			from:   func(s *site) string { return s.https("a.example.com", "/app.zip") },
			redirects: func(s *site) map[string]string {
				return map[string]string{"/app.zip": s.http("plain.example.com", "/blob")}
			},
			requests: []string{"https://a.example.com/app.zip " + basic, "http://plain.example.com/blob "},
		},
		"down to http, in two steps": {
			reason: "the downgrade is remembered over all redirects",
			from:   func(s *site) string { return s.https("a.example.com", "/app.zip") },
			redirects: func(s *site) map[string]string {
				return map[string]string{"/app.zip": s.http("c.example.com", "/two"),
					"/two": s.http("plain.example.com", "/blob")}
			},
			requests: []string{"https://a.example.com/app.zip " + basic, "http://c.example.com/two ",
				"http://plain.example.com/blob "},
		},
		"up to https": {
			reason: "the named host is reached by https",
			from:   func(s *site) string { return s.http("plain.example.com", "/app.zip") },
			redirects: func(s *site) map[string]string {
				return map[string]string{"/app.zip": s.https("a.example.com", "/blob")}
			},
			requests: []string{"http://plain.example.com/app.zip " + basic, "https://a.example.com/blob " + basic},
		},
	} {
		s := newSite(t)
		hosts := s.https("a.example.com", "") + ", b.example.com:" + port(s.secure) + "\n" +
			s.http("plain.example.com", "")
		if c.redirects != nil {
			s.redirects = c.redirects(s)
		}
		_, err := fetch(t, s.options(t, map[string]string{"username": "me", "password": "pass", "hosts": hosts}),
			c.from(s))
		require.NoError(t, err, name)
		require.Equal(t, c.requests, s.requests, "%s: %s", name, c.reason)
	}
}

func TestCredentialQuery_IsSentToNamedHostsOnly(t *testing.T) {
	s := newSite(t)
	s.redirects["/kept"] = "/blob?sig=s%2B3cret&x=1"
	s.redirects["/lost"] = "/blob?x=1"
	s.redirects["/away"] = s.https("c.example.com", "/blob?x=1")
	options := s.options(t, map[string]string{"query": "?sig=s%2B3cret", "hosts": s.https("a.example.com", "")})
	for path, want := range map[string][]string{
		"/app.zip":     {"https://a.example.com/app.zip?sig=s%2B3cret "},
		"/app.zip?v=1": {"https://a.example.com/app.zip?v=1&sig=s%2B3cret "},
		"/kept":        {"https://a.example.com/kept?sig=s%2B3cret ", "https://a.example.com/blob?sig=s%2B3cret&x=1 "},
		"/lost":        {"https://a.example.com/lost?sig=s%2B3cret ", "https://a.example.com/blob?x=1&sig=s%2B3cret "},
		"/away":        {"https://a.example.com/away?sig=s%2B3cret ", "https://c.example.com/blob?x=1 "},
	} {
		s.requests = nil
		_, err := fetch(t, options, s.https("a.example.com", path))
		require.NoError(t, err, path)
		require.Equal(t, want, s.requests, path)
	}
}

func TestUntrustedCertificates_AreRefused(t *testing.T) {
	s := newSite(t)
	options := s.options(t, nil)
	_, err := fetch(t, options, s.https("a.example.com", "/app.zip"))
	require.NoError(t, err)
	_, err = fetch(t, options, s.https("a.example.org", "/app.zip"))
	requireRefused(t, err, "the server's certificate is not trusted: x509: certificate is valid for example.com")
	options.RootCAs = x509.NewCertPool()
	_, err = fetch(t, options, s.https("a.example.com", "/app.zip"))
	requireRefused(t, err, "the server's certificate is not trusted: x509: certificate signed by unknown authority")

	_, err = fetch(t, s.options(t, nil), "https://a.example.com:"+port(s.plain)+"/app.zip")
	require.True(t, download.Is(err, download.Temporary))
	require.ErrorContains(t, err, "the server does not answer with TLS")

	old := newSite(t)
	old.secure.TLS.MaxVersion = tls.VersionTLS11
	_, err = fetch(t, old.options(t, nil), old.https("a.example.com", "/app.zip"))
	require.ErrorContains(t, err, "protocol version not supported")
	require.Empty(t, old.requests)
}

func TestForbidden_ExplainsWhyNoCredentialsWereSent(t *testing.T) {
	s := newSite(t)
	denied := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	at := "http://127.0.0.1:" + port(denied)
	s.redirects["/down"] = at
	for _, c := range []struct {
		hosts, from, says string
	}{
		{"", at, at + ": the server answered 401 Unauthorized: no credentials were sent"},
		{"127.0.0.1", at, "their Secret does not name this scheme, host and port in `hosts`"},
		{at, at, "401 Unauthorized: check the credentials"},
		{at, s.https("a.example.com", "/down"), "redirected to " + at +
			": the server answered 401 Unauthorized: no credentials were sent, because a redirect led from https to http"},
	} {
		var data map[string]string
		if c.hosts != "" {
			data = map[string]string{"token": "t", "hosts": c.hosts}
		}
		_, err := fetch(t, s.options(t, data), c.from)
		require.True(t, download.Is(err, download.NotAvailable))
		require.ErrorContains(t, err, c.says)
	}
}

func TestTrustedStore(t *testing.T) {
	var redirect, authorization string
	store := serve(t, func(w http.ResponseWriter, r *http.Request) {
		authorization = r.Header.Get("Authorization")
		if redirect != "" {
			http.Redirect(w, r, redirect, http.StatusFound)
			return
		}
		_, _ = io.WriteString(w, "package")
	})
	credentials, err := source.ParseCredentials("shop/nexus",
		map[string][]byte{"token": []byte("t"), "hosts": []byte(store.URL)})
	require.NoError(t, err)
	options := download.Options{Allow: allow(t), Credentials: &credentials, Trusted: []string{store.URL + "/packages/"}}

	_, err = fetch(t, options, store.URL+"/packages/sha256/00")
	require.NoError(t, err, "the store may have any address")
	require.Empty(t, authorization, "the store needs no credentials")
	for _, outside := range []string{"/", "/packagesx/00", "/packages/../metrics", "/packages/%2e%2e/metrics",
		"/packages/..%2fmetrics", "/packages//metrics"} {
		_, err = fetch(t, options, store.URL+outside)
		requireRefused(t, err, "(loopback)")
	}
	_, err = fetch(t, options, "https"+store.URL[len("http"):]+"/packages/sha256/00")
	requireRefused(t, err, "(loopback)")
	entrance := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, store.URL+"/packages/sha256/00", http.StatusFound)
	})
	options.Allow = allow(t, entrance.Listener.Addr().String())
	_, err = fetch(t, options, entrance.URL)
	requireRefused(t, err, "redirected to "+store.URL+"/packages/sha256/00: address")
	redirect = entrance.URL
	_, err = fetch(t, options, store.URL+"/packages/sha256/00")
	requireRefused(t, err, "the package store answered with a redirect")
}
