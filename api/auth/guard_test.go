package auth

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHosts(t *testing.T) {
	t.Parallel()
	hosts := NewHosts([]string{"127.0.0.1:8080", "0.0.0.0:8082", "api.internal:80", "[fd00::7]:8083", ""}, []string{"Slipway.Example.", "10.0.0.7"})
	local := &net.TCPAddr{IP: net.ParseIP("192.168.1.5"), Port: 8080}
	for _, c := range []struct {
		reason, host string
		known        bool
	}{
		{"Loopback is this machine.", "127.0.0.1:8080", true},
		{"All of it.", "127.8.9.1", true},
		{"In IPv6 too.", "[::1]:8080", true},
		{"And without a port.", "[::1]", true},
		{"And as IPv4 in IPv6.", "[::ffff:127.0.0.1]:80", true},
		{"Its name is fixed.", "localhost:8080", true},
		{"Names have no case.", "LocalHost", true},
		{"A dot at the end is of no account.", "localhost.", true},
		{"A published port is another than the one that is listened on.", "localhost:18080", true},
		{"The name that is listened on.", "api.internal:8080", true},
		{"The address that is listened on, in any spelling.", "[fd00:0:0::7]", true},
		{"A name of the setting.", "slipway.example:443", true},
		{"An address of the setting.", "10.0.0.7:8080", true},
		{"The address that the request arrived at.", "192.168.1.5:8080", true},
		{"Only old programs leave it out, no browser.", "", true},
		{"A page's own name may resolve to this machine.", "evil.example", false},
		{"It may begin as a known one.", "localhost.evil.example:8080", false},
		{"Or as an address.", "127.0.0.1.evil.example", false},
		{"Or end as a known one.", "evilslipway.example", false},
		{"Somebody else's address.", "10.0.0.8:8080", false},
		{"Every address at once is none.", "0.0.0.0:8080", false},
		{"A subdomain is another name.", "evil.localhost", false},
		{"What can't be read isn't known.", "localhost:80:80", false},
		{"Nor are brackets without an address.", "[evil.example]:80", false},
	} {
		require.Equal(t, c.known, hosts.Know(c.host, local), "%s: %q", c.reason, c.host)
	}
	require.False(t, Hosts{}.Know("slipway.example", nil), "without a setting, loopback alone is known")
	require.True(t, Hosts{}.Know("127.0.0.1", nil))
}

func TestOrigins(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason  string
		headers map[string]string
		foreign bool
	}{
		{"A program says nothing.", nil, false},
		{"A page of this very engine.", map[string]string{"Origin": "http://127.0.0.1:8080", "Sec-Fetch-Site": "same-origin"}, false},
		{"What somebody typed.", map[string]string{"Sec-Fetch-Site": "none"}, false},
		{"A proxy encrypts what comes here.", map[string]string{"Origin": "https://127.0.0.1:8080"}, false},
		{"Any other page.", map[string]string{"Origin": "https://evil.example"}, true},
		{"Another port of this machine is another site.", map[string]string{"Origin": "http://127.0.0.1:3000"}, true},
		{"So is another name of it.", map[string]string{"Origin": "http://localhost:8080"}, true},
		{"A page without a site: a file, or a frame in a sandbox.", map[string]string{"Origin": "null"}, true},
		{"What is no origin.", map[string]string{"Origin": "http://%zz"}, true},
		{"The browser says so itself.", map[string]string{"Sec-Fetch-Site": "cross-site"}, true},
		{"Another port of this machine, as the browser says it.", map[string]string{"Sec-Fetch-Site": "same-site"}, true},
		{"A word that comes with a later browser.", map[string]string{"Sec-Fetch-Site": "near-site"}, true},
		{"One good sign doesn't outweigh a bad one.", map[string]string{"Origin": "https://evil.example", "Sec-Fetch-Site": "same-origin"}, true},
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodOptions} {
			r := httptest.NewRequest(method, "http://127.0.0.1:8080/", nil)
			for name, value := range c.headers {
				r.Header.Set(name, value)
			}
			requireReason(t, Guard{}.Admit(r), c.foreign, CrossOrigin, c.reason)
		}
	}
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:8080/", nil)
	r.Header["Origin"] = []string{"http://127.0.0.1:8080", "https://evil.example"}
	requireReason(t, Guard{}.Admit(r), true, CrossOrigin, "The second of two counts too.")
	r.Host = ""
	requireReason(t, Guard{}.Admit(r), true, CrossOrigin, "A browser that names no host is none.")
}

