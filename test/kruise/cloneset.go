package kruise

import (
	"context"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

const instanceLabel = "apps.kruise.io/cloneset-instance-id"

// clonePod is a pod with the properties that diffClone uses; serving means available.
type clonePod struct {
	pod                     *corev1.Pod
	updated, ready, serving bool
}

// cloneSettings are a CloneSet's settings, resolved to numbers of pods.
type cloneSettings struct {
	replicas, partition, maxUnavailable, maxSurge int
}

// cloneDiff is the next change of the pods: at most one of create and remove is not empty.
type cloneDiff struct {
	// create is the number of pods to create, createOld how many of them are of the current revision.
	create    int
	createOld int
	remove    []*corev1.Pod
}

func (c *controller) syncCloneSet(ctx context.Context, s *set, h *history, all []*corev1.Pod) (map[string]any, error) {
	settings, err := settingsOfClone(s)
	if err != nil {
		return nil, err
	}
	k := key{CloneSets, s.Namespace, s.Name}
	var pods []clonePod
	for _, p := range all {
		if active(p) {
			pods = append(pods, clonePod{p, p.Labels[appsv1.ControllerRevisionHashLabelKey] == h.update.Name, ready(p),
				c.available(k, p, s.Spec.MinReadySeconds)})
		}
	}
	d := diffClone(settings, pods, s.Spec.UpdateStrategy.Paused)
	for i := range d.create {
		r := h.update
		if i < d.createOld {
			r = h.current
		}
		if err := c.createClone(ctx, s, r); err != nil {
			return nil, err
		}
	}
	for _, p := range d.remove {
		if err := c.remove(ctx, p); err != nil {
			return nil, err
		}
	}
	return cloneStatus(s, h, pods, settings), nil
}

func settingsOfClone(s *set) (cloneSettings, error) {
	u := s.Spec.UpdateStrategy
	out := cloneSettings{replicas: s.replicas()}
	var err error
	if out.partition, err = scaled(u.Partition, "0", out.replicas, true); err != nil {
		return out, err
	}
	// A percentage below 100 % updates at least one pod.
	if u.Partition != nil && u.Partition.StrVal != "" && u.Partition.StrVal != "100%" && out.replicas > 1 {
		out.partition = min(out.partition, out.replicas-1)
	}
	out.partition = min(out.partition, out.replicas)
	if out.maxSurge, err = scaled(u.MaxSurge, "0", out.replicas, true); err != nil {
		return out, err
	}
	if u.Paused {
		out.maxSurge = 0
	}
	out.maxUnavailable, err = scaled(u.MaxUnavailable, "20%", out.replicas, out.maxSurge == 0)
	return out, err
}

// diffClone returns the next step towards the settings, by the rules of OpenKruise: scaling precedes updating, a surge
// is never larger than the number of pods that are still to be updated, and available pods are only removed as far as
// maxUnavailable allows.
func diffClone(s cloneSettings, pods []clonePod, paused bool) cloneDiff {
	old, updated := split(pods)
	unserving := 0
	for _, p := range pods {
		if !p.serving {
			unserving++
		}
	}
	tooOld, toCome := max(len(old)-s.partition, 0), max(s.replicas-s.partition-len(updated), 0)
	total := s.replicas + min(s.maxSurge, tooOld, toCome)
	if missing := total - len(pods); missing > 0 {
		return cloneDiff{create: missing, createOld: min(missing, max(s.partition-len(old), 0))}
	}
	if excess := len(pods) - total; excess > 0 {
		limit := max(s.maxUnavailable+len(pods)-s.replicas-unserving, 0)
		return cloneDiff{remove: scaleIn(old, updated, excess, max(len(old)-s.partition, 0), limit)}
	}
	if paused {
		return cloneDiff{}
	}
	return cloneDiff{remove: replace(old, updated, min(tooOld, toCome), s.maxUnavailable+len(pods)-s.replicas)}
}

func split(pods []clonePod) (old, updated []clonePod) {
	for _, p := range pods {
		if p.updated {
			updated = append(updated, p)
		} else {
			old = append(old, p)
		}
	}
	sortForRemoval(old)
	sortForRemoval(updated)
	return old, updated
}

// sortForRemoval sorts pods in the order of removal: not ready, not available, then youngest first.
func sortForRemoval(pods []clonePod) {
	rank := func(p clonePod) int {
		switch {
		case !p.ready:
			return 0
		case !p.serving:
			return 1
		}
		return 2
	}
	slices.SortFunc(pods, func(a, b clonePod) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		if d := b.pod.CreationTimestamp.Compare(a.pod.CreationTimestamp.Time); d != 0 {
			return d
		}
		return strings.Compare(a.pod.Name, b.pod.Name)
	})
}

// scaleIn returns the surplus pods: old ones down to the partition, then updated ones; at most limit of the ready ones.
func scaleIn(old, updated []clonePod, excess, excessOld, limit int) []*corev1.Pod {
	fromOld := min(excess, excessOld, len(old))
	chosen := append(slices.Clone(old[:fromOld]), updated[:min(excess-fromOld, len(updated))]...)
	var out []*corev1.Pod
	for _, p := range chosen {
		if p.ready {
			if limit <= 0 {
				continue
			}
			limit--
		}
		out = append(out, p.pod)
	}
	return out
}

// replace returns the old pods to replace. At most limit pods may be unavailable, counted among the updated pods and
// among all pods.
func replace(old, updated []clonePod, number, limit int) []*corev1.Pod {
	unserving, unservingNew := 0, 0
	for _, p := range old {
		if !p.serving {
			unserving++
		}
	}
	for _, p := range updated {
		if !p.serving {
			unserving++
			unservingNew++
		}
	}
	var out []*corev1.Pod
	for _, p := range old[:min(number, len(old))] {
		if unservingNew+len(out) >= limit {
			break
		}
		if p.serving {
			if unserving >= limit {
				break
			}
			unserving++
		}
		out = append(out, p.pod)
	}
	return out
}

func (c *controller) createClone(ctx context.Context, s *set, r *revision) error {
	id := randomID()
	pod, err := newPod(s, r, map[string]string{
		appsv1.ControllerRevisionHashLabelKey:  r.Name,
		appsv1.DefaultDeploymentUniqueLabelKey: r.hash(),
		instanceLabel:                          id,
	})
	if err != nil {
		return err
	}
	pod.Name = s.Name + "-" + id
	return c.create(ctx, pod)
}

func cloneStatus(s *set, h *history, pods []clonePod, settings cloneSettings) map[string]any {
	var readyPods, available, updated, updatedReady, updatedAvailable int64
	for _, p := range pods {
		readyPods += count(p.ready)
		available += count(p.serving)
		updated += count(p.updated)
		updatedReady += count(p.updated && p.ready)
		updatedAvailable += count(p.updated && p.serving)
	}
	current := h.current.Name
	if int(updated) == len(pods) && len(pods) == settings.replicas {
		current = h.update.Name
	}
	return map[string]any{
		"replicas": int64(len(pods)), "readyReplicas": readyPods, "availableReplicas": available,
		"updatedReplicas":      updated,
		"updatedReadyReplicas": updatedReady, "updatedAvailableReplicas": updatedAvailable,
		"expectedUpdatedReplicas": int64(settings.replicas - settings.partition),
		"currentRevision":         current, "updateRevision": h.update.Name, "labelSelector": selectorText(s),
	}
}

func count(is bool) int64 {
	if is {
		return 1
	}
	return 0
}
