package observer

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"slipway.io/slipway/release/fieldmanager"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/test/shares"
)

// tolerance, in percent, allows for weights that are whole numbers.
const tolerance = 0.5

// judgeTraffic looks at each routing with a request like any other, and with one like each of those that the steps send to the new version.
func (j *judge) judgeTraffic(at moment, w world, size int32, c Count) {
	for _, routing := range j.Routings {
		for _, like := range j.requests() {
			now, err := j.scene.split(w, j.stable, routing, like)
			if missing := (shares.MissingError{}); at.foreign && errors.As(err, &missing) {
				continue // an object of the user's that somebody else has deleted: a release cannot make it again, and waits for a person
			}
			if err != nil {
				j.breach(at, PromiseNowhere, "the routes of %s cannot be read: %v", routing.Service, err)
				continue
			}
			about := "requests " + describe(like) + " to " + routing.Service
			j.drawLine(at, about, fmt.Sprintf("%v, new version %.1f %%, nowhere %.1f %%", now.ByService, now.New, now.Nowhere))
			j.judgeNowhere(at, w, routing, about, now)
			j.judgeOrder(at, w, size, c, about, like, now.ByService[routing.CanaryService()])
			if at.resting > 0 {
				j.judgeSplit(at, about, like, now, now.ByService[routing.CanaryService()])
			}
		}
	}
}

// shelterWithin is how long requests may meet nobody behind somebody else's deed: a second, until the worker has unpinned or unrouted, and another for a busy machine.
const shelterWithin = 2 * time.Second

// remadeWithin is how long requests may meet nobody since somebody else has deleted the canary Service itself: no hand of a release's is faster than the worker, which
// makes it again within a second, unless it was killed in the middle of the release's write, which nobody goes on with before that death is noticed (10 s; 4 s in
// tests). From then on that it is there again its endpoints have as long as those of any other.
const remadeWithin = 15 * time.Second

// lostSince is since when requests of a kind meet nobody, and whether that is because the canary Service is not there.
type lostSince struct {
	at   time.Time
	gone bool
}

// backWithin is how long a worker that was killed is away: until its process runs again, and has read again what it watches. What holds meanwhile is the matter of
// the guard, and of what stands on the objects; that no pinned Service serves nobody is kept by a worker that runs.
const backWithin = 10 * time.Second

// away is how long no worker was to be there, of the time since requests met nobody.
func (j *judge) away(since, now time.Time) (away time.Duration) {
	for _, killed := range j.kills {
		if since.Before(killed.Add(backWithin)) && now.After(killed) {
			away += backWithin
		}
	}
	return away
}

// followsWithin is how long a size that somebody else has just changed need not be what others go by: a write of the routes may be on its way, and the workload's own
// controller makes its pods more and fewer in an order of its own.
const followsWithin = 2 * time.Second

// justGoneWithin is how old the engine's knowledge of the pods may be when it writes routes: somebody else's deed may just have taken them.
const justGoneWithin = time.Second

func (j *judge) judgeNowhere(at moment, w world, routing strategy.Routing, about string, now split) {
	lost := ""
	if now.Nowhere > 0 {
		lost = fmt.Sprintf("%.1f %% of %s meet no endpoint", now.Nowhere, about)
	}
	for _, service := range slices.Sorted(maps.Keys(now.ByService)) {
		if lost == "" && now.ByService[service] > 0 && !w.serves(service) {
			lost = fmt.Sprintf("%.1f %% of %s go to Service %s, of whose pods none is ready", now.ByService[service], about, service)
		}
	}
	if lost == "" && at.foreign && !w.serves(routing.Service) {
		lost = fmt.Sprintf("Service %s serves nobody", routing.Service)
	}
	if _, theirs := w["Service/"+routing.Service]; at.foreign && !theirs {
		lost = "" // somebody else has deleted the user's own Service: a release cannot make it again, and waits for a person
	}
	since, before := j.nowhere[about]
	_, there := w["Service/"+routing.CanaryService()]
	gone, within := !there && w.serves(routing.Service), max(shelterWithin, at.grace)
	if gone {
		within = remadeWithin
	}
	switch {
	case lost == "":
		delete(j.nowhere, about)
	case !at.foreign:
		j.breach(at, PromiseNowhere, "%s", lost)
	case at.seen.IsZero():
	case !before, since.gone && !gone:
		j.nowhere[about] = lostSince{at.seen, gone}
	case at.seen.Sub(since.at) > within+j.away(since.at, at.seen):
		j.breach(at, PromiseNowhere, "%s for %s", lost, at.seen.Sub(since.at))
	}
}

