// Package download fetches packages by HTTP from addresses that users wrote into a plan. release/source decides which
// addresses are allowed and which hosts get credentials; this package checks every connection and every redirect
// against those rules.
package download

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
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
	c.checked, c.unchecked = c.transport(c.Dial), c.transport(c.dial)
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
func (c *Client) transport(dial dial) *http.Transport {
	return &http.Transport{
		DialContext:            dial,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.options.RootCAs},
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
