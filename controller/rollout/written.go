package rollout

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"slipway.io/slipway/release/kruise/v1beta1"
)

// writtenHolds is how long the watch may take to show a status that was written.
const writtenHolds = 2 * time.Second

// writes are the statuses that were written last, by their object. It spares writes: what is decided by a status from before could only be a conflict,
// while the workload's changes go on waking its object.
type writes struct{ remembered[write] }

type write struct {
	of  types.UID
	seq int64
	at  time.Time
}

func (w *writes) note(r *v1beta1.Rollout, now time.Time) {
	w.put(cache.ObjectName{Namespace: r.Namespace, Name: r.Name}, write{r.UID, seqOf(r), now})
}

// unseen is for how long an object is left alone, since it does not show yet what was written; 0: it does, or never will.
func (w *writes) unseen(name cache.ObjectName, r *v1beta1.Rollout, now time.Time) time.Duration {
	last, known := w.get(name)
	if !known || last.of != r.UID || seqOf(r) >= last.seq {
		return 0
	}
	return max(last.at.Add(writtenHolds).Sub(now), 0)
}

// seqOf numbers the statuses of an object.
func seqOf(r *v1beta1.Rollout) int64 {
	if r.Status.Slipway == nil {
		return 0
	}
	return r.Status.Slipway.Seq
}
