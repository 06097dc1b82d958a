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

	"slipway.io/slipway/release/failure"
)

// Kind says what a failed download means for whoever asked for it.
type Kind string

const (
	// Gone: the server has nothing for us under this URL (404, 410, 401, 403 and the other 4xx). Final.
	Gone Kind = "Gone"
	// Refused: we don't want it: an address or redirect that is not allowed, an untrusted certificate, a package that is too large. Final.
	Refused Kind = "Refused"
	// Temporary: the server or the network has trouble, and a later attempt may succeed.
	Temporary Kind = "Temporary"
)

// Error is a download that failed for a reason outside this process. Its text has neither user info nor queries, and nothing that a server
// wrote: a server may repeat what it was asked.
type Error struct {
	// URL is what was asked for, redacted.
	URL  string
	Kind Kind
	// Status is the HTTP status that is the reason; 0: another reason.
	Status int
	// RetryAfter is the pause that the server has asked for, for Temporary; 0: none.
	RetryAfter time.Duration
	Message    string
}

func (e *Error) Error() string { return e.URL + ": " + e.Message }

// Is says whether err is, or wraps, a failed download of that kind.
func Is(err error, kind Kind) bool {
	var failed *Error
	return errors.As(err, &failed) && failed.Kind == kind
}

const (
	shortestPause = time.Second
	longestPause  = 15 * time.Second
	// A server that asks for more than this is asked again all the same: the caller's own patience may be shorter than the server's wish.
	longestWish = 2 * time.Minute
)

// RetryAfter is the pause before the next attempt, and false if there is no use in one. failed counts the attempts so far. The pause grows
// from one second to 15, varies by a quarter, so that many pods don't come back at once, and is never shorter than the server asked for, up
// to two minutes.
func RetryAfter(err error, failed int) (time.Duration, bool) {
	var reason *Error
	if !errors.As(err, &reason) || reason.Kind != Temporary {
		return 0, false
	}
	pause := longestPause
	if doublings := max(failed-1, 0); doublings < 4 {
		pause = min(shortestPause<<doublings, longestPause)
	}
	pause -= time.Duration(rand.Int64N(int64(pause) / 4))
	return max(pause, min(reason.RetryAfter, longestWish)), true
}

// wish reads the header Retry-After: seconds, or a date.
func wish(header string, now time.Time) time.Duration {
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

// errSilent is the cause with which a request is cancelled whose server sends nothing.
var errSilent = errors.New("the server is silent")

// Trouble is what went wrong while connecting by Dial.
func (c *Client) Trouble(ctx context.Context, err error) error { return c.trouble(ctx, err) }

// trouble types what went wrong while connecting, asking or reading. Texts of the HTTP client are not passed on: some quote what the server
// sent. The context's own end is returned as it is, because it is not the server's doing.
func (c *Client) trouble(ctx context.Context, err error) error {
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
		return temporary("the connection%s failed: %v", toward(network), network.Err)
	case errors.As(err, &timeout) && timeout.Timeout():
		return temporary("the server did not answer in time")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return temporary("the connection ended before the whole answer had arrived")
	case errors.Is(err, io.EOF):
		return temporary("the server closed the connection without an answer")
	}
	return temporary("the server's answer is not valid HTTP")
}

func toward(network *net.OpError) string {
	if network.Addr == nil {
		return ""
	}
	return " to " + network.Addr.String()
}
