package harness

import (
	"net/http"
	"sync/atomic"
)

// Counter counts those requests of a client that Match takes.
type Counter struct {
	Match func(*http.Request) bool
	count atomic.Int32
}

// Count is how many there were.
func (c *Counter) Count() int { return int(c.count.Load()) }

// Wrap counts what goes through a transport.
func (c *Counter) Wrap(next http.RoundTripper) http.RoundTripper { return counted{next, c} }

type counted struct {
	next http.RoundTripper
	by   *Counter
}

func (c counted) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.by.Match(r) {
		c.by.count.Add(1)
	}
	return c.next.RoundTrip(r)
}
