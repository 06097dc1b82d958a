// Package auth decides which requests the engine accepts. It is the place for access control. Today it checks the host
// that a request is addressed to, whether a page of another site sent it, and whether the client presents the required
// token or certificate.
package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"slipway.io/slipway/api/problem"
	"slipway.io/slipway/reload"
)

// Guard decides which requests reach an API. The zero Guard accepts requests to loopback addresses, and requires no
// credentials.
type Guard struct {
	// Hosts are the host names that requests may be addressed to.
	Hosts Hosts
	// Token is the required bearer token; NoToken: none is required.
	Token Token
	// Certificate requires a client certificate verified by the listener.
	Certificate bool
}

// Admit refuses requests addressed to an unknown host, and requests that a browser sends for a page of another site. It
// applies to all methods: reading what runs where is sensitive, too.
func (g Guard) Admit(r *http.Request) error {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return g.AdmitCall(r.Host, r.Header.Values, local)
}

// AdmitCall is Admit for calls that are not http.Requests: authority is the requested host, and local the address that
// the call arrived at.
func (g Guard) AdmitCall(authority string, values func(header string) []string, local net.Addr) error {
	if !g.Hosts.Allows(authority, local) {
		return problem.UnknownHost.Because("the request is addressed to the unknown host %q: use a loopback address, "+
			"or start the engine with --allowed-hosts and that name", authority)
	}
	for _, site := range values("Sec-Fetch-Site") {
		// "none" is an address typed into the browser; "same-site" is another port of the same machine, which is not
		// trusted.
		if site != "same-origin" && site != "none" {
			return problem.CrossSite.Because("a browser sent this request for a page of another site (Sec-Fetch-Site: "+
				"%s): send it from a program, or type the address into the browser", site)
		}
	}
	for _, origin := range values("Origin") {
		parsed, err := url.Parse(origin)
		if err != nil || authority == "" || !strings.EqualFold(parsed.Host, authority) {
			return problem.CrossSite.Because("a browser sent this request for a page of another site (Origin: %s): "+
				"send it from a program; a proxy must pass on the header Host unchanged", origin)
		}
	}
	return nil
}

// Authenticate refuses a request without the required credentials. If both a token and a certificate are required, the
// request needs both.
func (g Guard) Authenticate(r *http.Request) error {
	if g.Certificate && (r.TLS == nil || len(r.TLS.VerifiedChains) == 0) {
		return problem.Unauthenticated.Because("this engine requires a client certificate: use one issued by the CA in " +
			"the engine's --api-ca-file")
	}
	return g.Token.Authenticate(r, "this engine", "the engine's --api-token-file")
}

// Authenticate refuses a request without the token in its header Authorization. The error names the API that requires
// it, and the source of the token.
func (t Token) Authenticate(r *http.Request, api, source string) error {
	presented := bearer(r.Header.Get("Authorization"))
	switch {
	case t.Matches(presented):
		return nil
	case presented == "":
		return problem.Unauthenticated.Because("%s requires a token: send the header `Authorization: Bearer TOKEN` with "+
			"what %s contains", api, source)
	}
	return problem.Unauthenticated.Because("the token is wrong: send what %s contains", source)
}

