package workload

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workloadops"
)

// snapshot is one look at a workload: what the decision goes by, and the objects that writes are made of.
type snapshot struct {
	seen   pods.Observed
	object *unstructured.Unstructured
	// templates are the revisions' pod templates, by name.
	templates map[string]map[string]any
	// owners are the objects whose pods are the workload's, and extras those whose pods are the extra Deployment's.
	owners, extras map[types.UID]bool
	extra          *unstructured.Unstructured
	selector       string
}

// observe reads everything that a decision needs but the pods.
func (t *rolloutJob) observe(ctx context.Context) (*snapshot, error) {
	object, err := t.get(ctx)
	if err != nil {
		return nil, err
	}
	l := &snapshot{object: object, templates: map[string]map[string]any{}, owners: map[types.UID]bool{}, extras: map[types.UID]bool{}}
	l.seen = t.plain(object)
	selector, err := selectorOf(object)
	if err != nil {
		return nil, err
	}
	l.selector = selector
	if err := t.revisions(ctx, l); err != nil {
		return nil, err
	}
	if l.seen.Saved != nil && l.seen.Saved.CanaryWorkload != "" {
		if err := t.readExtra(ctx, l, l.seen.Saved.CanaryWorkload); err != nil {
			return nil, err
		}
	}
	if t.scaled(l) {
		if err := t.autoscalers(ctx, l); err != nil {
			return nil, err
		}
	}
	return l, t.expect(ctx, l)
}

// scaled says whether autoscalers matter: before and during a blue-green rollout.
func (t *rolloutJob) scaled(l *snapshot) bool {
	if l.seen.Saved != nil {
		return len(l.seen.Saved.Autoscalers) > 0
	}
	return t.style == strategy.StyleBlueGreen
}

// plain is what the workload itself tells.
func (t *rolloutJob) plain(o *unstructured.Unstructured) pods.Observed {
	annotations := o.GetAnnotations()
	seen := pods.Observed{
		Snapshot: t.kind.snapshot(o, append(t.tech.Pointers(), "/spec/paused", "/spec/updateStrategy", "/spec/podManagementPolicy")),
		Busy:     annotations[workloadops.AnnotationOriginal], UID: string(o.GetUID()), Template: pods.Digest(templateOf(o)),
	}
	seen.Now = t.a.options.Now()
	seen.Update, _, _ = unstructured.NestedString(o.Object, "status", "updateRevision")
	if raw := savedBy(o.GetLabels(), annotations); raw != "" {
		saved, err := rollout.ParseSaved(raw)
		if err != nil {
			seen.SavedProblem = err.Error()
		}
		seen.Saved = saved
	}
	var rest rollout.Rest
	if json.Unmarshal([]byte(annotations[rollout.AnnotationRest]), &rest) == nil {
		seen.Rest = &rest
	}
	return seen
}

// replicaFailure is what a controller says about pods that it cannot create.
func replicaFailure(o *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		if condition["type"] == "ReplicaFailure" && condition["status"] == "True" {
			message, _ := condition["message"].(string)
			return kube.Line(message)
		}
	}
	return ""
}

func templateOf(o *unstructured.Unstructured) map[string]any {
	template, _, _ := unstructured.NestedMap(o.Object, "spec", "template")
	return template
}

func number(o *unstructured.Unstructured, path ...string) int64 {
	n, _, _ := unstructured.NestedInt64(o.Object, path...)
	return n
}

func count(o *unstructured.Unstructured, field string) int32 {
	return int32(number(o, "status", field))
}

func selectorOf(o *unstructured.Unstructured) (string, error) {
	var selector metav1.LabelSelector
	raw, _, _ := unstructured.NestedMap(o.Object, "spec", "selector")
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &selector); err != nil {
		return "", err
	}
	parsed, err := metav1.LabelSelectorAsSelector(&selector)
	if err != nil {
		return "", err
	}
	return parsed.String(), nil
}

// revisions reads the ReplicaSets or ControllerRevisions that the workload's selector matches, and keeps those that it owns.
func (t *rolloutJob) revisions(ctx context.Context, l *snapshot) error {
	resource := controllerRevisions
	if t.kind.sets {
		resource = replicaSets
	} else {
		l.owners[l.object.GetUID()] = true
	}
	list, err := t.list(ctx, resource, l.selector)
	if err != nil {
		return err
	}
	for i := range list {
		r := &list[i]
		owner := metav1.GetControllerOf(r)
		if owner == nil || owner.UID != l.object.GetUID() {
			continue
		}
		revision, template := t.revision(r)
		l.seen.Revisions = append(l.seen.Revisions, revision)
		l.templates[revision.Name] = template
		if t.kind.sets {
			l.owners[r.GetUID()] = true
		}
	}
	slices.SortFunc(l.seen.Revisions, func(a, b pods.Revision) int { return int(a.Number - b.Number) })
	return nil
}

func (t *rolloutJob) revision(r *unstructured.Unstructured) (pods.Revision, map[string]any) {
	if t.kind.sets {
		template := pods.Stripped(templateOf(r))
		hash := r.GetLabels()[rollout.RevisionLabel("Deployment")]
		n, _ := strconv.ParseInt(r.GetAnnotations()[annotationRevision], 10, 64)
		return pods.Revision{Name: hash, Hash: hash, Number: n, Template: pods.Digest(template), Counted: true,
			Asked: int32(number(r, "spec", "replicas")), Total: count(r, "replicas"), Ready: count(r, "readyReplicas"),
			Available: count(r, "availableReplicas")}, template
	}
	raw, _, _ := unstructured.NestedMap(r.Object, "data", "spec", "template")
	template := pods.Stripped(raw)
	return pods.Revision{Name: r.GetName(), Hash: t.kind.hash(r), Number: number(r, "revision"), Template: pods.Digest(template)}, template
}

// withPods adds the pods to a look.
func (t *rolloutJob) withPods(ctx context.Context, l *snapshot) error {
	minReady := int32(number(l.object, "spec", "minReadySeconds"))
	l.seen.Pods, l.seen.PodsSeen = nil, true
	_, err := t.a.cluster.Pods(ctx, t.subject.Workload.Namespace, l.selector, func(pod *corev1.Pod) { t.sortPod(l, pod, minReady) })
	return err
}

// sortPod puts a pod with the workload's, or with those of the extra Deployment.
func (t *rolloutJob) sortPod(l *snapshot, pod *corev1.Pod, minReady int32) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return
	}
	p := podSeen(pod, minReady, t.a.options.Now())
	p.Revision = pod.Labels[rollout.RevisionLabel(t.subject.Workload.WorkloadRef.Kind)]
	switch {
	case l.owners[owner.UID]:
		l.seen.Pods = append(l.seen.Pods, p)
	case l.extras[owner.UID] && l.seen.Extra != nil:
		l.seen.Extra.Pods = append(l.seen.Extra.Pods, p)
	}
}

func (t *rolloutJob) list(ctx context.Context, resource schema.GroupVersionResource, selector string) ([]unstructured.Unstructured, error) {
	return t.a.cluster.List(ctx, resource, t.subject.Workload.Namespace, selector)
}
