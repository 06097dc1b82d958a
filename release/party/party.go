// Package party decodes the declaration of a party, and derives its reachability from its workers' heartbeats.
package party

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/strictyaml"
	"slipway.io/slipway/release/v1alpha1"
)

// How presence is reported.
const (
	// HeartbeatInterval is the time between two reports of a worker.
	HeartbeatInterval = 5 * time.Second
	// SilenceLimit is the time without a report after which a worker counts as unreachable.
	SilenceLimit = 20 * time.Second
)

// Reachability is whether a worker of a party is running.
type Reachability string

const (
	// Reachable: at least one worker has reported within SilenceLimit.
	Reachable Reachability = "yes"
	// Unreachable: the reports could be read, and no worker has reported within SilenceLimit.
	Unreachable Reachability = "no"
	// Unknown: the reports could not be read.
	Unknown Reachability = "unknown"
)

// Worker is the last report of one worker. The times are from the worker's own clock.
type Worker struct {
	Identity, Host string
	// Build is the ID of its build (release/upgrade); empty if it reports none.
	Build string
	// Policy describes its party's policy for pod templates (podpolicy.Policy.String); empty if it reports none.
	Policy string
	// Account is the worker's account in its cluster; empty if it reports none.
	Account               Account
	StartedAt, LastSeenAt time.Time
	// Stopping means that the worker was shut down.
	Stopping bool
}

// Account is the account of a worker in its cluster, as the worker found it when it started.
type Account struct {
	// User is its user name, as authenticated by the API server.
	User  string
	Guard Listing
}

// Listing is whether the guard of a cluster lets the edits of an account pass.
type Listing string

const (
	// GuardListed: every guard of the released namespaces knows the account.
	GuardListed Listing = "listed"
	// GuardUnlisted: one of them does not, so that releases are refused.
	GuardUnlisted Listing = "unlisted"
	// GuardNone: the cluster has no guard.
	GuardNone Listing = "none"
	// GuardUnknown: the worker may not read the guards, or the cluster did not answer.
	GuardUnknown Listing = "unknown"
)

// String returns the account as a worker reports it to Temporal.
func (a Account) String() string { return string(a.Guard) + " " + a.User }

// ParseAccount reads what String has written.
func ParseAccount(text string) Account {
	state, user, _ := strings.Cut(text, " ")
	return Account{User: user, Guard: Listing(state)}
}

// String returns the worker's identity and host.
func (w Worker) String() string {
	name := cmp.Or(w.Identity, "without a name")
	if w.Host != "" && !strings.Contains(name, w.Host) {
		name += " on " + w.Host
	}
	return name
}

// Presence is the derived state of a party's workers.
type Presence struct {
	Reachable Reachability
	// LastSeenAt is the time of the last report of any worker; zero if there is none.
	LastSeenAt time.Time
	// Reason is a sentence that explains Reachable.
	Reason string
	// Workers are the running workers, ordered by identity.
	Workers []Worker
}

// PresenceOf derives from the last reports of a queue's workers which of them are running. A report with a time in the
// future, from a fast clock, counts as a report of now.
func PresenceOf(queue string, heard []Worker, now time.Time) Presence {
	p := Presence{Reachable: Unreachable}
	var last Worker
	for _, w := range heard {
		if w.LastSeenAt.After(p.LastSeenAt) {
			p.LastSeenAt, last = w.LastSeenAt, w
		}
		if !w.Stopping && now.Sub(w.LastSeenAt) <= SilenceLimit {
			p.Workers = append(p.Workers, w)
		}
	}
	slices.SortFunc(p.Workers, func(a, b Worker) int {
		return cmp.Or(cmp.Compare(a.Identity, b.Identity), cmp.Compare(a.Host, b.Host),
			a.StartedAt.Compare(b.StartedAt))
	})
	ago := max(now.Sub(p.LastSeenAt), 0).Truncate(time.Second)
	at := fmt.Sprintf("%s (%s ago)", phrase.Time(p.LastSeenAt), ago)
	switch {
	case len(p.Workers) == 1:
		p.Reachable, p.Reason = Reachable, fmt.Sprintf("worker %s polls queue %s, last seen %s ago", p.Workers[0],
			queue, ago)
	case len(p.Workers) > 1:
		p.Reachable, p.Reason = Reachable, fmt.Sprintf("%d workers poll queue %s, last seen %s ago", len(p.Workers),
			queue, ago)
	case p.LastSeenAt.IsZero():
		p.Reason = fmt.Sprintf("no worker of queue %s was ever seen, as far as Temporal remembers: start one "+
			"(slipway worker --party)", queue)
	case last.Stopping:
		p.Reason = fmt.Sprintf("the last worker of queue %s, %s, was stopped at %s: start one", queue, last, at)
	default:
		p.Reason = fmt.Sprintf("the last worker of queue %s, %s, was last seen at %s and has been silent for more "+
			"than %s: check that it runs and reaches Temporal", queue, last, at, SilenceLimit)
	}
	return p
}

