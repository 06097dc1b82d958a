package auth

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/api/problem"
)

func TestHosts_Allows(t *testing.T) {
	t.Parallel()
	hosts := NewHosts([]string{"127.0.0.1:8080", "0.0.0.0:8082", "api.internal:80", "[fd00::7]:8083", ""},
		[]string{"Slipway.Example.", "10.0.0.7"})
	local := &net.TCPAddr{IP: net.ParseIP("192.168.1.5"), Port: 8080}
	for _, c := range []struct {
		reason, host string
		known        bool
	}{
		{"Loopback is this machine.", "127.0.0.1:8080", true},
		{"Every loopback address.", "127.8.9.1", true},
		{"In IPv6 too.", "[::1]:8080", true},
		{"And without a port.", "[::1]", true},
		{"And as IPv4 in IPv6.", "[::ffff:127.0.0.1]:80", true},
		{"The name localhost is always allowed.", "localhost:8080", true},
		{"Names are case-insensitive.", "LocalHost", true},
		{"A trailing dot is ignored.", "localhost.", true},
		{"A published port may differ from the listening port.", "localhost:18080", true},
		{"The name that the engine listens on.", "api.internal:8080", true},
		{"The address that the engine listens on, in any notation.", "[fd00:0:0::7]", true},
		{"A name of the setting.", "slipway.example:443", true},
		{"An address of the setting.", "10.0.0.7:8080", true},
		{"The address that the request arrived at.", "192.168.1.5:8080", true},
		{"Only old programs send no host, no browser.", "", true},
		{"A page's own name may resolve to this machine.", "evil.example", false},
		{"A name that begins with an allowed name.", "localhost.evil.example:8080", false},
		{"A name that begins with an allowed address.", "127.0.0.1.evil.example", false},
		{"A name that ends with an allowed name.", "evilslipway.example", false},
		{"Another machine's address.", "10.0.0.8:8080", false},
		{"The unspecified address.", "0.0.0.0:8080", false},
		{"A subdomain is another name.", "evil.localhost", false},
		{"A malformed host.", "localhost:80:80", false},
		{"Brackets without an address.", "[evil.example]:80", false},
	} {
		require.Equal(t, c.known, hosts.Allows(c.host, local), "%s: %q", c.reason, c.host)
	}
	require.False(t, Hosts{}.Allows("slipway.example", nil), "without settings, only loopback is allowed")
	require.True(t, Hosts{}.Allows("127.0.0.1", nil))
}

func TestGuard_RefusesRequestsOfOtherSites(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason  string
		headers map[string]string
		foreign bool
	}{
		{"A program sends no origin.", nil, false},
		{"A page of this engine.", map[string]string{"Origin": "http://127.0.0.1:8080",
			"Sec-Fetch-Site": "same-origin"}, false},
		{"An address typed into the browser.", map[string]string{"Sec-Fetch-Site": "none"}, false},
		{"A TLS-terminating proxy is in front of the engine.", map[string]string{"Origin": "https://127.0.0.1:8080"},
			false},
		{"Any other page.", map[string]string{"Origin": "https://evil.example"}, true},
		{"Another port of this machine.", map[string]string{"Origin": "http://127.0.0.1:3000"}, true},
		{"Another name of this machine.", map[string]string{"Origin": "http://localhost:8080"}, true},
		{"A page without an origin: a file, or a sandboxed frame.", map[string]string{"Origin": "null"}, true},
		{"A malformed origin.", map[string]string{"Origin": "http://%zz"}, true},
		{"The browser reports another site.", map[string]string{"Sec-Fetch-Site": "cross-site"}, true},
		{"The browser reports another port of this machine.", map[string]string{"Sec-Fetch-Site": "same-site"}, true},
		{"An unknown value, e.g. of a later browser.", map[string]string{"Sec-Fetch-Site": "near-site"}, true},
		{"Contradicting headers.", map[string]string{"Origin": "https://evil.example", "Sec-Fetch-Site": "same-origin"},
			true},
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodOptions} {
			r := httptest.NewRequest(method, "http://127.0.0.1:8080/", nil)
			for name, value := range c.headers {
				r.Header.Set(name, value)
			}
			requireReason(t, Guard{}.Admit(r), c.foreign, problem.CrossSite, c.reason)
		}
	}
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:8080/", nil)
	r.Header["Origin"] = []string{"http://127.0.0.1:8080", "https://evil.example"}
	requireReason(t, Guard{}.Admit(r), true, problem.CrossSite, "All origins count, not only the first one.")
	r.Host = ""
	requireReason(t, Guard{}.Admit(r), true, problem.CrossSite, "A request with an origin but no host.")
}

