package rollout

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"slipway.io/slipway/release/kruise/v1beta1"
)

// writeVisibleTimeout is how long the watch may take to deliver a written status.
const writeVisibleTimeout = 2 * time.Second

// writes are the last written statuses, by object. It saves writes: a decision based on an older status could only
// cause a conflict, while changes of the workload keep waking its object.
type writes struct{ objectMemory[write] }

type write struct {
	of  types.UID
	seq int64
	at  time.Time
}

func (w *writes) note(r *v1beta1.Rollout, now time.Time) {
	w.put(cache.ObjectName{Namespace: r.Namespace, Name: r.Name}, write{r.UID, seqOf(r), now})
}

// unseen returns for how long to wait until the watch delivers the written status; 0: it has, or never will.
func (w *writes) unseen(name cache.ObjectName, r *v1beta1.Rollout, now time.Time) time.Duration {
	last, known := w.get(name)
	if !known || last.of != r.UID || seqOf(r) >= last.seq {
		return 0
	}
	return max(last.at.Add(writeVisibleTimeout).Sub(now), 0)
}

// seqOf is the sequence number of an object's status.
func seqOf(r *v1beta1.Rollout) int64 {
	if r.Status.Slipway == nil {
		return 0
	}
	return r.Status.Slipway.Seq
}