// SilentAt returns when the party becomes unreachable if none of its workers reports before; false if none is running.
func (p Presence) SilentAt() (at time.Time, ok bool) {
	for _, w := range p.Workers {
		if limit := w.LastSeenAt.Add(SilenceLimit); limit.After(at) {
			at, ok = limit, true
		}
	}
	return at, ok
}

// SilentSince returns the workers that have not reported since the earlier presence former. A running worker reports
// every HeartbeatInterval.
func (p Presence) SilentSince(former Presence) (silent []Worker) {
	return slices.DeleteFunc(slices.Clone(p.Workers), func(w Worker) bool { return !slices.Contains(former.Workers, w) })
}

// UnknownPresence returns the presence of a party whose workers' reports cannot be read, with the reason.
func UnknownPresence(reason string) Presence { return Presence{Reachable: Unknown, Reason: reason} }

// maxQueueLength is the maximum length of a party's queue name, in characters.
const maxQueueLength = 200

// Decode reads the spec of a Party from YAML or JSON, strictly, with all errors at once; {} is a party with only
// defaults. If there are errors, the spec is meaningless.
func Decode(data []byte) (v1alpha1.PartySpec, strictyaml.Errors) {
	root, found, ok := strictyaml.Parse(data)
	if !ok {
		return v1alpha1.PartySpec{}, found.Sorted()
	}
	m := root.Mapping("queue", "namespace", "labels")
	spec := v1alpha1.PartySpec{Queue: m.Field("queue").Text(), Namespace: m.Field("namespace").Text(),
		Labels: m.Field("labels").StringMap()}
	if len(spec.Labels) == 0 {
		spec.Labels = nil
	}
	check(spec, found)
	return spec, found.Sorted()
}

func check(spec v1alpha1.PartySpec, found *strictyaml.Findings) {
	if spec.Queue != "" {
		checkQueue(spec.Queue, found)
	}
	rule := func(field, value, what string, problems []string) {
		if len(problems) > 0 {
			found.Refuse(0, field, "%s is not %s: %s", strictyaml.Quote(value), what, strings.Join(problems, "; "))
		}
	}
	if spec.Namespace != "" {
		rule("namespace", spec.Namespace, "the name of a namespace", validation.IsDNS1123Label(spec.Namespace))
	}
	for _, key := range slices.Sorted(maps.Keys(spec.Labels)) {
		field, value := strictyaml.Join("labels", key), spec.Labels[key]
		rule(field, key, "a legal key of a label", validation.IsQualifiedName(key))
		rule(field, value, "a legal value of a label", validation.IsValidLabelValue(value))
	}
}

func checkQueue(queue string, found *strictyaml.Findings) {
	illegal := func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || strings.ContainsRune("'\"`\\", r)
	}
	switch {
	case len([]rune(queue)) > maxQueueLength:
		found.Refuse(0, "queue", "is too long: the name of a queue has at most %d characters", maxQueueLength)
	case strings.ContainsFunc(queue, illegal):
		found.Refuse(0, "queue", "%s is not the name of a queue: it contains a blank, a quote or a backslash",
			strictyaml.Quote(queue))
	case queue == catalog.EngineQueue:
		found.Refuse(0, "queue",
			"%s is the engine's own queue, which no party's worker polls: leave queue out to use %s",
			strictyaml.Quote(queue), catalog.PartyQueue("<name>"))
	}
}
