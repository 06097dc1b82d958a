package observer

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// watchLag is how old a Deployment controller's view of its ReplicaSets may be: they reach it by a separate watch.
const watchLag = time.Second

// noteReversal detects that another client changed a Deployment's template while its own controller was replacing pods.
// That controller then uses stale counts of ReplicaSets, and deletes pods that just became ready: any new template in
// the middle of a native update does that, and no release can prevent it. The engine itself changes the template only
// while the Deployment is paused.
func (j *judge) noteReversal(at moment, obj runtime.Object, w world, c Count, size int32) {
	d, ok := obj.(*appsv1.Deployment)
	if !ok {
		return
	}
	was := j.deployment
	j.deployment = d
	updating := w.activeReplicaSets(d)
	if updating > 1 {
		j.updatedAt = at.seen
	}
	updated := updating > 1 || at.seen.Sub(j.updatedAt) < watchLag && !j.updatedAt.IsZero()
	switch {
	case at.foreign && was != nil && !was.Spec.Paused && !d.Spec.Paused && updated &&
		!equality.Semantic.DeepEqual(was.Spec.Template, d.Spec.Template):
		j.reversed = true
	case updating <= 1 && c.Ready() >= size && (c.Stable == 0 || c.New == 0): // its pods have followed
		j.reversed = false
	}
}

// reversalAllowance returns how many more pods than the workload's own limits allow may be unavailable after such a
// reversal.
func (j *judge) reversalAllowance(size int32) int32 {
	if !j.reversed {
		return 0
	}
	return j.limits.MaxUnavailable(size) + j.limits.MaxSurge(size)
}

// activeReplicaSets returns the number of a Deployment's ReplicaSets that have pods or should have some.
func (w world) activeReplicaSets(d *appsv1.Deployment) int {
	updating := 0
	for _, o := range w {
		if rs, is := o.(*appsv1.ReplicaSet); is &&
			(rs.Spec.Replicas != nil && *rs.Spec.Replicas > 0 || rs.Status.Replicas > 0) {
			if owner := metav1.GetControllerOf(rs); owner != nil && owner.UID == d.UID {
				updating++
			}
		}
	}
	return updating
}
