package download

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"time"

	"slipway.io/slipway/release/backoff"
	"slipway.io/slipway/release/failure"
)

// Kind is the class of a failed download: it decides whether a retry is useful.
type Kind string

const (
	// NotAvailable: the server does not serve this URL to us (404, 410, 401, 403 and the other 4xx). Final.
	NotAvailable Kind = "Gone"
	// Refused: the client does not accept it: an address or redirect that is not allowed, an untrusted certificate, a
	// package that is too large. Final.
	Refused Kind = "Refused"
	// Temporary: the server or the network failed, and a later attempt may succeed.
	Temporary Kind = "Temporary"
)

// Error is a download that failed for a reason outside this process. Its text contains no user info, no queries, and
// nothing that a server wrote: a server may echo the request.
type Error struct {
	// URL is the requested URL, redacted.
	URL  string
	Kind Kind
	// Status is the HTTP status that caused the error; 0: another cause.
	Status int
	// RetryAfter is the pause that the server requested, for Temporary; 0: none.
	RetryAfter time.Duration
	Message    string
}

func (e *Error) Error() string { return e.URL + ": " + e.Message }

// Is reports whether err is, or wraps, an Error of that kind.
func Is(err error, kind Kind) bool {
	var failed *Error
	return errors.As(err, &failed) && failed.Kind == kind
}

const (
	minPause = time.Second
	maxPause = 15 * time.Second
	// maxRetryAfter limits the pause that a server requests: the caller's own deadline may be earlier.
	maxRetryAfter = 2 * time.Minute
)

// RetryAfter returns the pause before the next attempt; false if a retry is useless. failed is the number of attempts
// so far. The pause doubles from one second to 15 s, varies by a quarter, so that many pods do not retry at once, and
// is at least as long as the server requested, up to two minutes.
func RetryAfter(err error, failed int) (time.Duration, bool) {
	var reason *Error
	if !errors.As(err, &reason) || reason.Kind != Temporary {
		return 0, false
	}
	pause := backoff.After(failed-1, minPause, maxPause)
	pause -= time.Duration(rand.Int64N(int64(pause) / 4))
	return max(pause, min(reason.RetryAfter, maxRetryAfter)), true
}

// parseRetryAfter parses the header Retry-After: seconds, or a date.
func parseRetryAfter(header string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(header, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	date, err := http.ParseTime(header)
	if err != nil {
		return 0
	}
	return max(date.Sub(now), 0)
}

func refuse(format string, args ...any) *Error {
	return &Error{Kind: Refused, Message: fmt.Sprintf(format, args...)}
}

func temporary(format string, args ...any) *Error {
	return &Error{Kind: Temporary, Message: fmt.Sprintf(format, args...)}
}

// errSilent is the cause that cancels a request whose server sends nothing for Options.IdleTimeout.
var errSilent = errors.New("the server is silent")

// DialError classifies an error of Dial.
func (c *Client) DialError(ctx context.Context, err error) error { return c.classify(ctx, err) }

// classify converts an error of connecting, requesting or reading into an *Error. It does not pass on texts of the HTTP
// client: some quote what the server sent. If the context has ended, it returns the context's cause unchanged, because
// the server did not cause it.
func (c *Client) classify(ctx context.Context, err error) error {
	var (
		refused     *failure.Error
		certificate *tls.CertificateVerificationError
		record      tls.RecordHeaderError
		dns         *net.DNSError
		network     *net.OpError
		timeout     net.Error
	)
	switch {
	case errors.As(err, &refused):
		return refuse("%s", refused.Message)
	case errors.Is(context.Cause(ctx), errSilent):
		return temporary("the server sent nothing for %s", c.options.IdleTimeout)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &certificate):
		return refuse("the server's certificate is not trusted: %v", certificate.Err)
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return temporary("the server does not answer with TLS: check the scheme and the port")
	case errors.As(err, &dns):
		return temporary("host %s can't be resolved: %s", dns.Name, dns.Err)
	case errors.As(err, &network):
		return temporary("the connection%s failed: %v", toAddress(network), network.Err)
	case errors.As(err, &timeout) && timeout.Timeout():
		return temporary("the server did not answer in time")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return temporary("the connection ended before the whole answer had arrived")
	case errors.Is(err, io.EOF):
		return temporary("the server closed the connection without an answer")
	}
	return temporary("the server's answer is not valid HTTP")
}

func toAddress(network *net.OpError) string {
	if network.Addr == nil {
		return ""
	}
	return " to " + network.Addr.String()
}
