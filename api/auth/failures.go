package auth

import (
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/lru"

	"slipway.io/slipway/api/limits"
)

// The limits on failed authentications, each for one window.
const (
	failureWindow = time.Minute
	// maxFailures is how many requests with wrong credentials of an address are answered with 401; further ones get
	// 429. Requests with the right credentials always pass.
	maxFailures = 20
	// maxFailureLines is how many lines all clients together can cause in the log.
	maxFailureLines = 10
	// keptAddresses is how many addresses with failures are kept, the recent ones.
	keptAddresses = 10000
)

// reason says why an authentication failed. It is a label of the metric.
type reason string

const (
	missing reason = "missing"
	wrong   reason = "wrong"
)

// Failures counts the failed authentications of all APIs of a process by the client's address, shows them as a metric
// and in the log, and says when an address has too many. A nil Failures counts nothing.
type Failures struct {
	log   *slog.Logger
	total *prometheus.CounterVec

	mu sync.Mutex
	// tallies are the tally of each address.
	tallies *lru.Cache
	lines   tally
}

// NewFailures returns Failures whose metric is in the registry.
func NewFailures(log *slog.Logger, registry prometheus.Registerer) (*Failures, error) {
	total := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "slipway_api_authentication_failures_total",
		Help: "Requests with missing or wrong credentials."}, []string{"api", "reason"})
	return &Failures{log: log, total: total, tallies: lru.New(keptAddresses)}, registry.Register(total)
}

// tally counts events in the current window.
type tally struct {
	since         time.Time
	events, wrong int
}

// at returns the tally as of now: an earlier window no longer counts.
func (t tally) at(now time.Time) tally {
	if now.Sub(t.since) >= failureWindow {
		return tally{since: now}
	}
	return t
}

// add counts a failed authentication of a client at an API. It reports whether the client's address has had the maximum
// of wrong credentials before this one.
func (f *Failures) add(api string, why reason, client string) (tooMany bool) {
	if f == nil {
		return false
	}
	f.total.WithLabelValues(api, string(why)).Inc()
	now, network := time.Now(), limits.Neighbourhood(client)
	f.mu.Lock()
	count := f.tally(network).at(now)
	count.events++
	if why == wrong {
		count.wrong++
	}
	f.tallies.Add(network, count)
	first, last := count.events == 1, why == wrong && count.wrong == maxFailures
	logged := (first || last) && f.takeLine(now)
	f.mu.Unlock()
	if logged {
		text := "a client failed to authenticate"
		if last {
			text = "a client failed to authenticate too often: it gets 429 for its wrong credentials"
		}
		f.log.Warn(text, "api", api, "credentials", string(why), "from", client, "failures", count.events,
			"window", failureWindow)
	}
	return why == wrong && count.wrong > maxFailures
}

// unreadable logs that the token of an API cannot be read, so that all requests that need it are refused.
func (f *Failures) unreadable(api string, err error) {
	if f == nil {
		return
	}
	f.mu.Lock()
	logged := f.takeLine(time.Now())
	f.mu.Unlock()
	if logged {
		f.log.Error("the token of "+api+" cannot be read: requests that need it are refused", "error", err)
	}
}

// tally returns the last tally of an address. The caller holds mu.
func (f *Failures) tally(network netip.Prefix) tally {
	found, _ := f.tallies.Get(network)
	last, _ := found.(tally)
	return last
}

// takeLine reports whether the log takes another line in this window. The caller holds mu.
func (f *Failures) takeLine(now time.Time) bool {
	f.lines = f.lines.at(now)
	f.lines.events++
	return f.lines.events <= maxFailureLines
}