// bearer returns the token of a header Authorization; "" if it has none.
func bearer(header string) string {
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// PresentsCertificate reports whether the client of a request presented a certificate of these CAs. The listener may
// accept certificates of other CAs.
func PresentsCertificate(r *http.Request, authorities *x509.CertPool) bool {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return false
	}
	options := x509.VerifyOptions{Roots: authorities, Intermediates: x509.NewCertPool(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	for _, between := range r.TLS.PeerCertificates[1:] {
		options.Intermediates.AddCert(between)
	}
	_, err := r.TLS.PeerCertificates[0].Verify(options)
	return err == nil
}

// FromBrowser reports whether a request looks like one of a browser. A program can imitate a browser, but a page in a
// browser cannot remove these headers.
func FromBrowser(header http.Header) bool {
	if header.Get("Origin") != "" || header.Get("Referer") != "" ||
		strings.HasPrefix(header.Get("User-Agent"), "Mozilla/") {
		return true
	}
	for name := range header {
		if strings.HasPrefix(name, "Sec-") { // Sec-Fetch-*, Sec-Ch-*: pages cannot set these headers
			return true
		}
	}
	return false
}

// Handler protects a handler that has no error format of its own. It requires no credentials.
func (g Guard) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := g.Admit(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Hosts are the host names that requests may be addressed to. They protect against DNS rebinding: a page's own host
// name can be made to resolve to this machine, and its requests are then same-origin; but they carry that name in Host.
type Hosts struct{ names map[string]bool }

// NewHosts takes the addresses that the engine listens on, as host:port, and the additional names that it is reached
// by.
func NewHosts(listens, names []string) Hosts {
	hosts := Hosts{names: map[string]bool{}}
	for _, listen := range listens {
		host, _, err := net.SplitHostPort(listen)
		if every, _ := netip.ParseAddr(host); err == nil && host != "" && !every.IsUnspecified() {
			hosts.names[canonical(host)] = true
		}
	}
	for _, name := range names {
		hosts.names[canonical(name)] = true
	}
	return hosts
}

// Allows reports whether a request may be addressed to this authority, a host with or without a port. Loopback is
// always allowed, and so is the address that the request arrived at: an IP address cannot be rebound. An empty
// authority is allowed, because browsers always send one.
func (h Hosts) Allows(authority string, local net.Addr) bool {
	if authority == "" {
		return true
	}
	host := authority
	if name, _, err := net.SplitHostPort(authority); err == nil {
		host = name
	}
	host = canonical(host)
	if host == "localhost" || h.names[host] {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && (address.IsLoopback() || address == addressOf(local))
}

// canonical returns a host in comparable form: names in lower case, IP addresses in their shortest form.
func canonical(host string) string {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if address, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")); err == nil {
		return address.Unmap().WithZone("").String()
	}
	return host
}

func addressOf(local net.Addr) netip.Addr {
	tcp, ok := local.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr().Unmap().WithZone("")
}

// Token is a bearer token of an API.
type Token string

// NoToken is the Token of an API that requires none.
const NoToken Token = ""

// Matches reports whether presented equals the token, byte for byte; NoToken matches everything. It takes constant
// time.
func (t Token) Matches(presented string) bool {
	want, have := sha256.Sum256([]byte(t)), sha256.Sum256([]byte(presented))
	return t == NoToken || subtle.ConstantTimeCompare(want[:], have[:]) == 1
}

// tokenLength is the length of a generated token in characters, as in Kuscia.
const tokenLength = 32

// LoadToken reads the token of an API, which is the complete content of the file, or creates it. Of several servers
// that start concurrently with one file, the first creates it.
func LoadToken(api, path string) (Token, error) {
	made, err := makeToken(path)
	if err == nil {
		return made, nil
	}
	if !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("the token file of %s cannot be created: %w", api, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("the token of %s cannot be read: %w", api, err)
	}
	if len(text) == 0 {
		return "", fmt.Errorf(
			"the token file of %s, %s, is empty: write a token to it, or delete it to create a new one", api, path)
	}
	if strings.TrimSpace(string(text)) != string(text) {
		return "", fmt.Errorf("the token file of %s, %s, begins or ends with a blank or a new line, which no client "+
			"could send: write the token alone", api, path)
	}
	return Token(text), nil
}

// ReadToken reads a token to present to another API. setting names the file in errors. A trailing new line is not part
// of the token.
func ReadToken(setting, path string) (Token, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", setting, err)
	}
	token := strings.TrimRight(string(text), "\r\n")
	if token == "" {
		return "", fmt.Errorf("%s: %s is empty: write a token to it, or leave out the setting", setting, path)
	}
	return Token(token), nil
}

// TokenFile is a token in a file that may change while the process runs.
type TokenFile struct{ files *reload.Files[Token] }

// NewTokenFile returns a token that load reads from the file at path. An error of the first load is a configuration
// error.
func NewTokenFile(path string, load func() (Token, error)) (*TokenFile, error) {
	files, err := reload.New(load, 0, path)
	return &TokenFile{files: files}, err
}

// Token returns the current token. If the file cannot be read, it returns an error, not the previous token: removing a
// token is meant to revoke it.
func (f *TokenFile) Token() (Token, error) {
	token, err := f.files.Get()
	if err != nil {
		return "", err
	}
	return token, nil
}

// makeToken writes a new token to a file that does not exist yet. The file appears with its complete content: no
// process reads a partial token.
func makeToken(path string) (Token, error) {
	if _, err := os.Lstat(path); err == nil {
		return "", fs.ErrExist
	}
	token := (rand.Text() + rand.Text())[:tokenLength]
	partial := path + "." + rand.Text() + ".partial"
	if err := os.WriteFile(partial, []byte(token), 0o600); err != nil {
		return "", err
	}
	defer os.Remove(partial)
	if err := os.Link(partial, path); err != nil {
		return "", err
	}
	return Token(token), nil
}

// LoadTLS reads the certificate and the key of an API. If ca is not empty, client certificates are verified against the
// CAs in it, according to clients.
func LoadTLS(api, certificate, key, ca string, clients tls.ClientAuthType) (*tls.Config, error) {
	own, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("the certificate of %s cannot be used: %w", api, err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{own}}
	if ca == "" {
		return config, nil
	}
	if config.ClientCAs, err = reload.ReadCA("the CA of the clients of "+api, ca); err != nil {
		return nil, err
	}
	config.ClientAuth = clients
	return config, nil
}
