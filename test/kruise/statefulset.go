package kruise

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// statefulSync is one reconciliation of an Advanced StatefulSet.
type statefulSync struct {
	c *controller
	s *set
	h *history
	k key
	// slots are the pods of the requested ordinals; nil for a missing pod.
	slots []*corev1.Pod
	// beyond are the pods of higher ordinals, sorted by ordinal.
	beyond []*corev1.Pod
}

func (c *controller) syncStatefulSet(ctx context.Context, s *set, h *history, all []*corev1.Pod) (map[string]any,
	error) {
	o := &statefulSync{c: c, s: s, h: h, k: key{StatefulSets, s.Namespace, s.Name},
		slots: make([]*corev1.Pod, s.replicas())}
	far := map[int]*corev1.Pod{}
	highest := -1
	for _, p := range all {
		n, err := strconv.Atoi(p.Name[strings.LastIndexByte(p.Name, '-')+1:])
		switch {
		case err != nil:
			continue
		case n < len(o.slots):
			o.slots[n] = p
		default:
			far[n] = p
			highest = max(highest, n)
		}
	}
	for n := len(o.slots); n <= highest; n++ {
		if p := far[n]; p != nil {
			o.beyond = append(o.beyond, p)
		}
	}
	done, err := o.scale(ctx)
	if err != nil {
		return nil, err
	}
	if done {
		if err := o.update(ctx); err != nil {
			return nil, err
		}
	}
	return o.status(all), nil
}

// inOrder reports whether pods are created and removed one at a time.
func (o *statefulSync) inOrder() bool {
	return o.s.Spec.PodManagementPolicy != appsv1.ParallelPodManagement
}

func (o *statefulSync) updated(p *corev1.Pod) bool {
	return p.Labels[appsv1.ControllerRevisionHashLabelKey] == o.h.update.Name
}

func (o *statefulSync) available(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && o.c.available(o.k, p, o.s.Spec.UpdateStrategy.RollingUpdate.MinReadySeconds)
}

// scale creates missing pods and removes surplus ones. done is true when the pods may be updated.
func (o *statefulSync) scale(ctx context.Context) (done bool, err error) {
	for n, p := range o.slots {
		switch {
		case p != nil && !active(p) && p.DeletionTimestamp == nil:
			return false, o.c.remove(ctx, p)
		case p == nil:
			if err := o.create(ctx, n); err != nil || o.inOrder() {
				return false, err
			}
		case o.inOrder() && !o.available(p):
			return false, nil
		}
	}
	for i := len(o.beyond) - 1; i >= 0; i-- {
		p := o.beyond[i]
		if p.DeletionTimestamp == nil {
			if err := o.c.remove(ctx, p); err != nil {
				return false, err
			}
		}
		if o.inOrder() {
			return false, nil
		}
	}
	return true, nil
}

// create creates the pod of an ordinal: of the current revision below the partition, otherwise of the new one.
func (o *statefulSync) create(ctx context.Context, n int) error {
	r := o.h.update
	if n < int(o.s.Spec.UpdateStrategy.RollingUpdate.Partition) {
		r = o.h.current
	}
	pod, err := newPod(o.s, r, map[string]string{
		appsv1.ControllerRevisionHashLabelKey: r.Name,
		appsv1.StatefulSetPodNameLabel:        fmt.Sprintf("%s-%d", o.s.Name, n),
		appsv1.PodIndexLabel:                  strconv.Itoa(n),
	})
	if err != nil {
		return err
	}
	pod.Name = fmt.Sprintf("%s-%d", o.s.Name, n)
	pod.Spec.Hostname = pod.Name
	return o.c.create(ctx, pod)
}

// update deletes old pods from the highest ordinal down to the partition; at most maxUnavailable pods are unavailable
// at a time.
func (o *statefulSync) update(ctx context.Context) error {
	u := o.s.Spec.UpdateStrategy
	if u.Type == onDelete || u.RollingUpdate.Paused {
		return nil
	}
	limit, err := scaled(u.RollingUpdate.MaxUnavailable, "1", len(o.slots), false)
	if err != nil {
		return err
	}
	unavailable := 0
	for n := len(o.slots) - 1; n >= int(u.RollingUpdate.Partition); n-- {
		p := o.slots[n]
		if p != nil && !o.updated(p) && p.DeletionTimestamp == nil {
			if err := o.c.remove(ctx, p); err != nil {
				return err
			}
			unavailable++
		} else if p == nil || !o.updated(p) || !o.available(p) {
			unavailable++
		}
		if unavailable >= max(limit, 1) {
			return nil
		}
	}
	return nil
}

func (o *statefulSync) status(all []*corev1.Pod) map[string]any {
	var readyPods, available, updated, updatedReady, updatedAvailable, current int64
	for _, p := range all {
		readyPods += count(ready(p))
		available += count(o.available(p))
		updated += count(p.DeletionTimestamp == nil && o.updated(p))
		updatedReady += count(ready(p) && o.updated(p))
		updatedAvailable += count(o.available(p) && o.updated(p))
		current += count(p.DeletionTimestamp == nil &&
			p.Labels[appsv1.ControllerRevisionHashLabelKey] == o.h.current.Name)
	}
	name := o.h.current.Name
	if n := int64(len(o.slots)); updated == n && readyPods == n && int64(len(all)) == n {
		name, current = o.h.update.Name, updated
	}
	return map[string]any{
		"replicas": int64(len(all)), "readyReplicas": readyPods, "availableReplicas": available,
		"currentReplicas": current,
		"updatedReplicas": updated, "updatedReadyReplicas": updatedReady, "updatedAvailableReplicas": updatedAvailable,
		"currentRevision": name, "updateRevision": o.h.update.Name, "labelSelector": selectorText(o.s),
	}
}

func selectorText(s *set) string { return metav1.FormatLabelSelector(s.Spec.Selector) }
