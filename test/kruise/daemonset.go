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

// one is the pod that stays on the node, nil when there is none or it is on its way out.
func (n nodePods) one() *corev1.Pod {
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
			// A node that lacks its pod always gets the newest: the partition only keeps pods from being replaced.
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

// nodes are the schedulable nodes that the workload's template selects, by name, with their pods.
func (c *controller) nodes(ctx context.Context, s *set, all []*corev1.Pod) ([]nodePods, error) {
	list, err := c.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(s.Spec.Template.Spec.NodeSelector).String()})
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

// outdated picks the old pods to be made anew. As many nodes as the partition says keep theirs, those in front by name; nodes that have the newest pod, or none,
// count first among the others. Old pods that do not serve go at once, the rest within the limit.
func outdated(nodes []nodePods, hash string, partition, limit int, serving func(*corev1.Pod) bool) []*corev1.Pod {
	var done, rest []nodePods
	for _, n := range slices.Backward(nodes) {
		if p := n.one(); p == nil || p.Labels[appsv1.ControllerRevisionHashLabelKey] == hash {
			done = append(done, n)
		} else {
			rest = append(rest, n)
		}
	}
	turn := append(done, rest...)
	turn = turn[:max(min(len(nodes)-partition, len(turn)), 0)]
	out := 0
	var unwell, well []*corev1.Pod
	for _, n := range turn {
		p := n.one()
		switch {
		case p == nil:
			out++
		case p.Labels[appsv1.ControllerRevisionHashLabelKey] == hash:
			if !serving(p) {
				out++
			}
		case !serving(p):
			unwell = append(unwell, p)
		default:
			well = append(well, p)
		}
	}
	return append(unwell, well[:min(max(limit-out, 0), len(well))]...)
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
		p := n.one()
		if p == nil {
			continue
		}
		scheduled++
		readyPods += count(ready(p))
		available += count(c.available(k, p, s.Spec.MinReadySeconds))
		updated += count(p.Labels[appsv1.ControllerRevisionHashLabelKey] == hash)
	}
	return map[string]any{
		"desiredNumberScheduled": int64(len(nodes)), "currentNumberScheduled": scheduled, "numberMisscheduled": int64(0), "numberReady": readyPods,
		"numberAvailable": available, "numberUnavailable": int64(len(nodes)) - available, "updatedNumberScheduled": updated, "daemonSetHash": hash,
	}
}