func requireReason(t *testing.T, err error, refused bool, reason Reason, why string) {
	t.Helper()
	if !refused {
		require.NoError(t, err, why)
		return
	}
	var refusal *Refusal
	require.ErrorAs(t, err, &refusal, why)
	require.Equal(t, reason, refusal.Reason, why)
	require.NotEmpty(t, refusal.Error())
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	verified := &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{}}}}
	for _, c := range []struct {
		reason        string
		guard         Guard
		authorization string
		connection    *tls.ConnectionState
		refused       bool
	}{
		{"Nothing is asked for.", Guard{}, "", nil, false},
		{"What nobody asks for does no harm.", Guard{}, "Bearer x", nil, false},
		{"The token.", Guard{Token: "secret"}, "Bearer secret", nil, false},
		{"The scheme has no case.", Guard{Token: "secret"}, "bearer secret", nil, false},
		{"None.", Guard{Token: "secret"}, "", nil, true},
		{"An empty one.", Guard{Token: "secret"}, "Bearer ", nil, true},
		{"A part of it.", Guard{Token: "secret"}, "Bearer secre", nil, true},
		{"More than it.", Guard{Token: "secret"}, "Bearer secrets", nil, true},
		{"In another case.", Guard{Token: "secret"}, "Bearer Secret", nil, true},
		{"In another scheme.", Guard{Token: "secret"}, "Basic secret", nil, true},
		{"Without a scheme.", Guard{Token: "secret"}, "secret", nil, true},
		{"A certificate.", Guard{Certificate: true}, "", verified, false},
		{"No encryption.", Guard{Certificate: true}, "", nil, true},
		{"Encryption without a certificate.", Guard{Certificate: true}, "", &tls.ConnectionState{}, true},
		{"One that nobody has verified.", Guard{Certificate: true}, "", &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}}, true},
		{"Both are asked for, and shown.", Guard{Certificate: true, Token: "secret"}, "Bearer secret", verified, false},
		{"The certificate is not enough.", Guard{Certificate: true, Token: "secret"}, "", verified, true},
		{"Nor is the token.", Guard{Certificate: true, Token: "secret"}, "Bearer secret", nil, true},
	} {
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/", nil)
		r.TLS = c.connection
		if c.authorization != "" {
			r.Header.Set("Authorization", c.authorization)
		}
		requireReason(t, c.guard.Authenticate(r), c.refused, Unauthenticated, c.reason)
	}
}

func TestBrowsers(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"Origin": "http://127.0.0.1", "Referer": "http://127.0.0.1/docs", "Sec-Fetch-Mode": "no-cors", "Sec-Ch-Ua": `"Chromium"`,
		"User-Agent": "Mozilla/5.0 (X11; Linux x86_64)",
	} {
		require.True(t, FromBrowser(http.Header{name: {value}}), name)
	}
	for _, agent := range []string{"curl/8.5.0", "python-requests/2.31", "Go-http-client/1.1", ""} {
		require.False(t, FromBrowser(http.Header{"User-Agent": {agent}, "Accept": {"*/*"}}), agent)
	}
}

func TestATokenIsMadeOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	var group sync.WaitGroup
	tokens := make([]Token, 8)
	for n := range tokens {
		group.Go(func() {
			token, err := LoadToken("this API", path)
			if err == nil {
				tokens[n] = token
			}
		})
	}
	group.Wait()
	for _, token := range tokens {
		require.Len(t, string(token), tokenLength)
		require.Equal(t, tokens[0], token, "servers that start at once share it")
	}
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm(), "nobody else reads it")
	require.NoError(t, os.WriteFile(path, []byte("secret\n"), 0o600))
	_, err = LoadToken("this API", path)
	require.ErrorContains(t, err, "the token file of this API, "+path+", begins or ends with a blank or a new line")
}

func TestTheGuardOfAPlainHandler(t *testing.T) {
	t.Parallel()
	h := Guard{}.Handler(http.NotFoundHandler())
	for host, status := range map[string]int{"127.0.0.1": http.StatusNotFound, "evil.example": http.StatusForbidden} {
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "http://"+host+"/metrics", nil))
		require.Equal(t, status, answer.Code, host)
	}
}

func TestATokenFileIsReadAgainWhenItChanges(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	reads := 0
	file, err := NewTokenFile(path, func() (Token, error) {
		reads++
		return ReadToken("--token-file", path)
	})
	require.ErrorContains(t, err, "--token-file: open "+path, "a file that isn't there is an error of the settings")
	show := func(content string, mode func(string, []byte) error) (Token, error) {
		require.NoError(t, mode(path, []byte(content)))
		return file.Token()
	}
	inPlace := func(path string, text []byte) error { return os.WriteFile(path, text, 0o600) }
	byRename := func(path string, text []byte) error {
		return errors.Join(os.WriteFile(path+".new", text, 0o600), os.Rename(path+".new", path))
	}
	token, err := show("first\n", inPlace)
	require.NoError(t, err)
	require.Equal(t, Token("first"), token, "a new line at the end is no part of it")
	reads = 0
	for range 3 {
		_, err = file.Token()
		require.NoError(t, err)
	}
	require.Zero(t, reads, "what hasn't changed is not read")
	token, err = show("other", byRename)
	require.NoError(t, err)
	require.Equal(t, Token("other"), token, "as Kubernetes changes files of a Secret")
	_, err = show("", inPlace)
	require.ErrorContains(t, err, "is empty")
	_, err = file.Token()
	require.Error(t, err, "a token that was taken away stays away")
	token, err = show("third", inPlace)
	require.NoError(t, err)
	require.Equal(t, Token("third"), token)
}
