package harness

import (
	"net/http"
	"sync/atomic"
)

// Counter counts the requests of a client for which Match returns true.
type Counter struct {
	Match func(*http.Request) bool
	count atomic.Int32
}

// Count returns the number of counted requests.
func (c *Counter) Count() int { return int(c.count.Load()) }

// Wrap returns a transport that counts its requests.
func (c *Counter) Wrap(next http.RoundTripper) http.RoundTripper { return countingTransport{next, c} }

type countingTransport struct {
	next http.RoundTripper
	by   *Counter
}

func (c countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.by.Match(r) {
		c.by.count.Add(1)
	}
	return c.next.RoundTrip(r)
}
