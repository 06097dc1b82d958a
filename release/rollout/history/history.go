// Package history reads the releases of one rollout name as a history of versions: which numbers people call them by, which of them have
// served, in which order, and which one an undo goes back to. It decides; it touches nothing.
package history

import (
	"fmt"
	"slices"
	"strings"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/strategy"
)

// First is the number of the first release of a name. Revision 1 is the version that it replaced.
const First = 2

// Numbers completes the numbers of a name's releases, which come newest first. Those of an earlier build have none (0): they count down from the
// first that has one.
func Numbers(recorded []int64) []int64 {
	numbers := slices.Clone(recorded)
	next := int64(First)
	if i := oldestNumbered(recorded); i >= 0 {
		next = recorded[i] - int64(len(recorded)-1-i)
	}
	for i := range slices.Backward(numbers) {
		if numbers[i] == 0 {
			numbers[i] = max(next, 1)
		}
		next = numbers[i] + 1
	}
	return numbers
}

// oldestNumbered is the oldest release that has a number; -1: none has.
func oldestNumbered(recorded []int64) int {
	for i := range slices.Backward(recorded) {
		if recorded[i] > 0 {
			return i
		}
	}
	return -1
}

// Next is the number of the next release of a name.
func Next(recorded []int64) int64 {
	if len(recorded) == 0 {
		return First
	}
	return slices.Max(Numbers(recorded)) + 1
}

// Version is a version that has served, by the newest number that it has; 0: it has none, since no release on record brought it.
type Version struct {
	Number int64
	strategy.Revision
}

// String is how messages call it: "revision 2 (app=registry/app:2)".
func (v Version) String() string {
	name := "the version before"
	if v.Number > 0 {
		name = fmt.Sprintf("revision %d", v.Number)
	}
	if images := strategy.ImageList(v.Images); images != "" {
		name += " (" + images + ")"
	}
	return name
}

// is says whether two revisions are of one template, as far as they are known.
func is(a, b strategy.Revision) bool {
	if a.Template != "" && b.Template != "" {
		return a.Template == b.Template
	}
	return a.Name != "" && a.Name == b.Name
}

func known(r strategy.Revision) bool { return r.Template != "" || r.Name != "" }

// brought and replaced are the version that a release brought, and the one that it found.
func brought(s rollout.Status) strategy.Revision {
	return strategy.Revision{Template: s.TemplateDigest, Name: s.CanaryRevision, Images: s.Images}
}

func replaced(s rollout.Status) strategy.Revision {
	return strategy.Revision{Template: s.StableTemplateDigest, Name: s.StableRevision, Images: s.StableImages}
}

// Past is what the releases of a name tell of its versions.
type Past struct {
	// Served are the versions that have served, the one that served last first, each once.
	Served []Version
	// Replaced are the numbers of the versions that the releases found, release by release; 0 where that version has none.
	Replaced []int64
	releases []rollout.Status
}

// Of reads the releases of a name, which come newest first with their numbers.
func Of(releases []rollout.Status) Past {
	p := Past{Replaced: make([]int64, len(releases)), releases: releases}
	for i, s := range slices.Backward(releases) {
		if found := replaced(s); known(found) {
			p.Replaced[i] = p.found(i, found)
		}
		if s.Phase == rollout.PhaseHealthy && known(brought(s)) {
			p.serves(s.Revision, brought(s))
		}
	}
	return p
}

// found notes the version that a release found, and says its number.
func (p *Past) found(release int, r strategy.Revision) int64 {
	at := p.find(r)
	switch {
	case at < 0: // no release brought it: it has the number before the release's, unless a release has that
		number := p.releases[release].Revision - 1
		if number < 1 || slices.ContainsFunc(p.releases, func(s rollout.Status) bool { return s.Revision == number }) {
			number = 0
		}
		p.serves(number, r)
		return number
	case at > 0: // somebody has brought it back without a release
		p.serves(p.Served[at].Number, r)
	}
	return p.Served[0].Number
}

func (p *Past) find(r strategy.Revision) int {
	return slices.IndexFunc(p.Served, func(v Version) bool { return is(v.Revision, r) })
}

// serves notes that a version serves from now on.
func (p *Past) serves(number int64, r strategy.Revision) {
	p.Served = slices.DeleteFunc(p.Served, func(v Version) bool { return is(v.Revision, r) })
	p.Served = slices.Insert(p.Served, 0, Version{number, r})
}

// Target is where an undo goes back to.
type Target struct {
	Version
	// Back is how many versions back it is: 1 is the one that served before the one that serves now.
	Back int
	// Now is the version that serves now, as the last release that ended well left it.
	Now Version
}

// Within says whether the target is within a window of rollback of so many versions.
func (t Target) Within(window int64) bool { return int64(t.Back) <= window }

// Choose says where an undo goes back to: to the revision of that number, or, with 0, to what the last release that ended Healthy replaced. One
// that brought the version that it found replaced none. The error says what to do instead.
func (p Past) Choose(number int64) (Target, error) {
	last := slices.IndexFunc(p.releases, func(s rollout.Status) bool {
		return s.Phase == rollout.PhaseHealthy && !is(brought(s), replaced(s))
	})
	if last < 0 {
		return Target{}, failure.New(failure.Refused, "no release of this name has ended Healthy, so there is nothing to undo: start a rollout with the "+
			"images that are to serve")
	}
	to := replaced(p.releases[last])
	if number > 0 {
		var err error
		if to, err = p.numbered(number); err != nil {
			return Target{}, err
		}
	}
	at := p.find(to)
	switch {
	case !known(to) || at < 0:
		return Target{}, failure.New(failure.Refused, "the record of that release doesn't say which pod template it had, since an earlier version of Slipway "+
			"wrote it: start a rollout with the images of that version")
	case at == 0:
		return Target{}, failure.New(failure.Refused, "%s is the version that serves now: there is nothing to undo", p.Served[0])
	}
	return Target{Version: p.Served[at], Back: at, Now: p.Served[0]}, nil
}

// numbered is the version that people call by a number.
func (p Past) numbered(number int64) (strategy.Revision, error) {
	for _, v := range p.Served {
		if v.Number == number {
			return v.Revision, nil
		}
	}
	i := slices.IndexFunc(p.releases, func(s rollout.Status) bool { return s.Revision == number })
	switch {
	case i < 0:
		return strategy.Revision{}, failure.New(failure.Refused, "there is no revision %d in the history, which has %s", number, p.choices())
	case p.find(brought(p.releases[i])) >= 0: // it has served under another number too
		return brought(p.releases[i]), nil
	case p.releases[i].Phase == rollout.PhaseHealthy: // which template it had is not on record
		return strategy.Revision{}, nil
	}
	return strategy.Revision{}, failure.New(failure.Refused, "revision %d never served alone: its release ended as %s. Choose one of %s, or start a rollout "+
		"with its images", number, p.releases[i].Phase, p.choices())
}

// choices lists the versions that an undo can go back to.
func (p Past) choices() string {
	var list []string
	for _, v := range p.Served[min(1, len(p.Served)):] {
		if v.Number > 0 {
			list = append(list, v.String())
		}
	}
	if len(list) == 0 {
		return "no version to go back to"
	}
	return strings.Join(list, ", ")
}
