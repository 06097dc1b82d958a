// Package upgrade decides, where workers of several builds poll one queue, which build gets the work, and what releases that begin may record so that the
// build of before understands it.
package upgrade

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// Unversioned is the build of workers that don't say which one they are: those of before builds were told apart, and those without versioning.
const Unversioned = ""

// unversionedLevel is the level of history of the last build that didn't say which one it is.
const unversionedLevel = 4

// ID names a build for Temporal: its version, and the level of history up to which it can replay.
func ID(version string, level int) string { return fmt.Sprintf("%s-h%d", version, level) }

var levelOf = regexp.MustCompile(`-h(\d+)$`)

// Level is up to which level of history a build can replay; false where its ID doesn't tell.
func Level(id string) (level int, ok bool) {
	if id == Unversioned {
		return unversionedLevel, true
	}
	m := levelOf.FindStringSubmatch(id)
	if m == nil {
		return 0, false
	}
	level, err := strconv.Atoi(m[1])
	return level, err == nil
}

// Build is one build whose workers poll a queue, or did.
type Build struct {
	ID string
	// FirstSeen is when a worker of it polled first; zero: before builds were told apart.
	FirstSeen time.Time
	// LastCurrent is until when it got work; zero: it never did.
	LastCurrent time.Time
	// Live says that a worker of it polls now.
	Live bool
}

// Queue is what is known of the builds of one queue.
type Queue struct {
	// Current is the build that gets the work.
	Current string
	// Manager is who has taken the choice into their own hands; empty: nobody.
	Manager string
	Builds  []Build
}

// Decision is which build is to get the work.
type Decision struct {
	Build  string
	Reason string
	// Older says that the build takes the work from a newer one.
	Older bool
}

// Decide says which build gets the work: the newest of those that run, by when each was first seen. So an upgrade takes effect as soon as the first worker
// of the new build polls, a build of before gets the work back when the last worker of the new one is gone, and workers that are killed and
// started again change nothing.
func (q Queue) Decide() Decision {
	if q.Manager != "" {
		return Decision{Build: q.Current, Reason: fmt.Sprintf("%s manages which build gets the work", q.Manager)}
	}
	live := slices.DeleteFunc(slices.Clone(q.Builds), func(b Build) bool { return !b.Live })
	if len(live) == 0 {
		return Decision{Build: q.Current, Reason: "no worker polls"}
	}
	newest := slices.MaxFunc(live, func(a, b Build) int { return cmp.Or(a.FirstSeen.Compare(b.FirstSeen), cmp.Compare(a.ID, b.ID)) })
	switch {
	case newest.ID == q.Current:
		return Decision{Build: q.Current, Reason: "it is the newest build that runs"}
	case slices.ContainsFunc(live, func(b Build) bool { return b.ID == q.Current }):
		return Decision{Build: newest.ID, Reason: fmt.Sprintf("it is newer than %s", Name(q.Current))}
	}
	older := slices.ContainsFunc(q.Builds, func(b Build) bool { return b.ID == q.Current && b.FirstSeen.After(newest.FirstSeen) })
	return Decision{Build: newest.ID, Reason: fmt.Sprintf("no worker of %s runs", Name(q.Current)), Older: older}
}

// Name is how people are told of a build.
func Name(id string) string {
	if id == Unversioned {
		return "the build without an ID"
	}
	return "build " + id
}

// Record is the level of history that what begins now may record, at most that of this build: every build that runs, or that got work within the window before
// now, has to be able to replay it. So people can go back to the build of before for as long as the window.
func (q Queue) Record(own int, window time.Duration, now time.Time) (level int, reason string) {
	level, reason = own, "all builds that count understand it"
	for _, b := range q.Builds {
		understands, known := Level(b.ID)
		if !known || understands >= level || (!b.Live && now.Sub(b.LastCurrent) > window) {
			continue
		}
		level = understands
		if b.Live {
			reason = fmt.Sprintf("%s runs", Name(b.ID))
		} else {
			reason = fmt.Sprintf("%s got work until %s and may be gone back to for %s", Name(b.ID), b.LastCurrent.UTC().Format(time.RFC3339), window)
		}
	}
	return level, reason
}
