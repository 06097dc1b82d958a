// Package upgrade decides which build gets the work if workers of several builds poll one queue, and what new releases
// may record in their histories so that the previous build can still replay them.
package upgrade

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// Unversioned is the build of workers that do not report one: older workers, and those without versioning.
const Unversioned = ""

// unversionedLevel is the history level of the last build that did not report its ID.
const unversionedLevel = 4

// ID returns a build's ID for Temporal: its version, and the highest history level that it can replay.
func ID(version string, level int) string { return fmt.Sprintf("%s-h%d", version, level) }

var levelPattern = regexp.MustCompile(`-h(\d+)$`)

// Level returns the highest history level that a build can replay; false if its ID does not contain one.
func Level(id string) (level int, ok bool) {
	if id == Unversioned {
		return unversionedLevel, true
	}
	m := levelPattern.FindStringSubmatch(id)
	if m == nil {
		return 0, false
	}
	level, err := strconv.Atoi(m[1])
	return level, err == nil
}

// Build is one build whose workers poll a queue or have polled it.
type Build struct {
	ID string
	// FirstSeen is when a worker of the build first polled; zero: before builds had IDs.
	FirstSeen time.Time
	// LastCurrent is until when the build got work; zero: never.
	LastCurrent time.Time
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

// RecordLevel returns the history level that new releases may record, at most that of this build (own). Every build
// that is live, or that got work within the window before now, must be able to replay it: operators can go back to such
// a build for as long as the window.
func (q Queue) RecordLevel(own int, window time.Duration, now time.Time) (level int, reason string) {
	level, reason = own, "all relevant builds can replay it"
	for _, b := range q.Builds {
		replayable, known := Level(b.ID)
		if !known || replayable >= level || (!b.Live && now.Sub(b.LastCurrent) > window) {
			continue
		}
		level = replayable
		if b.Live {
			reason = fmt.Sprintf("%s runs", Name(b.ID))
		} else {
			reason = fmt.Sprintf("%s got work until %s, and a return to it is possible for %s", Name(b.ID),
				b.LastCurrent.UTC().Format(time.RFC3339), window)
		}
	}
	return level, reason
}
