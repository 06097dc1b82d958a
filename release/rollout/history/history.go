// Package history reads the releases of one rollout name as a history of versions: their numbers, which of them have
// served, in which order, and which one an undo goes back to. It decides; it does not access the cluster.
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

// Next returns the number of the next release of a name.
func Next(recorded []int64) int64 {
	if len(recorded) == 0 {
		return First
	}
	return slices.Max(recorded) + 1
}

// Version is a version that has served, with its newest number; 0: no release on record deployed it.
type Version struct {
	Number int64
	strategy.Revision
}

// String names it in messages: "revision 2 (app=registry/app:2)".
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

// sameTemplate reports whether two revisions are of one template, as far as is known.
func sameTemplate(a, b strategy.Revision) bool {
	if a.Template != "" && b.Template != "" {
		return a.Template == b.Template
	}
	return a.Name != "" && a.Name == b.Name
}

func identified(r strategy.Revision) bool { return r.Template != "" || r.Name != "" }

// newRevision returns the version that a release deployed, replacedRevision the one that it found.
func newRevision(s rollout.Status) strategy.Revision {
	return strategy.Revision{Template: s.TemplateDigest, Name: s.CanaryRevision, Images: s.Images}
}

func replacedRevision(s rollout.Status) strategy.Revision {
	return strategy.Revision{Template: s.StableTemplateDigest, Name: s.StableRevision, Images: s.StableImages}
}

// DeployedBy returns the version that a release deployed; false if its status does not identify it.
func DeployedBy(s rollout.Status) (strategy.Revision, bool) {
	r := newRevision(s)
	return r, identified(r)
}

// Versions is the history of a name's versions, as read from its releases.
type Versions struct {
	// Served are the versions that have served, each once, the most recent first.
	Served []Version
	// Replaced are the numbers of the versions that the releases found, by release; 0: that version has none.
	Replaced []int64
	releases []rollout.Status
}

// Of reads the releases of a name, newest first and numbered.
func Of(releases []rollout.Status) Versions {
	p := Versions{Replaced: make([]int64, len(releases)), releases: releases}
	for i, s := range slices.Backward(releases) {
		if found := replacedRevision(s); identified(found) {
			p.Replaced[i] = p.noteFound(i, found)
		}
		if s.Phase == rollout.PhaseHealthy && identified(newRevision(s)) {
			p.noteServing(s.Revision, newRevision(s))
		}
	}
	return p
}

// noteFound records the version that a release found, and returns its number.
func (p *Versions) noteFound(release int, r strategy.Revision) int64 {
	at := p.find(r)
	switch {
	case at < 0: // no release deployed it: it gets the number before the release's, unless a release has that
		number := p.releases[release].Revision - 1
		if number < 1 || slices.ContainsFunc(p.releases, func(s rollout.Status) bool { return s.Revision == number }) {
			number = 0
		}
		p.noteServing(number, r)
		return number
	case at > 0: // it was restored without a release
		p.noteServing(p.Served[at].Number, r)
	}
	return p.Served[0].Number
}

func (p *Versions) find(r strategy.Revision) int {
	return slices.IndexFunc(p.Served, func(v Version) bool { return sameTemplate(v.Revision, r) })
}

// noteServing records that a version serves from now on.
func (p *Versions) noteServing(number int64, r strategy.Revision) {
	p.Served = slices.DeleteFunc(p.Served, func(v Version) bool { return sameTemplate(v.Revision, r) })
	p.Served = slices.Insert(p.Served, 0, Version{number, r})
}

// Target is what an undo goes back to.
type Target struct {
	Version
	// Back is how many versions back it is: 1 is the one that served before the current one.
	Back int
	// Now is the version that serves now, as the last Healthy release left it.
	Now Version
}

// Within reports whether the target is among the last window versions.
func (t Target) Within(window int64) bool { return int64(t.Back) <= window }

// Choose returns what an undo goes back to: the revision of that number or, for 0, the version that the last Healthy
// release replaced. A release that deployed the version that it found replaced none. The error names what to do
// instead.
func (p Versions) Choose(number int64) (Target, error) {
	last := slices.IndexFunc(p.releases, func(s rollout.Status) bool {
		return s.Phase == rollout.PhaseHealthy && !sameTemplate(newRevision(s), replacedRevision(s))
	})
	if last < 0 {
		return Target{}, failure.New(failure.Refused,
			"no release of this name has ended Healthy, so there is nothing to undo: start a rollout with the "+
				"images that should serve")
	}
	to := replacedRevision(p.releases[last])
	if number > 0 {
		var err error
		if to, err = p.numbered(number); err != nil {
			return Target{}, err
		}
	}
	at := p.find(to)
	switch {
	case !identified(to) || at < 0:
		return Target{}, failure.New(failure.Refused,
			"the record of that release doesn't say which pod template it had, since an earlier version of Slipway "+
				"wrote it: start a rollout with the images of that version")
	case at == 0:
		return Target{}, failure.New(failure.Refused, "%s is the version that serves now: there is nothing to undo",
			p.Served[0])
	}
	return Target{Version: p.Served[at], Back: at, Now: p.Served[0]}, nil
}

// numbered returns the version that users know by a number.
func (p Versions) numbered(number int64) (strategy.Revision, error) {
	for _, v := range p.Served {
		if v.Number == number {
			return v.Revision, nil
		}
	}
	i := slices.IndexFunc(p.releases, func(s rollout.Status) bool { return s.Revision == number })
	switch {
	case i < 0:
		return strategy.Revision{}, failure.New(failure.Refused, "there is no revision %d in the history, which has %s",
			number, p.choices())
	case p.find(newRevision(p.releases[i])) >= 0: // it has served under another number too
		return newRevision(p.releases[i]), nil
	case p.releases[i].Phase == rollout.PhaseHealthy: // which template it had is not on record
		return strategy.Revision{}, nil
	}
	return strategy.Revision{}, failure.New(failure.Refused,
		"revision %d never served alone: its release ended as %s. Choose one of %s, or start a rollout "+
			"with its images", number, p.releases[i].Phase, p.choices())
}

// choices lists the versions that an undo can go back to.
func (p Versions) choices() string {
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
