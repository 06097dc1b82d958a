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

// tolerance, in percent, allows for weights in whole numbers.
const tolerance = 0.5

// judgeTraffic checks each routing with an ordinary request, and with one request for each match that the steps send to
// the new version.
func (j *judge) judgeTraffic(at moment, w world, size int32, c Count) {
	for _, routing := range j.Routings {
		for _, like := range j.requests() {
			now, err := j.evaluator.split(w, j.stable, routing, like)
			if missing := (shares.MissingError{}); at.foreign && errors.As(err, &missing) {
				// another client deleted a user's object: a release cannot recreate it and waits for an operator
				continue
			}
			if err != nil {
				j.breach(at, PromiseReachable, "the routes of %s cannot be read: %v", routing.Service, err)
				continue
			}
			about := "requests " + describe(like) + " to " + routing.Service
			j.traceLine(at, about, fmt.Sprintf("%v, new version %.1f %%, nowhere %.1f %%", now.ByService, now.New,
				now.Unreachable))
			j.judgeReachable(at, w, routing, about, now)
			j.judgeOrder(at, w, size, c, about, like, now.ByService[routing.CanaryService()])
			if at.pausedAt > 0 {
				j.judgeSplit(at, about, like, now, now.ByService[routing.CanaryService()])
			}
		}
	}
}

// protectWithin is how long requests may have no endpoint after another client's change: a second until the worker has
// unpinned or unrouted, and another for a busy machine.
const protectWithin = 2 * time.Second

// recreateWithin is how long requests may have no endpoint after another client has deleted the canary Service itself.
// The worker recreates it within a second, unless it was killed in the middle of the release's write: then no worker
// continues before the death is detected (10 s; 4 s in tests). Once the Service exists again, its endpoints have the
// usual time.
const recreateWithin = 15 * time.Second

// unreachableSince is the time since when requests of a kind have no endpoint. serviceMissing is true if the canary
// Service does not exist.
type unreachableSince struct {
	at             time.Time
	serviceMissing bool
}

// restartWithin is how long a killed worker is away: until its process runs again and has filled its watch caches.
// Meanwhile the guard and the marks on the objects protect the release; only a running worker makes sure that a pinned
// Service has ready pods.
const restartWithin = 10 * time.Second

// workerDowntime returns how long no worker may have been running, of the time since requests had no endpoint.
func (j *judge) workerDowntime(since, now time.Time) (downtime time.Duration) {
	for _, killed := range j.kills {
		if since.Before(killed.Add(restartWithin)) && now.After(killed) {
			downtime += restartWithin
		}
	}
	return downtime
}

// resizeLag is how long others may still use the previous size after another client has changed it: a write of the
// routes may be in flight, and the workload's own controller adds and deletes pods in its own order.
const resizeLag = 2 * time.Second

// maxReadAge is how old the engine's read of the pods may be when it writes routes: another client may have deleted
// some since.
const maxReadAge = time.Second

func (j *judge) judgeReachable(at moment, w world, routing strategy.Routing, about string, now split) {
	lost := ""
	if now.Unreachable > 0 {
		lost = fmt.Sprintf("%.1f %% of %s have no endpoint", now.Unreachable, about)
	}
	for _, service := range slices.Sorted(maps.Keys(now.ByService)) {
		if lost == "" && now.ByService[service] > 0 && !w.serves(service) {
			lost = fmt.Sprintf("%.1f %% of %s go to Service %s, which has no ready pod", now.ByService[service], about,
				service)
		}
	}
	if lost == "" && at.foreign && !w.serves(routing.Service) {
		lost = fmt.Sprintf("Service %s has no ready pod", routing.Service)
	}
	if _, exists := w["Service/"+routing.Service]; at.foreign && !exists {
		lost = "" // another client deleted the user's Service: a release cannot recreate it and waits for an operator
	}
	since, before := j.unreachable[about]
	_, exists := w["Service/"+routing.CanaryService()]
	missing, within := !exists && w.serves(routing.Service), max(protectWithin, at.grace)
	if missing {
		within = recreateWithin
	}
	switch {
	case lost == "":
		delete(j.unreachable, about)
	case !at.foreign:
		j.breach(at, PromiseReachable, "%s", lost)
	case at.seen.IsZero():
	case !before, since.serviceMissing && !missing:
		j.unreachable[about] = unreachableSince{at.seen, missing}
	case at.seen.Sub(since.at) > within+j.workerDowntime(since.at, at.seen):
		j.breach(at, PromiseReachable, "%s for %s", lost, at.seen.Sub(since.at))
	}
}

// judgeOrder checks that the share that routes send to the canary Service never rises before the pods of the first step
// with that share are ready. What an unpinned stable Service sends to new pods does not count: it follows the pods. It
// is judged only when the share rises; later losses of pods are judged elsewhere.
func (j *judge) judgeOrder(at moment, w world, size int32, c Count, about string, like strategy.Match, share float64) {
	before := j.sent[about]
	j.sent[about] = share
	if share <= before || at.foreign && (strings.Contains(at.what, " EndpointSlice/") || j.writtenByOthers(at, w)) {
		// another client's weight; or endpoints of a canary Service that another client had emptied or deleted are
		// restored: the routes are unchanged
		return
	}
	// Only the end of a blue-green sends more than any step asks for, when all its pods are ready.
	need := j.largest(len(j.Steps), size)
	for step := range j.Steps {
		if j.wantedShare(step+1, like) >= share-tolerance {
			need = j.target(step+1, size)
			break
		}
	}
	justGone := at.foreign && j.newBefore >= need && at.seen.Sub(j.fellAt) <= maxReadAge // the write was in flight
	if c.NewReady < need && !justGone {
		j.breach(at, PromiseOrder, "%.1f %% of %s are sent to the new version with %d pods ready; that share needs %d",
			share, about, c.NewReady, need)
	}
}

// writtenByOthers reports whether the changed object was last written by another client, or possibly so: times are
// whole seconds.
func (j *judge) writtenByOthers(at moment, w world) bool {
	_, changed, _ := strings.Cut(at.what, " ")
	o, err := meta.Accessor(w[changed])
	return err == nil && len(o.GetManagedFields()) > 0 && !fieldmanager.LastIsSlipway(o)
}

// judgeSplit checks, while the rollout waits, that the canary Service gets the step's share, and that it reaches the
// new version if the step routes.
func (j *judge) judgeSplit(at moment, about string, like strategy.Match, now split, share float64) {
	asked := j.wantedShare(at.pausedAt, like)
	if share < asked-tolerance || share > asked+tolerance {
		j.breach(at, PromiseTraffic, "step %d sends %.0f %% of %s to the new version, the routes send %.1f %%",
			at.pausedAt, asked, about, share)
	}
	if j.Steps[at.pausedAt-1].Routes() && (now.New < asked-tolerance || now.New > asked+tolerance) {
		j.breach(at, PromiseTraffic, "step %d sends %.0f %% of %s to the new version, %.1f %% arrive there",
			at.pausedAt, asked, about, now.New)
	}
}

// wantedShare returns the share of such requests that a step sends to the new version, in percent.
func (j *judge) wantedShare(step int, like strategy.Match) float64 {
	asks := j.Steps[step-1].DesiredTraffic()
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

// requests returns the kinds of request to check.
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