func requireReason(t *testing.T, err error, refused bool, kind problem.Kind, why string) {
	t.Helper()
	if !refused {
		require.NoError(t, err, why)
		return
	}
	var refusal *problem.Error
	require.ErrorAs(t, err, &refusal, why)
	require.Equal(t, kind.Type(), refusal.Type, why)
	require.NotEmpty(t, refusal.Error())
}

const secret = "a-token-of-this-test-with-32-or-more"

func tokenFile(t *testing.T, token string) *TokenFile {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(path, []byte(token), 0o600))
	file, err := OpenToken("the API of this test", path)
	require.NoError(t, err)
	return file
}

func TestGuard_Authenticate(t *testing.T) {
	t.Parallel()
	lock := Lock{API: "this engine", Source: "its file", Header: BearerHeader, Token: tokenFile(t, secret)}
	verified := &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{}}}}
	for _, c := range []struct {
		reason        string
		guard         Guard
		authorization string
		connection    *tls.ConnectionState
		refused       bool
	}{
		{"No credentials are required.", Guard{}, "", nil, false},
		{"A superfluous token is ignored.", Guard{}, "Bearer x", nil, false},
		{"The token.", Guard{Token: lock}, "Bearer " + secret, nil, false},
		{"The scheme is case-insensitive.", Guard{Token: lock}, "bearer " + secret, nil, false},
		{"No token.", Guard{Token: lock}, "", nil, true},
		{"An empty one.", Guard{Token: lock}, "Bearer ", nil, true},
		{"A shorter token.", Guard{Token: lock}, "Bearer " + secret[1:], nil, true},
		{"A longer token.", Guard{Token: lock}, "Bearer " + secret + "s", nil, true},
		{"In another case.", Guard{Token: lock}, "Bearer " + strings.ToUpper(secret), nil, true},
		{"In another scheme.", Guard{Token: lock}, "Basic " + secret, nil, true},
		{"Without a scheme.", Guard{Token: lock}, secret, nil, true},
		{"A certificate.", Guard{Certificate: true}, "", verified, false},
		{"No encryption.", Guard{Certificate: true}, "", nil, true},
		{"Encryption without a certificate.", Guard{Certificate: true}, "", &tls.ConnectionState{}, true},
		{"An unverified certificate.", Guard{Certificate: true}, "",
			&tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}}, true},
		{"Both are required and presented.", Guard{Certificate: true, Token: lock}, "Bearer " + secret, verified,
			false},
		{"Both are required, only the certificate is presented.", Guard{Certificate: true, Token: lock}, "",
			verified, true},
		{"Both are required, only the token is presented.", Guard{Certificate: true, Token: lock}, "Bearer " + secret,
			nil, true},
	} {
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/", nil)
		r.TLS = c.connection
		if c.authorization != "" {
			r.Header.Set("Authorization", c.authorization)
		}
		requireReason(t, c.guard.Authenticate(r), c.refused, problem.Unauthenticated, c.reason)
	}
}

func TestFromBrowser(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"Origin": "http://127.0.0.1", "Referer": "http://127.0.0.1/docs", "Sec-Fetch-Mode": "no-cors",
		"Sec-Ch-Ua":  `"Chromium"`,
		"User-Agent": "Mozilla/5.0 (X11; Linux x86_64)",
	} {
		require.True(t, FromBrowser(http.Header{name: {value}}), name)
	}
	for _, agent := range []string{"curl/8.5.0", "python-requests/2.31", "Go-http-client/1.1", ""} {
		require.False(t, FromBrowser(http.Header{"User-Agent": {agent}, "Accept": {"*/*"}}), agent)
	}
}

func TestGuard_Handler(t *testing.T) {
	t.Parallel()
	h := Guard{}.Handler(http.NotFoundHandler())
	for host, status := range map[string]int{"127.0.0.1": http.StatusNotFound, "evil.example": http.StatusForbidden} {
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "http://"+host+"/metrics", nil))
		require.Equal(t, status, answer.Code, host)
	}
}
