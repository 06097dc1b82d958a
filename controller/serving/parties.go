package serving

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/party"
	"slipway.io/slipway/release/serving"
)

// queueLasts is how long the queue of a domain is taken for known.
const queueLasts = 30 * time.Second

// clockSkew is how far the clocks of two processes are apart at most.
const clockSkew = time.Minute

// parties looks after the presence of the parties' workers while there are servings: who is silent is named in the status of its servings,
// and operations that are under way are told. Temporal has no watch on heartbeats: one request every few seconds asks for all.
type parties struct {
	c        *Controller
	presence Presence

	began  time.Time
	queues map[string]knownQueue
	// told is what the operations that are under way were told: whether a queue is away, by run.
	told map[string]map[string]bool
	// started are the runs that this controller has started itself while the times of others could not be compared with its own.
	started sync.Map
}

type knownQueue struct {
	name string
	at   time.Time
}

func newParties(c *Controller, presence Presence) *parties {
	return &parties{c: c, presence: presence, began: time.Now(), queues: map[string]knownQueue{}, told: map[string]map[string]bool{}}
}

func (p *parties) run(ctx context.Context) {
	timer := time.NewTimer(party.Interval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case began := <-timer.C:
			found := p.look(ctx)
			timer.Reset(time.Until(nextLook(found, began)))
		}
	}
}

// nextLook is an Interval after the last one, or earlier: at the moment in which a party's silence reaches its limit, should it last.
// Otherwise who is silent would be named up to an Interval too late.
func nextLook(found map[string]party.Presence, last time.Time) time.Time {
	next := last.Add(party.Interval)
	for _, one := range found {
		if silent, may := one.SilentAt(); may && silent.Add(lookAfter).Before(next) {
			next = silent.Add(lookAfter)
		}
	}
	return next
}

// lookAfter is how long after the limit of a silence is looked: at the limit itself the party still counts as there.
const lookAfter = 10 * time.Millisecond

// look compares the presence of the parties with what their servings say of it, and says what it found. Where nothing changes nobody goes through the servings,
// of which there may be thousands.
func (p *parties) look(ctx context.Context) map[string]party.Presence {
	of := map[string]string{}
	for _, domain := range slices.Sorted(slices.Values(p.c.informer.GetIndexer().ListIndexFuncValues(byDomain))) {
		queue := p.queue(ctx, domain)
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
	if time.Since(p.began) < settling {
		found = withoutAbsent(found)
	}
	for _, kd := range p.c.concerned(of, found) {
		p.compare(ctx, kd, of, found)
	}
	alive := map[string]bool{}
	for _, kd := range p.c.indexed(underWay, "") {
		alive[kd.Status.Operation.RunID] = true
	}
	maps.DeleteFunc(p.told, func(run string, _ map[string]bool) bool { return !alive[run] })
	return found
}

// settling is how long after its begin the controller calls nobody absent: a worker that starts beside it has not reported yet.
const settling = 2 * party.Interval

// withoutAbsent leaves open who is away.
func withoutAbsent(found map[string]party.Presence) map[string]party.Presence {
	there := map[string]party.Presence{}
	for queue, one := range found {
		if one.Reachable == party.Unreachable {
			one = party.UnknownPresence("the server has just started: " + one.Reason)
		}
		there[queue] = one
	}
	return there
}

// compare tells a serving, and the operation that is under way, what has changed.
func (p *parties) compare(ctx context.Context, kd *kuscia.KusciaDeployment, of map[string]string, found map[string]party.Presence) {
	if away := absent(kd, of, found); !serving.IsMarkedUnreachable(kd, away) {
		if err := p.write(ctx, kd.Name, away); err != nil {
			p.c.options.Log.Warn("who is away could not be written yet", "serving", kd.Name, "error", err)
		}
	}
	if isUnderWay(kd) {
		p.signal(ctx, kd.Status.Operation, kd, of, found)
	}
}

// absent says of each absent party why it is thought to be. What cannot be learnt now stays as it was said last.
func absent(kd *kuscia.KusciaDeployment, of map[string]string, found map[string]party.Presence) map[string]string {
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
	serving.Settle(kd)
	// After a conflict the next look finds it.
	return failure.Ignore(p.c.home.UpdateServingStatus(ctx, kd), failure.NotFound, failure.Conflict)
}

// signal tells an operation which queues are away, and which are back.
func (p *parties) signal(ctx context.Context, op *kuscia.Operation, kd *kuscia.KusciaDeployment, of map[string]string,
	found map[string]party.Presence) {
	told := p.told[op.RunID]
	if told == nil {
		told = map[string]bool{}
		p.told[op.RunID] = told
	}
	for _, member := range serving.Members(kd) {
		queue := of[member.Domain]
		one, asked := found[queue]
		if !asked || one.Reachable == party.Unknown {
			continue
		}
		away := one.Reachable == party.Unreachable
		before, known := told[queue]
		if (known || p.saw(op)) && before == away {
			continue
		}
		s := serving.PresenceSignal{Queue: queue, Since: one.LastSeenAt}
		if away {
			s.Unreachable = one.Reason
		}
		if err := p.c.temporal.SignalWorkflow(ctx, op.WorkflowID, "", serving.SignalPresence, s); err != nil {
			p.c.options.Log.Debug("an operation could not be told who is away", "workflow", op.WorkflowID, "error", err)
			continue
		}
		told[queue] = away
	}
}

// starts notes that this controller has started a run. Of those that it starts while it settles another server may say that a worker is away, unnoticed by this one.
func (p *parties) starts(run string) {
	if since := time.Since(p.began); since >= settling && since < 2*clockSkew { // later ones began by any clock after it did
		p.started.Store(run, nil)
	}
}

// saw says whether an operation began when this controller was there already. What was told to one that began before is not known: it is
// told who is away once more, and also who is there.
func (p *parties) saw(op *kuscia.Operation) bool {
	if _, own := p.started.Load(op.RunID); own {
		return true
	}
	return op.StartedAt != nil && op.StartedAt.After(p.began.Add(clockSkew))
}

// queue is the queue of a domain; "" when it is not known.
func (p *parties) queue(ctx context.Context, domain string) string {
	if known, is := p.queues[domain]; is && time.Since(known.at) < queueLasts {
		return known.name
	}
	queue, known, err := p.c.home.Queue(ctx, domain)
	if err != nil {
		return p.queues[domain].name
	}
	if !known {
		queue = ""
	}
	p.queues[domain] = knownQueue{name: queue, at: time.Now()}
	return queue
}
