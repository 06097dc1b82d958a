// Package upgrade decides which build gets the work if workers of several builds poll one queue.
package upgrade

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Unversioned is the build of workers without versioning, which report none.
const Unversioned = ""

// Build is one build whose workers poll a queue or have polled it.
type Build struct {
	ID string
	// FirstSeen is when a worker of the build first polled; zero: it has no ID.
	FirstSeen time.Time
	// Live means that a worker of the build polls now.
	Live bool
}

// Queue is the state of the builds of one queue.
type Queue struct {
	// Current is the build that gets the work.
	Current string
	// Manager is the identity that manages the choice manually; empty: Slipway does.
	Manager string
	Builds  []Build
}

// Decision is the build that should get the work, and why.
type Decision struct {
	Build  string
	Reason string
	// Older means that the build replaces a newer one.
	Older bool
}

// Decide returns which build gets the work: the newest live one, by the time when each was first seen. An upgrade
// therefore takes effect as soon as the first worker of the new build polls; an older build gets the work back when the
// last worker of the new one has ended; and worker restarts change nothing.
func (q Queue) Decide() Decision {
	if q.Manager != "" {
		return Decision{Build: q.Current, Reason: fmt.Sprintf("%s manages which build gets the work", q.Manager)}
	}
	live := slices.DeleteFunc(slices.Clone(q.Builds), func(b Build) bool { return !b.Live })
	if len(live) == 0 {
		return Decision{Build: q.Current, Reason: "no worker polls"}
	}
	newest := slices.MaxFunc(live, func(a, b Build) int {
		return cmp.Or(a.FirstSeen.Compare(b.FirstSeen), cmp.Compare(a.ID, b.ID))
	})
	switch {
	case newest.ID == q.Current:
		return Decision{Build: q.Current, Reason: "it is the newest build that runs"}
	case slices.ContainsFunc(live, func(b Build) bool { return b.ID == q.Current }):
		return Decision{Build: newest.ID, Reason: fmt.Sprintf("it is newer than %s", Name(q.Current))}
	}
	older := slices.ContainsFunc(q.Builds, func(b Build) bool {
		return b.ID == q.Current && b.FirstSeen.After(newest.FirstSeen)
	})
	return Decision{Build: newest.ID, Reason: fmt.Sprintf("no worker of %s runs", Name(q.Current)), Older: older}
}

// Name returns the name of a build for messages.
func Name(id string) string {
	if id == Unversioned {
		return "the build without an ID"
	}
	return "build " + id
}