// judgeOrder: the share that routes send to the canary Service never rises before the pods of the first step that asks for as much.
// What an unpinned stable Service sends to new pods is no such share: it follows the pods. Judged when it rises: what becomes of the pods
// afterwards is another matter.
func (j *judge) judgeOrder(at moment, w world, size int32, c Count, about string, like strategy.Match, share float64) {
	before := j.sent[about]
	j.sent[about] = share
	if share <= before || at.foreign && (strings.Contains(at.what, " EndpointSlice/") || j.writtenByOthers(at, w)) {
		return // somebody else's weight; or the endpoints of a canary Service that somebody else had emptied, or deleted, are back: the routes say what they said before
	}
	// More than any step asks for is what a blue-green's end does, when all its pods are there.
	need := j.largest(len(j.Steps), size)
	for step := range j.Steps {
		if j.asked(step+1, like) >= share-tolerance {
			need = j.target(step+1, size)
			break
		}
	}
	justGone := at.foreign && j.newBefore >= need && at.seen.Sub(j.fellAt) <= justGoneWithin // the write was on its way
	if c.NewReady < need && !justGone {
		j.breach(at, PromiseOrder, "%.1f %% of %s are sent to the new version with %d pods ready; so much is for %d", share, about, c.NewReady, need)
	}
}

// writtenByOthers says whether what has changed in a moment was last written by somebody else, or perhaps so: times are whole seconds.
func (j *judge) writtenByOthers(at moment, w world) bool {
	_, changed, _ := strings.Cut(at.what, " ")
	o, err := meta.Accessor(w[changed])
	return err == nil && len(o.GetManagedFields()) > 0 && !fieldmanager.LastIsSlipway(o)
}

// judgeSplit: at rest the canary Service gets what the step asks, and where that is something it arrives at the new version.
func (j *judge) judgeSplit(at moment, about string, like strategy.Match, now split, share float64) {
	asked := j.asked(at.resting, like)
	if share < asked-tolerance || share > asked+tolerance {
		j.breach(at, PromiseTraffic, "step %d sends %.0f %% of %s to the new version, the routes send %.1f %%", at.resting, asked, about, share)
	}
	if j.Steps[at.resting-1].Routes() && (now.New < asked-tolerance || now.New > asked+tolerance) {
		j.breach(at, PromiseTraffic, "step %d sends %.0f %% of %s to the new version, %.1f %% arrive there", at.resting, asked, about, now.New)
	}
}

// asked is the share of such requests that a step sends to the new version, in percent.
func (j *judge) asked(step int, like strategy.Match) float64 {
	asks := j.Steps[step-1].Asks()
	if len(asks.Matches) > 0 {
		for _, match := range asks.Matches {
			if describe(match) == describe(like) {
				return 100
			}
		}
		return 0
	}
	if asks.Weight == nil {
		return 0
	}
	return float64(*asks.Weight)
}

// requests are the kinds of request to look at.
func (j *judge) requests() []strategy.Match {
	all := []strategy.Match{{}}
	for _, step := range j.Steps {
		all = append(all, step.Matches...)
	}
	return all
}

func describe(like strategy.Match) string {
	text := "like any"
	if like.Path != nil {
		text = fmt.Sprintf("for %s %s", like.Path.Type, like.Path.Value)
	}
	for _, h := range like.Headers {
		text += fmt.Sprintf(" with header %s %s", h.Name, h.Value)
	}
	for _, q := range like.QueryParams {
		text += fmt.Sprintf(" with query %s %s", q.Name, q.Value)
	}
	return text
}
