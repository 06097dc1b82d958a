package serving

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"slipway.io/slipway/recent"
	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/party"
	"slipway.io/slipway/release/serving"
)

// queueTTL is how long the queue of a domain is cached; queueWait is how long a check waits for queues that are read.
const queueTTL, queueWait = 30 * time.Second, 2 * time.Second

// clockSkew is the maximum difference between the clocks of two processes.
const clockSkew = time.Minute

// parties tracks the presence of the parties' workers while there are servings: it writes silent parties into the
// status of their servings, and signals operations in progress. Temporal has no watch on heartbeats: one request every
// few seconds covers all queues.
type parties struct {
	c        *Controller
	presence Presence

	began  time.Time
	queues recent.Cache
	// lastQueues are the queues that were read last, by domain.
	lastQueues map[string]string
	// signalled is which queues were signalled as unreachable to operations in progress, by run.
	signalled map[string]map[string]bool
	// started are the runs that this controller started while the start times of other runs were not comparable with
	// its own clock.
	started sync.Map
}

func newParties(c *Controller, presence Presence) *parties {
	return &parties{c: c, presence: presence, began: time.Now(), lastQueues: map[string]string{},
		signalled: map[string]map[string]bool{}}
}

func (p *parties) run(ctx context.Context) {
	timer := time.NewTimer(party.HeartbeatInterval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case began := <-timer.C:
			found := p.check(ctx)
			timer.Reset(time.Until(nextCheck(found, began)))
		}
	}
}

// nextCheck returns the time of the next check: one Interval after the last, or earlier, when a party's silence reaches
// its limit. Otherwise a silent party would be reported up to an Interval late.
func nextCheck(found map[string]party.Presence, last time.Time) time.Time {
	next := last.Add(party.HeartbeatInterval)
	for _, one := range found {
		if silent, may := one.SilentAt(); may && silent.Add(checkDelay).Before(next) {
			next = silent.Add(checkDelay)
		}
	}
	return next
}

// checkDelay is the delay after the limit of a silence: exactly at the limit the party still counts as present.
const checkDelay = 10 * time.Millisecond

// check compares the presence of the parties with the status of their servings, and returns the presence. Unaffected
// servings, of which there may be thousands, are not visited.
func (p *parties) check(ctx context.Context) map[string]party.Presence {
	of := map[string]string{}
	reading, cancel := context.WithTimeout(ctx, queueWait)
	defer cancel()
	for _, domain := range slices.Sorted(slices.Values(p.c.cached.Values(byDomain))) {
		queue := p.queue(reading, domain)
		if queue == "" {
			queue = p.c.recordedQueue(domain)
		}
		if queue != "" {
			of[domain] = queue
		}
	}
	if len(of) == 0 {
		return nil
	}
	found := p.presence.Of(ctx, slices.Compact(slices.Sorted(maps.Values(of)))...)
	if time.Since(p.began) < startupPeriod {
		found = withoutUnreachable(found)
	}
	for _, kd := range p.c.affected(of, found) {
		p.update(ctx, kd, of, found)
	}
	alive := map[string]bool{}
	for _, kd := range p.c.indexed(underWay, yes) {
		alive[kd.Status.Operation.RunID] = true
	}
	maps.DeleteFunc(p.signalled, func(run string, _ map[string]bool) bool { return !alive[run] })
	return found
}

// startupPeriod is how long after its start the controller reports no party as unreachable: a worker that starts at the
// same time has not sent a heartbeat yet.
const startupPeriod = 2 * party.HeartbeatInterval

// withoutUnreachable replaces "unreachable" by "unknown".
func withoutUnreachable(found map[string]party.Presence) map[string]party.Presence {
	there := map[string]party.Presence{}
	for queue, one := range found {
		if one.Reachable == party.Unreachable {
			one = party.UnknownPresence("the server has just started: " + one.Reason)
		}
		there[queue] = one
	}
	return there
}

