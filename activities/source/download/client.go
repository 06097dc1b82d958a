// Package download fetches packages by HTTP from addresses that users wrote into a plan. release/source decides which
// addresses are allowed and which hosts get credentials; this package checks every connection and every redirect
// against those rules.
package download

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"slipway.io/slipway/pause"
	"slipway.io/slipway/release/source"
)

// Options configure a Client. With the zero value it may connect to nothing but the URLs in Trusted.
type Options struct {
	// Allow is the list of addresses that may be connected to.
	Allow source.Allow
	// Credentials are sent to the hosts that they name; nil: none.
	Credentials *source.Credentials
	// MaxBytes is the largest size of a download; 0: the limit of source.DefaultLimits.
	MaxBytes int64
	// Trusted are base URLs of Slipway's own package store. URLs under them are not checked against Allow, get no
	// credentials, and may not redirect. A redirect from another server to one of them is not trusted.
	Trusted []string
	// TrustedCAs are the certificate authorities of the servers in Trusted; nil: RootCAs.
	TrustedCAs *x509.CertPool
	// Log gets one line per request, at level debug; nil: none.
	Log *slog.Logger

	// RootCAs are the certificate authorities to trust; nil: those of the system.
	RootCAs *x509.CertPool
	// Resolver resolves host names; nil: the system's.
	Resolver *net.Resolver
	// IdleTimeout is how long a server may send nothing in the middle of a body; 0: 30 seconds.
	IdleTimeout time.Duration
	// HeaderTimeout is how long a server may take to begin its answer; 0: two minutes, for servers that fetch the
	// package from elsewhere first.
	HeaderTimeout time.Duration
}

const (
	idleTimeout      = 30 * time.Second
	headerTimeout    = 2 * time.Minute
	connectTimeout   = 15 * time.Second
	handshakeTimeout = 15 * time.Second
	maxHeaderBytes   = 256 << 10
)

// Client downloads files. It is safe for concurrent use, and keeps no connection open between requests.
type Client struct {
	options Options
	// Two transports, so that a connection to the trusted store, which is not checked against Allow, serves no other
	// request.
	checked, unchecked http.RoundTripper
	trusted            []*url.URL
	// pause waits between the requests of one download; tests replace it.
	pause func(context.Context, time.Duration) error
}

// New returns a client.
func New(options Options) *Client {
	options.MaxBytes = cmp.Or(options.MaxBytes, source.DefaultLimits.Bytes)
	options.IdleTimeout = cmp.Or(options.IdleTimeout, idleTimeout)
	options.HeaderTimeout = cmp.Or(options.HeaderTimeout, headerTimeout)
	options.Log = cmp.Or(options.Log, slog.New(slog.DiscardHandler))
	c := &Client{options: options, pause: pause.For}
	c.checked = c.transport(c.Dial, options.RootCAs)
	c.unchecked = c.transport(c.dial, cmp.Or(options.TrustedCAs, options.RootCAs))
	for _, base := range options.Trusted {
		u, err := source.ParseURL(base)
		if err != nil {
			options.Log.Warn("The address of the package store is not a valid URL: it is not trusted.", "url",
				source.Redact(base))
			continue
		}
		c.trusted = append(c.trusted, u)
	}
	return c
}

type dial func(ctx context.Context, network, address string) (net.Conn, error)

// transport returns a transport without a proxy, which would connect to addresses that were not checked, and without
// keep-alive, so that the connection of every request is checked against Allow.
func (c *Client) transport(dial dial, roots *x509.CertPool) *http.Transport {
	return &http.Transport{
		DialContext:            dial,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
		TLSHandshakeTimeout:    handshakeTimeout,
		ResponseHeaderTimeout:  c.options.HeaderTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
		DisableKeepAlives:      true,
		DisableCompression:     true,
	}
}

func (c *Client) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: connectTimeout, Resolver: c.options.Resolver}
	return dialer.DialContext(ctx, network, address)
}

