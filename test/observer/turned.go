package observer

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// heardWithin is how long a Deployment's controller may go by what it last heard of its ReplicaSets, which reach it by a watch of their own.
const heardWithin = time.Second

// noteTurn notes that somebody else has turned a Deployment round while its own controller was replacing pods. That controller then goes by
// counts of ReplicaSets from before, and takes pods that it has just taken for ready: in the middle of a native update anybody's new template
// does that, and no release can keep it from happening. The engine itself turns round only what it has paused.
func (j *judge) noteTurn(at moment, obj runtime.Object, w world, c Count, size int32) {
	d, ok := obj.(*appsv1.Deployment)
	if !ok {
		return
	}
	was := j.deployment
	j.deployment = d
	updating := w.updating(d)
	if updating > 1 {
		j.updatedAt = at.seen
	}
	updated := updating > 1 || at.seen.Sub(j.updatedAt) < heardWithin && !j.updatedAt.IsZero()
	switch {
	case at.foreign && was != nil && !was.Spec.Paused && !d.Spec.Paused && updated && !equality.Semantic.DeepEqual(was.Spec.Template, d.Spec.Template):
		j.turned = true
	case updating <= 1 && c.Ready() >= size && (c.Stable == 0 || c.New == 0): // its pods have followed
		j.turned = false
	}
}

// excused is how many more pods than a workload's own limits allow may be out since somebody else has turned it round.
func (j *judge) excused(size int32) int32 {
	if !j.turned {
		return 0
	}
	return j.limits.Out(size) + j.limits.Over(size)
}

// updating is how many ReplicaSets of a Deployment have pods, or are to have some.
func (w world) updating(d *appsv1.Deployment) int {
	updating := 0
	for _, o := range w {
		if rs, is := o.(*appsv1.ReplicaSet); is && (rs.Spec.Replicas != nil && *rs.Spec.Replicas > 0 || rs.Status.Replicas > 0) {
			if owner := metav1.GetControllerOf(rs); owner != nil && owner.UID == d.UID {
				updating++
			}
		}
	}
	return updating
}
