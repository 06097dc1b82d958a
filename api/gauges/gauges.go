// Package gauges exports Prometheus gauges of open releases, of waiting releases and of reachable parties. Every server
// of an engine exports the same values: aggregate with max over servers, not sum.
package gauges

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	workflowpb "go.temporal.io/api/workflow/v1"

	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/execution"
	"slipway.io/slipway/recent"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/party"
	"slipway.io/slipway/workflows"
)

const (
	// maxAge is the maximum age of the exported values. Earlier scrapes are served from the cache.
	maxAge = 5 * time.Second
	// scrapeTimeout is the time limit of one scrape.
	scrapeTimeout = 8 * time.Second
)

var (
	openReleases = prometheus.NewDesc("slipway_releases_open",
		"Open releases, by kind, state and party; a release with two parties is counted for each of them.",
		[]string{"kind", "state", "party"}, nil)
	waiting = prometheus.NewDesc("slipway_releases_waiting", "Waiting releases, by kind and by what they wait for.",
		[]string{"kind", "waiting_for"}, nil)
	oldestWait = prometheus.NewDesc("slipway_release_oldest_wait_seconds",
		"Longest current wait of a release, by kind and by what it waits for.", []string{"kind", "waiting_for"}, nil)
	reachable = prometheus.NewDesc("slipway_party_reachable",
		"1 if a worker of the party was seen within 20 seconds, else 0.", []string{"party"}, nil)
	gaugesUp = prometheus.NewDesc("slipway_gauges_up",
		"1 if the gauges of releases and parties could be read, else 0; in that case they are omitted.", nil, nil)
)

// Collector reads the gauges on each scrape.
type Collector struct {
	*backend.Backend
	cache recent.Cache
}

// New returns the collector of an engine.
func New(b *backend.Backend) *Collector { return &Collector{Backend: b} }

// Describe implements prometheus.Collector.
func (c *Collector) Describe(into chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{openReleases, waiting, oldestWait, reachable, gaugesUp} {
		into <- d
	}
}

// Collect sends the current values. If they cannot be read, they are omitted: a wrong value is worse than none.
func (c *Collector) Collect(into chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	metrics, err := recent.Get(ctx, &c.cache, "gauges", maxAge, c.read)
	up := 1.0
	if err != nil {
		c.Log.Warn("the gauges of releases cannot be read", "error", err)
		up = 0
	}
	into <- prometheus.MustNewConstMetric(gaugesUp, prometheus.GaugeValue, up)
	for _, m := range metrics {
		into <- m
	}
}

func (c *Collector) read(ctx context.Context) ([]prometheus.Metric, error) {
	found, err := c.OpenOf(workflows.KindTask, workflows.KindRollout, workflows.KindServing).List(ctx)
	if err != nil {
		return nil, err
	}
	queues, err := c.queues(ctx)
	if err != nil {
		return nil, err
	}
	metrics := releaseMetrics(found, time.Now())
	present := c.Presence(ctx, slices.Collect(maps.Values(queues))...)
	for name, queue := range queues {
		if there, known := reachability[present[queue].Reachable]; known {
			metrics = append(metrics, prometheus.MustNewConstMetric(reachable, prometheus.GaugeValue, there, name))
		}
	}
	return metrics, nil
}

// reachability maps known states to gauge values; unknown ones are omitted.
var reachability = map[party.Reachability]float64{party.Reachable: 1, party.Unreachable: 0}

// queues returns the task queues of all parties, by party name.
func (c *Collector) queues(ctx context.Context) (map[string]string, error) {
	objects, err := c.Home.ListParties(ctx)
	if err != nil {
		return nil, err
	}
	queues := map[string]string{catalog.DefaultParty: catalog.PartyQueue(catalog.DefaultParty)}
	for _, object := range objects {
		queues[object.Name] = catalog.QueueOf(object.Name, object.Spec.Queue)
	}
	return queues, nil
}

// releaseMetrics counts open releases.
func releaseMetrics(open map[string]*workflowpb.WorkflowExecutionInfo, now time.Time) []prometheus.Metric {
	type state struct{ kind, state, party string }
	type wait struct{ kind, waitingFor string }
	states, waits, longest := map[state]float64{}, map[wait]float64{}, map[wait]time.Duration{}
	for _, info := range open {
		kind := execution.Published[string](info, workflows.AttributeKind.GetName())
		parties := execution.Published[[]string](info, workflows.AttributeParties.GetName())
		if len(parties) == 0 {
			parties = []string{""} // a task that has not begun
		}
		for _, name := range parties {
			states[state{kind, execution.Published[string](info, workflows.AttributeState.GetName()), name}]++
		}
		waitingFor := execution.Published[string](info, workflows.AttributeWaitingFor.GetName())
		if waitingFor == "" {
			continue
		}
		w := wait{kind, waitingFor}
		waits[w]++
		longest[w] = max(longest[w], now.Sub(execution.Published[time.Time](info,
			workflows.AttributeWaitingSince.GetName())))
	}
	var metrics []prometheus.Metric
	for s, n := range states {
		metrics = append(metrics, prometheus.MustNewConstMetric(openReleases, prometheus.GaugeValue, n, s.kind, s.state,
			s.party))
	}
	for w, n := range waits {
		metrics = append(metrics, prometheus.MustNewConstMetric(waiting, prometheus.GaugeValue, n, w.kind,
			w.waitingFor), prometheus.MustNewConstMetric(oldestWait, prometheus.GaugeValue, longest[w].Seconds(),
			w.kind, w.waitingFor))
	}
	return metrics
}
