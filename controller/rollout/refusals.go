package rollout

import (
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"

	"slipway.io/slipway/release/backoff"
	"slipway.io/slipway/release/kruise"
	"slipway.io/slipway/release/kruise/v1beta1"
)

// refusalPauseMin and refusalPauseMax limit how long a refusal is kept while nothing changes: what a Rollout refers to
// is often applied a moment later, without an event for the Rollout.
const refusalPauseMin, refusalPauseMax = 2 * time.Second, 30 * time.Second

// refusals are the reasons why releases did not begin. A refusal is valid until the object or its workload changes, or
// the next attempt is due.
type refusals struct{ objectMemory[refusal] }

type refusal struct {
	text             string
	object, workload int64
	// repeats counts the refusals of the same generations before it; until is when it expires.
	repeats int
	until   time.Time
}

func (r *refusals) note(name cache.ObjectName, object *v1beta1.Rollout, w *kruise.Workload, text string,
	now time.Time) {
	repeats := 0
	if last, is := r.get(name); is && last.matches(object, w) {
		repeats = last.repeats + 1
	}
	r.put(name, refusal{text, object.Generation, w.Generation, repeats,
		now.Add(backoff.After(repeats, refusalPauseMin, refusalPauseMax))})
}

// matches reports whether a refusal is about an object and its workload in their current generations.
func (r refusal) matches(object *v1beta1.Rollout, w *kruise.Workload) bool {
	return w != nil && r.object == object.Generation && r.workload == w.Generation
}

// current returns why the release of an object did not begin, "" if an attempt is due, and when the next attempt is
// due.
func (r *refusals) current(name cache.ObjectName, object *v1beta1.Rollout, w *kruise.Workload,
	now time.Time) (text string, retryAt time.Time) {
	last, is := r.get(name)
	if !is || !last.matches(object, w) || !now.Before(last.until) {
		return "", time.Time{}
	}
	return last.text, last.until
}

func ignoreStale(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		return nil // deleted or changed since: the watch delivers it
	}
	return err
}
