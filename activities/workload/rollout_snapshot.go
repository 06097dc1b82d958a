package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/release/fieldmanager"
	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workloadops"
)

// snapshot is one look at a workload: what the decision goes by, and the objects that writes are made of.
type snapshot struct {
	seen   pods.Observed
	object *unstructured.Unstructured
	kept   []keptRevision
	// templates are the revisions' pod templates, by name.
	templates map[string]map[string]any
	// owners are the objects whose pods are the workload's, and extras those whose pods are the extra Deployment's.
	owners, extras map[types.UID]bool
	extra          *unstructured.Unstructured
	selector       string
}

// observe reads everything that a decision needs but the pods.
func (t *rolloutJob) observe(ctx context.Context, from objects) (*snapshot, error) {
	object, err := from.workload(ctx, t.subject.Workload.WorkloadRef.Name)
	if err != nil {
		return nil, err
	}
	l := &snapshot{object: object, templates: map[string]map[string]any{}, owners: map[types.UID]bool{}, extras: map[types.UID]bool{}}
	l.seen = t.told(object)
	selector, err := selectorOf(object)
	if err != nil {
		return nil, err
	}
	l.selector = selector
	if err := t.revisions(ctx, l, from); err != nil {
		return nil, err
	}
	if l.seen.Saved != nil && l.seen.Saved.CanaryWorkload != "" {
		if err := t.readExtra(ctx, l, from); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// complete reads what only the server can tell: the autoscalers, and what would become of the new template.
func (t *rolloutJob) complete(ctx context.Context, l *snapshot) error {
	if t.scaled(l) {
		if err := t.autoscalers(ctx, l); err != nil {
			return err
		}
	}
	return t.expect(ctx, l)
}

// scaled says whether autoscalers matter: before and during a blue-green rollout.
func (t *rolloutJob) scaled(l *snapshot) bool {
	if l.seen.Saved != nil {
		return len(l.seen.Saved.Autoscalers) > 0
	}
	return t.style == strategy.StyleBlueGreen
}

// lastTold is what an object told, and of which fields it was asked: most looks follow a change of the revisions alone.
type lastTold struct {
	object *unstructured.Unstructured
	tech   pods.Technique
	seen   pods.Observed
}

// told is what the workload itself tells now. Of an object that nobody changes it is found out once.
func (t *rolloutJob) told(o *unstructured.Unstructured) pods.Observed {
	if t.lastTold.object != o || t.lastTold.tech != t.tech {
		t.lastTold = lastTold{o, t.tech, t.plain(o)}
	}
	seen := t.lastTold.seen
	seen.Now = t.a.options.Now()
	return seen
}

// plain is what an object of the workload's kind tells.
func (t *rolloutJob) plain(o *unstructured.Unstructured) pods.Observed {
	annotations := o.GetAnnotations()
	seen := pods.Observed{
		Snapshot: t.kind.snapshot(o, append(t.tech.Pointers(), "/spec/paused", "/spec/updateStrategy", "/spec/podManagementPolicy")),
		Busy:     annotations[workloadops.AnnotationOriginal], UID: string(o.GetUID()), Template: pods.Digest(templateOf(o)),
	}
	if held, err := gate.ParseHeld(annotations); err != nil {
		seen.HeldProblem = err.Error()
	} else {
		seen.Held = held
	}
	seen.ExtraStatus = annotations[rollout.AnnotationExtraStatus]
	if t.change.Declared != nil {
		seen.Declared = t.change.Declared.Template
	}
	seen.Recalled = t.change.Revision
	if next := nextTemplate(o); next != nil {
		seen.Next = pods.Digest(next)
	}
	seen.Now, seen.Update, seen.Repairer = t.a.options.Now(), updateRevision(o), t.a.repairer(o)
	if raw := rollout.SavedOn(o.GetLabels(), annotations); raw != "" {
		saved, err := pods.ReadSaved(t.subject.Workload.WorkloadRef, raw)
		if err != nil {
			seen.SavedProblem = err.Error()
		}
		seen.Saved = saved
	}
	var rest rollout.Rest
	if json.Unmarshal([]byte(annotations[rollout.AnnotationRest]), &rest) == nil {
		maps.DeleteFunc(rest.Settings, func(path string, _ json.RawMessage) bool { return !pods.Borrows(t.subject.Workload.WorkloadRef, path) })
		seen.Rest = &rest
	}
	return seen
}

// revisions reads the workload's revisions.
func (t *rolloutJob) revisions(ctx context.Context, l *snapshot, from objects) error {
	l.owners[l.object.GetUID()] = true
	kept, err := from.revisions(ctx, t.kind, l.object)
	l.kept = kept
	for _, r := range kept {
		l.seen.Revisions = append(l.seen.Revisions, r.Revision)
		l.templates[r.Name] = r.template
		l.owners[r.uid] = true
	}
	return err
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

// edited says what somebody else has changed in the pod template, by whom and when, as far as the cluster tells: ": image of container app
// (x:9, was x:2), by kubectl-set at 2026-03-01T09:00:00Z".
func (t *rolloutJob) edited(l *snapshot) string {
	said := ""
	if base := t.written(l); base != nil {
		said = pods.Edited(base, pods.Stripped(templateOf(l.object)))
	}
	manager, at := fieldmanager.Of(l.object, "/spec/template")
	if said != "" {
		said = ": " + said
	} else if l.extra != nil { // nobody but a release writes to an extra workload: who else has, is meant
		if other, then := fieldmanager.Of(l.extra, "/spec/template"); other != "" {
			manager, at = other, then
		}
	}
	if manager == "" {
		return said
	}
	return fmt.Sprintf("%s, by %s at %s", said, manager, at.UTC().Format(time.RFC3339))
}

// written is the template that this rollout left on the workload: of an extra workload's partner the stable one; nil when it is not known
// any more.
func (t *rolloutJob) written(l *snapshot) map[string]any {
	saved := l.seen.Saved
	if saved == nil {
		return nil
	}
	digest := t.template
	if digest == "" || saved.Style == strategy.StyleCanary {
		digest = saved.StableTemplate
	}
	for _, r := range l.seen.Revisions {
		if r.Template == digest {
			return l.templates[r.Name]
		}
	}
	return nil
}