// Dial connects to an address that Allow permits. It checks the very IP address that it connects to, after the name was
// resolved, so that no second lookup can return another address.
func (c *Client) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{Timeout: connectTimeout, Resolver: c.options.Resolver,
		Control: func(_, to string, _ syscall.RawConn) error {
			resolved, err := netip.ParseAddrPort(to)
			if err != nil {
				return err
			}
			return c.options.Allow.CheckAddress(host, resolved)
		}}
	return dialer.DialContext(ctx, network, address)
}

// isTrusted reports whether a URL lies under one of Options.Trusted. A URL whose path a server could read as leaving
// that base (such as /../) does not.
func (c *Client) isTrusted(u *url.URL) bool {
	if u.RawPath != "" || path.Clean("/"+u.Path) != strings.TrimSuffix(u.Path, "/") {
		return false
	}
	host, port, err := source.Authority(u)
	if err != nil {
		return false
	}
	for _, base := range c.trusted {
		baseHost, basePort, _ := source.Authority(base)
		if u.Scheme == base.Scheme && host == baseHost && port == basePort &&
			strings.HasPrefix(u.Path+"/", strings.TrimSuffix(base.Path, "/")+"/") {
			return true
		}
	}
	return false
}

const maxRedirects = 10

// hop is one request on the path from the requested URL over redirects to the final response.
type hop struct {
	url *url.URL
	// trusted: the requested URL is one of the party's own store. A redirect target is never trusted.
	trusted bool
	// downgraded: an earlier hop used https and this one does not, so credentials must not be sent.
	downgraded bool
	redirects  int
}

// get requests a URL and follows redirects, each of which is checked like the first URL. The response has a status
// below 400; the caller closes its body.
func (c *Client) get(ctx context.Context, rawURL string, header http.Header) (*http.Response, hop, error) {
	first, err := source.ParseURL(rawURL)
	if err != nil {
		return nil, hop{}, c.classify(ctx, err)
	}
	secured := false
	for at := (hop{url: first, trusted: c.isTrusted(first)}); ; {
		secured = secured || at.url.Scheme == "https"
		at.downgraded = secured && at.url.Scheme != "https"
		response, err := c.roundTrip(ctx, at, header)
		if err != nil {
			return nil, hop{}, at.withRedirect(err)
		}
		if !isRedirect(response.StatusCode) {
			if err := c.checkStatus(response, at); err != nil {
				response.Body.Close()
				return nil, hop{}, at.withRedirect(err)
			}
			return response, at, nil
		}
		response.Body.Close()
		if at, err = at.next(response); err != nil {
			return nil, hop{}, err
		}
	}
}

// withRedirect adds the URL of a redirect to an error's message; the error otherwise names only the requested URL.
func (h hop) withRedirect(err error) error {
	//nolint:errorlint // made by this package, and not wrapped yet
	if failed, ok := err.(*Error); ok && h.redirects > 0 {
		failed.Message = fmt.Sprintf("redirected to %s: %s", source.Redact(h.url.String()), failed.Message)
	}
	return err
}

func isRedirect(status int) bool {
	return slices.Contains([]int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect}, status)
}

// next returns the hop that a redirect leads to.
func (h hop) next(response *http.Response) (hop, error) {
	location := response.Header.Get("Location")
	switch {
	case h.trusted:
		return hop{}, refuse("the package store answered with a redirect, which it never does: check its address")
	case h.redirects == maxRedirects:
		return hop{}, refuse("there are more than %d redirects", maxRedirects)
	case location == "":
		return hop{}, refuse("the server answered with a redirect without a target")
	}
	target, err := h.url.Parse(location)
	if err != nil {
		return hop{}, refuse("the server answered with a redirect to something that is not a URL")
	}
	if err := source.CheckURL(target); err != nil {
		return hop{}, refuse("redirected to %s: %v", source.Redact(target.String()), err)
	}
	return hop{url: target, redirects: h.redirects + 1}, nil
}

