package kruise

import (
	"context"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// nodePods are the pods of one node.
type nodePods struct {
	node string
	pods []*corev1.Pod
}

// activePod returns the active pod of the node; nil if there is none.
func (n nodePods) activePod() *corev1.Pod {
	for _, p := range n.pods {
		if active(p) {
			return p
		}
	}
	return nil
}

func (c *controller) syncDaemonSet(ctx context.Context, s *set, h *history, all []*corev1.Pod) (map[string]any, error) {
	nodes, err := c.nodes(ctx, s, all)
	if err != nil {
		return nil, err
	}
	k := key{DaemonSets, s.Namespace, s.Name}
	hash := h.update.hash()
	for _, n := range nodes {
		if len(n.pods) == 0 {
			// A node without a pod always gets one of the newest revision: the partition only prevents replacement.
			if err := c.createDaemon(ctx, s, h.update, n.node); err != nil {
				return nil, err
			}
		}
		for _, p := range n.pods {
			if p.DeletionTimestamp == nil && !active(p) {
				if err := c.remove(ctx, p); err != nil {
					return nil, err
				}
			}
		}
	}
	if u := s.Spec.UpdateStrategy; u.Type != onDelete && !u.RollingUpdate.Paused {
		limit, err := scaled(u.RollingUpdate.MaxUnavailable, "1", len(nodes), true)
		if err != nil {
			return nil, err
		}
		serving := func(p *corev1.Pod) bool { return c.available(k, p, s.Spec.MinReadySeconds) }
		for _, p := range outdated(nodes, hash, int(u.RollingUpdate.Partition), max(limit, 1), serving) {
			if err := c.remove(ctx, p); err != nil {
				return nil, err
			}
		}
	}
	return c.daemonStatus(s, k, hash, nodes), nil
}

// nodes returns the nodes that match the template's nodeSelector, sorted by name, with their pods.
func (c *controller) nodes(ctx context.Context, s *set, all []*corev1.Pod) ([]nodePods, error) {
	list, err := c.kube.CoreV1().Nodes().List(ctx,
		metav1.ListOptions{LabelSelector: labels.SelectorFromSet(s.Spec.Template.Spec.NodeSelector).String()})
	if err != nil {
		return nil, err
	}
	var out []nodePods
	for _, node := range list.Items {
		n := nodePods{node: node.Name}
		for _, p := range all {
			if p.Spec.NodeName == node.Name {
				n.pods = append(n.pods, p)
			}
		}
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b nodePods) int { return strings.Compare(a.node, b.node) })
	return out, nil
}

// outdated returns the old pods to replace. The first nodes by name keep their pods, as many as the partition; nodes
// with the newest pod or none are counted first among the other nodes. Old pods that are not available are replaced at
// once, the others within the limit.
func outdated(nodes []nodePods, hash string, partition, limit int, serving func(*corev1.Pod) bool) []*corev1.Pod {
	var done, rest []nodePods
	for _, n := range slices.Backward(nodes) {
		if p := n.activePod(); p == nil || p.Labels[appsv1.ControllerRevisionHashLabelKey] == hash {
			done = append(done, n)
		} else {
			rest = append(rest, n)
		}
	}
	candidates := append(done, rest...)
	candidates = candidates[:max(min(len(nodes)-partition, len(candidates)), 0)]
	unavailable := 0
	var notServing, inService []*corev1.Pod
	for _, n := range candidates {
		p := n.activePod()
		switch {
		case p == nil:
			unavailable++
		case p.Labels[appsv1.ControllerRevisionHashLabelKey] == hash:
			if !serving(p) {
				unavailable++
			}
		case !serving(p):
			notServing = append(notServing, p)
		default:
			inService = append(inService, p)
		}
	}
	return append(notServing, inService[:min(max(limit-unavailable, 0), len(inService))]...)
}

func (c *controller) createDaemon(ctx context.Context, s *set, r *revision, node string) error {
	pod, err := newPod(s, r, map[string]string{appsv1.ControllerRevisionHashLabelKey: r.hash()})
	if err != nil {
		return err
	}
	pod.Name = s.Name + "-" + randomID()
	pod.Spec.NodeName = node
	return c.create(ctx, pod)
}

func (c *controller) daemonStatus(s *set, k key, hash string, nodes []nodePods) map[string]any {
	var scheduled, readyPods, available, updated int64
	for _, n := range nodes {
		p := n.activePod()
		if p == nil {
			continue
		}
		scheduled++
		readyPods += count(ready(p))
		available += count(c.available(k, p, s.Spec.MinReadySeconds))
		updated += count(p.Labels[appsv1.ControllerRevisionHashLabelKey] == hash)
	}
	return map[string]any{
		"desiredNumberScheduled": int64(len(nodes)), "currentNumberScheduled": scheduled,
		"numberMisscheduled": int64(0), "numberReady": readyPods,
		"numberAvailable": available, "numberUnavailable": int64(len(nodes)) - available,
		"updatedNumberScheduled": updated, "daemonSetHash": hash,
	}
}
