// Package auth decides which requests the engine accepts. It is the place for access control. Today it checks the host
// that a request is addressed to, whether a page of another site sent it, and whether the client presents the required
// token or certificate.
package auth

import (
	"crypto/x509"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"slipway.io/slipway/api/limits"
	"slipway.io/slipway/api/problem"
)

// Guard decides which requests reach an API. The zero Guard accepts requests to loopback addresses, and requires no
// credentials.
type Guard struct {
	// Hosts are the host names that requests may be addressed to.
	Hosts Hosts
	// Token is the required bearer token.
	Token Lock
	// Certificate requires a client certificate verified by the listener.
	Certificate bool
	// Proxies name the clients that they forward requests of.
	Proxies limits.Proxies
	// Basic also takes the token as the password of HTTP basic authentication, which browsers ask people for. The user
	// name is free.
	Basic bool
}

// Closed reports whether clients need credentials.
func (g Guard) Closed() bool { return g.Certificate || g.Token.Closed() }

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
	client := g.Proxies.Client(r)
	if !g.hasCertificate(r) {
		g.Token.Failures.add(g.Token.Label, missing, client)
		return problem.Unauthenticated.Because("this engine requires a client certificate: use one issued by the CA " +
			"in the engine's --api-ca-file")
	}
	return g.Token.Authenticate(client, g.presented(r)...)
}

// presented returns the tokens that a request presents.
func (g Guard) presented(r *http.Request) []string {
	presented := []string{Bearer(r.Header.Get("Authorization"))}
	if _, password, ok := r.BasicAuth(); ok && g.Basic {
		presented = append(presented, password)
	}
	return presented
}

// Knows reports whether a request has the required credentials, for an operation that shows more to those who have
// them. A request without a token does not count as a failure there.
func (g Guard) Knows(r *http.Request) bool {
	presented := Bearer(r.Header.Get("Authorization"))
	return g.hasCertificate(r) && (!g.Token.Closed() ||
		presented != "" && g.Token.Authenticate(g.Proxies.Client(r), presented) == nil)
}

func (g Guard) hasCertificate(r *http.Request) bool {
	return !g.Certificate || r.TLS != nil && len(r.TLS.VerifiedChains) > 0
}

// Bearer returns the token of a header Authorization; "" if it has none.
func Bearer(header string) string {
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

// Closing protects a handler for browsers that has no error format of its own. It requires the credentials.
func (g Guard) Closing(next http.Handler) http.Handler {
	return g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := g.Authenticate(r); err != nil {
			refused := problem.Of(err)
			if refused.Status == http.StatusUnauthorized && g.Basic && g.hasCertificate(r) {
				w.Header().Set("WWW-Authenticate", `Basic realm="Slipway: the password is the token", charset="UTF-8"`)
			}
			if after := refused.RetryAfter(); after != "" {
				w.Header().Set("Retry-After", after)
			}
			http.Error(w, refused.Detail, refused.Status)
			return
		}
		next.ServeHTTP(w, r)
	}))
}

// Hosts are the host names that requests may be addressed to. They protect against DNS rebinding: a page's own host
// name can be made to resolve to this machine, and its requests are then same-origin; but they carry that name in Host.
type Hosts struct {
	names map[string]bool
	// domains are the ends of names, each with a dot at its beginning.
	domains []string
}

// NewHosts takes the addresses that the engine listens on, as host:port, and the additional names that it is reached
// by. One that begins with a dot is the end of names.
func NewHosts(listens, names []string) Hosts {
	hosts := Hosts{names: map[string]bool{}}
	for _, listen := range listens {
		host, _, err := net.SplitHostPort(listen)
		if every, _ := netip.ParseAddr(host); err == nil && host != "" && !every.IsUnspecified() {
			hosts.names[canonical(host)] = true
		}
	}
	for _, name := range names {
		if strings.HasPrefix(name, ".") {
			hosts.domains = append(hosts.domains, name)
			continue
		}
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
	if host == "localhost" || h.names[host] ||
		slices.ContainsFunc(h.domains, func(domain string) bool { return strings.HasSuffix(host, domain) }) {
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