// update writes changes of presence into a serving's status, and signals its operation in progress.
func (p *parties) update(ctx context.Context, kd *kuscia.KusciaDeployment, of map[string]string,
	found map[string]party.Presence) {
	if away := unreachableParties(kd, of, found); !serving.IsMarkedUnreachable(kd, away) {
		if err := p.write(ctx, kd.Name, away); err != nil {
			p.c.options.Log.Warn("could not write which parties are unreachable", "serving", kd.Name, "error", err)
		}
	}
	if isUnderWay(kd) {
		p.signal(ctx, kd.Status.Operation, kd, of, found)
	}
}

// unreachableParties returns the reason for each unreachable party. If the presence is unknown, the last reason is
// kept.
func unreachableParties(kd *kuscia.KusciaDeployment, of map[string]string,
	found map[string]party.Presence) map[string]string {
	away := map[string]string{}
	for _, member := range serving.Members(kd) {
		one, asked := found[of[member.Domain]]
		switch {
		case !asked || one.Reachable == party.Unknown:
			away[member.Domain] = kd.Status.PartyDeploymentStatuses[member.Domain][member.Deployment].Unreachable
		case one.Reachable == party.Unreachable:
			away[member.Domain] = one.Reason
		}
	}
	return away
}

func (p *parties) write(ctx context.Context, id string, away map[string]string) error {
	kd, err := p.c.home.GetServing(ctx, id)
	if err != nil || !serving.MarkUnreachable(kd, away) {
		return failure.Ignore(err, failure.NotFound)
	}
	serving.UpdatePhases(kd)
	// After a conflict, the next check repeats it.
	return failure.Ignore(p.c.home.UpdateServingStatus(ctx, kd), failure.NotFound, failure.Conflict)
}

// signal signals to an operation which queues have become unreachable or reachable.
func (p *parties) signal(ctx context.Context, op *kuscia.Operation, kd *kuscia.KusciaDeployment, of map[string]string,
	found map[string]party.Presence) {
	sent := p.signalled[op.RunID]
	if sent == nil {
		sent = map[string]bool{}
		p.signalled[op.RunID] = sent
	}
	for _, member := range serving.Members(kd) {
		queue := of[member.Domain]
		one, asked := found[queue]
		if !asked || one.Reachable == party.Unknown {
			continue
		}
		away := one.Reachable == party.Unreachable
		before, known := sent[queue]
		if (known || p.knowsSignals(op)) && before == away {
			continue
		}
		s := serving.PresenceSignal{Queue: queue, Since: one.LastSeenAt}
		if away {
			s.Unreachable = one.Reason
		}
		if err := p.c.temporal.SignalWorkflow(ctx, op.WorkflowID, "", serving.SignalPresence, s); err != nil {
			p.c.options.Log.Debug("could not signal presence to an operation", "workflow", op.WorkflowID, "error", err)
			continue
		}
		sent[queue] = away
	}
}

// noteStart records a run that this controller has started. During the startup period another server may signal to it
// that a worker is unreachable, which this one does not know.
func (p *parties) noteStart(run string) {
	// later runs started after this controller by any clock
	if since := time.Since(p.began); since >= startupPeriod && since < 2*clockSkew {
		p.started.Store(run, nil)
	}
}

// knowsSignals reports whether this controller ran when the operation began. If not, it is unknown what was signalled
// before, and the operation gets the state of all queues again.
func (p *parties) knowsSignals(op *kuscia.Operation) bool {
	if _, own := p.started.Load(op.RunID); own {
		return true
	}
	return op.StartedAt != nil && op.StartedAt.After(p.began.Add(clockSkew))
}

// queue returns the queue of a domain, the last known one while it cannot be read; "" if it is unknown.
func (p *parties) queue(ctx context.Context, domain string) string {
	queue, err := recent.Get(ctx, &p.queues, domain, queueTTL, func(ctx context.Context) (string, error) {
		queue, _, err := p.c.home.Queue(ctx, domain)
		return queue, err
	})
	if err == nil {
		p.lastQueues[domain] = queue
	}
	return p.lastQueues[domain]
}
