// Package gauges shows Prometheus which releases are open, what waits for people and which parties are reachable. Every server of an engine shows the same:
// take the maximum over servers, not the sum.
package gauges

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	workflowpb "go.temporal.io/api/workflow/v1"

	"slipway.io/slipway/api/backend"
	"slipway.io/slipway/execution"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/party"
	"slipway.io/slipway/store/recent"
	"slipway.io/slipway/workflows"
)

const (
	// fresh is how old what is shown may be. A scrape that comes sooner is answered from memory.
	fresh = 5 * time.Second
	// patience bounds one scrape.
	patience = 8 * time.Second
)

var (
	openReleases = prometheus.NewDesc("slipway_releases_open", "Releases that are not over, by kind, state and party; one of two parties counts for each of them.",
		[]string{"kind", "state", "party"}, nil)
	waiting = prometheus.NewDesc("slipway_releases_waiting", "Releases that wait, by kind and by what they wait for.", []string{"kind", "waiting_for"}, nil)
	oldest  = prometheus.NewDesc("slipway_release_oldest_wait_seconds", "How long the release has waited that has waited longest, by kind and by what they wait for.",
		[]string{"kind", "waiting_for"}, nil)
	reachable = prometheus.NewDesc("slipway_party_reachable", "1 if a worker of the party was heard of within 20 seconds, else 0.", []string{"party"}, nil)
	readable  = prometheus.NewDesc("slipway_gauges_up", "1 if the other gauges of releases and parties could be read, else 0: they are left out then.", nil, nil)
)

// Collector reads them when it is asked.
type Collector struct {
	*backend.Backend
	kept recent.Answers
}

// New is the collector of an engine.
func New(b *backend.Backend) *Collector { return &Collector{Backend: b} }

// Describe tells Prometheus what there is.
func (c *Collector) Describe(into chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{openReleases, waiting, oldest, reachable, readable} {
		into <- d
	}
}

// Collect tells what is so now. What can't be read is left out: a gauge that lies is worse than none.
func (c *Collector) Collect(into chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	metrics, err := recent.Get(ctx, &c.kept, "gauges", fresh, c.read)
	up := 1.0
	if err != nil {
		c.Log.Warn("the gauges of releases can't be read", "error", err)
		up = 0
	}
	into <- prometheus.MustNewConstMetric(readable, prometheus.GaugeValue, up)
	for _, m := range metrics {
		into <- m
	}
}

func (c *Collector) read(ctx context.Context) ([]prometheus.Metric, error) {
	open := backend.OpenWorkflows{Backend: c.Backend, Query: fmt.Sprintf("%s IN ('%s', '%s', '%s')", workflows.AttributeKind.GetName(),
		workflows.KindTask, workflows.KindRollout, workflows.KindServing)}
	if err := open.Find(ctx); err != nil {
		return nil, err
	}
	queues, err := c.queues(ctx)
	if err != nil {
		return nil, err
	}
	metrics := ofReleases(open.Found, time.Now())
	present := c.Presence(ctx, slices.Compact(slices.Sorted(maps.Values(queues)))...)
	for name, queue := range queues {
		if there, known := reachability[present[queue].Reachable]; known {
			metrics = append(metrics, prometheus.MustNewConstMetric(reachable, prometheus.GaugeValue, there, name))
		}
	}
	return metrics, nil
}

// reachability is how the gauge shows what is known; of what is unknown it shows nothing.
var reachability = map[party.Reachability]float64{party.Reachable: 1, party.Unreachable: 0}

// queues are the queues of all parties, by name.
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

// ofReleases counts open releases.
func ofReleases(open map[string]*workflowpb.WorkflowExecutionInfo, now time.Time) []prometheus.Metric {
	type state struct{ kind, state, party string }
	type wait struct{ kind, waitingFor string }
	states, waits, longest := map[state]float64{}, map[wait]float64{}, map[wait]time.Duration{}
	for _, info := range open {
		kind := execution.Published[string](info, workflows.AttributeKind.GetName())
		parties := execution.Published[[]string](info, workflows.AttributeParties.GetName())
		if len(parties) == 0 {
			parties = []string{""} // a task that has not begun yet
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
		longest[w] = max(longest[w], now.Sub(execution.Published[time.Time](info, workflows.AttributeWaitingSince.GetName())))
	}
	var metrics []prometheus.Metric
	for s, n := range states {
		metrics = append(metrics, prometheus.MustNewConstMetric(openReleases, prometheus.GaugeValue, n, s.kind, s.state, s.party))
	}
	for w, n := range waits {
		metrics = append(metrics, prometheus.MustNewConstMetric(waiting, prometheus.GaugeValue, n, w.kind, w.waitingFor),
			prometheus.MustNewConstMetric(oldest, prometheus.GaugeValue, longest[w].Seconds(), w.kind, w.waitingFor))
	}
	return metrics
}
