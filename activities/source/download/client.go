// Package download fetches packages by HTTP from addresses that somebody else has written into a plan. What may be connected to and who sees
// credentials is decided in release/source; this package makes sure that every connection and every redirect is held against it.
package download

import (
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

	"slipway.io/slipway/release/source"
)

// Options say what a Client may do. The zero value is allowed nothing but what Trusted names.
type Options struct {
	// Allow is what may be connected to.
	Allow source.Allow
	// Credentials are sent to the hosts that they name; nil: none.
	Credentials *source.Credentials
	// MaxBytes is the largest size of a download; 0: that of source.DefaultLimits.
	MaxBytes int64
	// Trusted are base URLs of Slipway's own package store. URLs under them are not held against Allow, get no credentials, and may not
	// redirect. A redirect from elsewhere to one of them is not trusted.
	Trusted []string
	// Log gets one line for each request, at level debug; nil: none.
	Log *slog.Logger

	// RootCAs are the certificate authorities to trust; nil: those of the system.
	RootCAs *x509.CertPool
	// Resolver resolves host names; nil: the system's.
	Resolver *net.Resolver
	// IdleTimeout is how long a server may send nothing in the middle of a body; 0: 30 seconds.
	IdleTimeout time.Duration
	// HeaderTimeout is how long a server may take to begin its answer; 0: two minutes, for servers that fetch the package from elsewhere first.
	HeaderTimeout time.Duration
}

const (
	idleTimeout      = 30 * time.Second
	headerTimeout    = 2 * time.Minute
	connectTimeout   = 15 * time.Second
	handshakeTimeout = 15 * time.Second
	maxHeaderBytes   = 256 << 10
)

// Client downloads. It is safe for use by several goroutines and holds no connection between two requests.
type Client struct {
	options Options
	// Two transports, so that no connection to the store that Allow doesn't know of serves any other request.
	checked, unchecked http.RoundTripper
	trusted            []*url.URL
	// pause waits; tests don't.
	pause func(context.Context, time.Duration) error
}

// New makes a client.
func New(options Options) *Client {
	if options.MaxBytes <= 0 {
		options.MaxBytes = source.DefaultLimits.Bytes
	}
	if options.IdleTimeout <= 0 {
		options.IdleTimeout = idleTimeout
	}
	if options.HeaderTimeout <= 0 {
		options.HeaderTimeout = headerTimeout
	}
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	c := &Client{options: options, pause: pause}
	c.checked, c.unchecked = c.transport(c.Dial), c.transport(c.dial)
	for _, base := range options.Trusted {
		u, err := source.ParseURL(base)
		if err != nil {
			options.Log.Warn("The address of the package store is not a URL: it is not trusted.", "url", source.Redact(base))
			continue
		}
		c.trusted = append(c.trusted, u)
	}
	return c
}

func pause(ctx context.Context, wait time.Duration) error {
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

type dial func(ctx context.Context, network, address string) (net.Conn, error)

// transport knows no proxy, which would connect where it likes, and keeps no connection, so that each request's is held against Allow.
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

// Dial connects to an address that Allow permits. It holds the very address that is connected to against Allow, after the name was resolved:
// there is no second resolution that could answer differently.
func (c *Client) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{Timeout: connectTimeout, Resolver: c.options.Resolver, Control: func(_, to string, _ syscall.RawConn) error {
		resolved, err := netip.ParseAddrPort(to)
		if err != nil {
			return err
		}
		return c.options.Allow.CheckAddress(host, resolved)
	}}
	return dialer.DialContext(ctx, network, address)
}

// isTrusted says whether a URL lies under one of the store's. What a server could read as a way out of its path is not under it.
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
