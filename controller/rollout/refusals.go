package rollout

import (
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"

	"slipway.io/slipway/release/kruise"
	"slipway.io/slipway/release/kruise/v1beta1"
)

// refusedFirst and refusedMost limit how long a refusal is taken as true while nothing changes: what a Rollout refers to is often applied a moment
// later, and nobody tells when it is.
const refusedFirst, refusedMost = 2 * time.Second, 30 * time.Second

// refusals are why releases did not begin, as long as that holds: until the object or its workload changes, or the next try is due.
type refusals struct{ remembered[refusal] }

type refusal struct {
	text             string
	object, workload int64
	// pause is how long the refusal holds, until when it does so.
	pause time.Duration
	until time.Time
}

func (r *refusals) note(name cache.ObjectName, object *v1beta1.Rollout, w *kruise.Workload, text string, now time.Time) {
	pause := refusedFirst
	if last, is := r.get(name); is && last.of(object, w) {
		pause = min(2*last.pause, refusedMost)
	}
	r.put(name, refusal{text, object.Generation, w.Generation, pause, now.Add(pause)})
}

// of says whether a refusal is that of an object and its workload as they are.
func (r refusal) of(object *v1beta1.Rollout, w *kruise.Workload) bool {
	return w != nil && r.object == object.Generation && r.workload == w.Generation
}

// of is why the release of an object did not begin, "" when it is to be tried, and when the next try is due.
func (r *refusals) of(name cache.ObjectName, object *v1beta1.Rollout, w *kruise.Workload, now time.Time) (text string, retryAt time.Time) {
	said, is := r.get(name)
	if !is || !said.of(object, w) || !now.Before(said.until) {
		return "", time.Time{}
	}
	return said.text, said.until
}

func notFoundIsFine(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		return nil // it is gone, or was changed since: the watch shows it
	}
	return err
}
