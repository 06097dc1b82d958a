// Package auth decides who may ask the engine for something. It is where access control will stand. Today it knows whom a request is
// addressed to, whether a page of another site sent it, and whether the caller shows the token or the certificate that is asked for.
package auth

import (
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// Guard decides which requests reach an API. The zero Guard takes requests to loopback addresses, and asks for no credentials.
type Guard struct {
	// Hosts are the names that requests may be addressed to.
	Hosts Hosts
	// Token is what a request shows in its header Authorization; NoToken: nothing.
	Token Token
	// Certificate says that a client shows a certificate that its listener has verified.
	Certificate bool
}

// Reason is why a request is refused.
type Reason int

// The reasons.
const (
	// UnknownHost: the request is addressed to a name that the engine doesn't have.
	UnknownHost Reason = iota
	// CrossOrigin: a browser sent the request for a page of another site.
	CrossOrigin
	// Unauthenticated: the request doesn't show the credentials that are asked for.
	Unauthenticated
)

// Refusal is the error of a request that is refused.
type Refusal struct {
	Reason  Reason
	message string
}

func (r *Refusal) Error() string { return r.message }

func refuse(reason Reason, format string, args ...any) error {
	return &Refusal{Reason: reason, message: fmt.Sprintf(format, args...)}
}

// Admit refuses requests that are addressed to an unknown host, and requests that a browser sends for a page of another site. It applies to
// every request, whatever its method: a page that reads what runs where is one too many.
func (g Guard) Admit(r *http.Request) error {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return g.AdmitCall(r.Host, r.Header.Values, local)
}

// AdmitCall is Admit for what is no http.Request: authority is the host that it names, and local the address that it arrived at.
func (g Guard) AdmitCall(authority string, values func(header string) []string, local net.Addr) error {
	if !g.Hosts.Know(authority, local) {
		return refuse(UnknownHost, "the request is addressed to the host %q, which this engine doesn't know: use a loopback address, or start "+
			"the engine with --allowed-hosts and that name", authority)
	}
	for _, site := range values("Sec-Fetch-Site") {
		// "none" is what somebody typed into the address bar; "same-site" is another port of the same machine, which is no friend.
		if site != "same-origin" && site != "none" {
			return refuse(CrossOrigin, "a browser sent this request for a page of another site (Sec-Fetch-Site: %s): send it from a program, or "+
				"type the address into the browser", site)
		}
	}
	for _, origin := range values("Origin") {
		parsed, err := url.Parse(origin)
		if err != nil || authority == "" || !strings.EqualFold(parsed.Host, authority) {
			return refuse(CrossOrigin, "a browser sent this request for a page of another site (Origin: %s): send it from a program; a proxy "+
				"has to pass the header Host on as it is", origin)
		}
	}
	return nil
}

// Authenticate refuses a request without the credentials that are asked for. If both a token and a certificate are, both have to be shown.
func (g Guard) Authenticate(r *http.Request) error {
	if g.Certificate && (r.TLS == nil || len(r.TLS.VerifiedChains) == 0) {
		return refuse(Unauthenticated, "this engine asks for a client certificate: show one of the CA that the engine has as --api-ca-file")
	}
	return g.Token.Authenticate(r, "this engine", "the engine's --api-token-file")
}

// Authenticate refuses a request that doesn't show the token in its header Authorization. The error names the API that asks for it, and
// where the token is written.
func (t Token) Authenticate(r *http.Request, api, source string) error {
	shown := bearer(r.Header.Get("Authorization"))
	switch {
	case t.Matches(shown):
		return nil
	case shown == "":
		return refuse(Unauthenticated, "%s asks for a token: send the header `Authorization: Bearer TOKEN` with what %s contains", api, source)
	}
	return refuse(Unauthenticated, "the token is wrong: send what %s contains", source)
}

// bearer is the token of a header Authorization; "" when it has none.
func bearer(header string) string {
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// ShowsCertificate says whether the client of a request has shown a certificate of these CAs. Its listener may have asked for one of
// others.
func ShowsCertificate(r *http.Request, authorities *x509.CertPool) bool {
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

// FromBrowser says whether a request looks like one of a browser's. A program can look so too; a browser cannot look otherwise, since a
// page can't take these headers away.
func FromBrowser(header http.Header) bool {
	if header.Get("Origin") != "" || header.Get("Referer") != "" || strings.HasPrefix(header.Get("User-Agent"), "Mozilla/") {
		return true
	}
	for name := range header {
		if strings.HasPrefix(name, "Sec-") { // Sec-Fetch-*, Sec-Ch-*: no page can set these either
			return true
		}
	}
	return false
}

// Handler puts the guard in front of a handler that has no errors of its own shape. It asks for no credentials.
func (g Guard) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := g.Admit(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