// roundTrip makes one request. The body of the response is not read.
func (c *Client) roundTrip(ctx context.Context, at hop, header http.Header) (*http.Response, error) {
	u, transport := *at.url, c.unchecked
	u.Fragment, u.RawFragment = "", ""
	request := (&http.Request{Method: http.MethodGet, URL: &u, Header: header.Clone()}).WithContext(ctx)
	if request.Header == nil {
		request.Header = http.Header{}
	}
	// The digest is over the bytes of the file, so the transfer must not compress them.
	request.Header.Set("Accept-Encoding", "identity")
	request.Header.Set("User-Agent", "slipway")
	if !at.trusted {
		host, port, err := source.Authority(&u)
		if err == nil {
			err = c.options.Allow.CheckHost(host, port)
		}
		if err != nil {
			return nil, c.classify(ctx, err)
		}
		transport = c.checked
		c.authorise(request, at)
	}
	began := time.Now()
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, c.classify(ctx, err)
	}
	c.options.Log.DebugContext(ctx, "Requested a source.", "url", source.Redact(u.String()), "status",
		response.StatusCode, "took", time.Since(began))
	return response, nil
}

// maySendCredentials reports whether the credentials may be sent to a hop.
func (c *Client) maySendCredentials(at hop) bool {
	return c.options.Credentials != nil && !at.trusted && !at.downgraded && c.options.Credentials.Allows(at.url)
}

// CheckCredentials returns an error if there are credentials that would not be sent to a URL.
func (c *Client) CheckCredentials(rawURL string) error {
	at, err := source.ParseURL(rawURL)
	if err != nil {
		return err
	}
	if c.options.Credentials != nil && !c.options.Credentials.Allows(at) {
		return refuse("the Secret has no credentials for %s://%s: name it under the key `hosts`", at.Scheme, at.Host)
	}
	return nil
}

// authorise adds the credentials to a request, if they may be sent to its URL.
func (c *Client) authorise(request *http.Request, at hop) {
	if !c.maySendCredentials(at) {
		return
	}
	if header := c.options.Credentials.Authorization(at.url); header != "" {
		request.Header.Set("Authorization", header)
	}
	query := c.options.Credentials.Query
	switch {
	case query == "", strings.Contains("&"+at.url.RawQuery+"&", "&"+query+"&"): // a redirect may have kept it
	case at.url.RawQuery == "":
		request.URL.RawQuery = query
	default:
		request.URL.RawQuery = at.url.RawQuery + "&" + query
	}
}

// checkStatus returns the error of a response with a status of 400 or more; nil for all others. The message uses Go's
// text of the status, because the server's own may echo the request.
func (c *Client) checkStatus(response *http.Response, at hop) error {
	status := response.StatusCode
	if status < http.StatusBadRequest {
		return nil
	}
	failed := &Error{Kind: NotAvailable, Status: status, Message: "the server answered " + statusText(status)}
	switch {
	case status >= http.StatusInternalServerError, status == http.StatusRequestTimeout, status == http.StatusTooEarly,
		status == http.StatusTooManyRequests:
		failed.Kind = Temporary
		failed.RetryAfter = parseRetryAfter(response.Header.Get("Retry-After"), time.Now())
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		failed.Message += c.whyForbidden(at)
	default:
		failed.Message += ": check the URL"
	}
	return failed
}

func (c *Client) whyForbidden(at hop) string {
	switch {
	case c.options.Credentials == nil || at.trusted:
		return ": no credentials were sent"
	case c.maySendCredentials(at):
		return ": check the credentials"
	case at.downgraded:
		return ": no credentials were sent, because a redirect led from https to http"
	}
	return ": no credentials were sent, because their Secret does not name this scheme, host and port in `hosts`"
}

func statusText(status int) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", status, http.StatusText(status)))
}
