package party

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// How presence is reported.
const (
	// Interval is how often a worker says that it is there.
	Interval = 5 * time.Second
	// Silence is how long a worker may say nothing before it counts as gone.
	Silence = 20 * time.Second
)

// Reachability says whether a worker of a party is there.
type Reachability string

const (
	// Reachable: at least one worker has reported within Silence.
	Reachable Reachability = "yes"
	// Unreachable: none has, and it would be known if one had.
	Unreachable Reachability = "no"
	// Unknown: whether one has cannot be learnt.
	Unknown Reachability = "unknown"
)

// Worker is the last that was heard of one worker. The times are those of the worker's own clock.
type Worker struct {
	Identity, Host string
	// Build is the ID of its build (release/upgrade); empty where it tells none.
	Build                 string
	StartedAt, LastSeenAt time.Time
	// Stopping says that the worker was shut down.
	Stopping bool
}

// String names the worker by identity and host.
func (w Worker) String() string {
	name := cmp.Or(w.Identity, "without a name")
	if w.Host != "" && !strings.Contains(name, w.Host) {
		name += " on " + w.Host
	}
	return name
}

// Presence is what is concluded of a party's workers.
type Presence struct {
	Reachable Reachability
	// LastSeenAt is when any worker was last heard of; zero when none ever was.
	LastSeenAt time.Time
	// Reason is a sentence that says why.
	Reason string
	// Workers are those that are there, by identity.
	Workers []Worker
}

// Judge concludes from the heartbeats of one queue's workers who is there now. A heartbeat from the future, of a fast clock, is one of
// now.
func Judge(queue string, heard []Worker, now time.Time) Presence {
	p := Presence{Reachable: Unreachable}
	var last Worker
	for _, w := range heard {
		if w.LastSeenAt.After(p.LastSeenAt) {
			p.LastSeenAt, last = w.LastSeenAt, w
		}
		if !w.Stopping && now.Sub(w.LastSeenAt) <= Silence {
			p.Workers = append(p.Workers, w)
		}
	}
	slices.SortFunc(p.Workers, func(a, b Worker) int {
		return cmp.Or(cmp.Compare(a.Identity, b.Identity), cmp.Compare(a.Host, b.Host), a.StartedAt.Compare(b.StartedAt))
	})
	ago := max(now.Sub(p.LastSeenAt), 0).Truncate(time.Second)
	at := fmt.Sprintf("%s (%s ago)", p.LastSeenAt.UTC().Format(time.RFC3339), ago)
	switch {
	case len(p.Workers) == 1:
		p.Reachable, p.Reason = Reachable, fmt.Sprintf("worker %s polls queue %s, last seen %s ago", p.Workers[0], queue, ago)
	case len(p.Workers) > 1:
		p.Reachable, p.Reason = Reachable, fmt.Sprintf("%d workers poll queue %s, last seen %s ago", len(p.Workers), queue, ago)
	case p.LastSeenAt.IsZero():
		p.Reason = fmt.Sprintf("no worker of queue %s was ever seen, as far as Temporal remembers: start one (slipway worker --party)", queue)
	case last.Stopping:
		p.Reason = fmt.Sprintf("the last worker of queue %s, %s, was stopped at %s: start one", queue, last, at)
	default:
		p.Reason = fmt.Sprintf("the last worker of queue %s, %s, was last seen at %s and is silent for more than %s: "+
			"look whether it runs and reaches Temporal", queue, last, at, Silence)
	}
	return p
}

// SilentAt is when the party will count as gone unless one of its workers is heard of before; false when none is there.
func (p Presence) SilentAt() (at time.Time, ok bool) {
	for _, w := range p.Workers {
		if limit := w.LastSeenAt.Add(Silence); limit.After(at) {
			at, ok = limit, true
		}
	}
	return at, ok
}

// SilentSince are the workers that have told nothing since p was as former. One that lives tells every Interval that it is there.
func (p Presence) SilentSince(former Presence) (silent []Worker) {
	for _, w := range p.Workers {
		if slices.ContainsFunc(former.Workers, func(f Worker) bool { return f == w }) {
			silent = append(silent, w)
		}
	}
	return silent
}

// UnknownPresence is the presence of a party whose workers cannot be asked after, with the reason.
func UnknownPresence(reason string) Presence { return Presence{Reachable: Unknown, Reason: reason} }
