package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/release/fieldmanager"
	"slipway.io/slipway/release/gate"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/workload"
)

// snapshot is one read of a workload: the input of the decision, and the objects from which writes are made.
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

// observe reads everything that a decision needs except the pods.
func (t *rolloutJob) observe(ctx context.Context, from objectSource) (*snapshot, error) {
	object, err := from.workload(ctx, t.subject.Workload.WorkloadRef.Name)
	if err != nil {
		return nil, err
	}
	l := &snapshot{object: object, templates: map[string]map[string]any{}, owners: map[types.UID]bool{},
		extras: map[types.UID]bool{}}
	l.seen = t.observedOf(object)
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

// complete reads what only the API server can answer: the autoscalers, and the digest that the new template would get.
func (t *rolloutJob) complete(ctx context.Context, l *snapshot) error {
	if t.usesAutoscalers(l) {
		if err := t.autoscalers(ctx, l); err != nil {
			return err
		}
	}
	return t.determineDigest(ctx, l)
}

// usesAutoscalers reports whether autoscalers matter: before and during a blue-green rollout.
func (t *rolloutJob) usesAutoscalers(l *snapshot) bool {
	if l.seen.Saved != nil {
		return len(l.seen.Saved.Autoscalers) > 0
	}
	return t.style == strategy.StyleBlueGreen
}

// lastObserved is the observation of an object, and the technique for which it was made: most rounds follow a change of
// the revisions alone.
type lastObserved struct {
	object *unstructured.Unstructured
	tech   pods.Technique
	seen   pods.Observed
}

// observedOf is the observation of the workload itself. For an unchanged object it is computed once.
func (t *rolloutJob) observedOf(o *unstructured.Unstructured) pods.Observed {
	if t.lastObserved.object != o || t.lastObserved.tech != t.tech {
		t.lastObserved = lastObserved{o, t.tech, t.observeObject(o)}
	}
	seen := t.lastObserved.seen
	seen.Now = t.a.options.Now()
	return seen
}

// observeObject is the observation of an object of the workload's kind.
func (t *rolloutJob) observeObject(o *unstructured.Unstructured) pods.Observed {
	annotations := o.GetAnnotations()
	seen := pods.Observed{
		Snapshot: t.kind.snapshot(o, append(t.tech.Pointers(), "/spec/paused", "/spec/updateStrategy",
			"/spec/podManagementPolicy")),
		Busy: annotations[workload.AnnotationOriginal], UID: string(o.GetUID()),
		Template: pods.Digest(templateOf(o)),
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
	var rest rollout.SettledState
	if json.Unmarshal([]byte(annotations[rollout.AnnotationSettled]), &rest) == nil {
		maps.DeleteFunc(rest.Settings, func(path string, _ json.RawMessage) bool {
			return !pods.Borrows(t.subject.Workload.WorkloadRef, path)
		})
		seen.Rest = &rest
	}
	return seen
}

// revisions reads the workload's revisions.
func (t *rolloutJob) revisions(ctx context.Context, l *snapshot, from objectSource) error {
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

// withPods adds the pods to a snapshot.
func (t *rolloutJob) withPods(ctx context.Context, l *snapshot) error {
	minReady := int32(number(l.object, "spec", "minReadySeconds"))
	l.seen.Pods, l.seen.PodsSeen = nil, true
	_, err := t.a.cluster.Pods(ctx, t.subject.Workload.Namespace, l.selector, func(pod *corev1.Pod) {
		t.assignPod(l, pod, minReady)
	})
	return err
}

// assignPod adds a pod to the workload's, or to those of the extra Deployment.
func (t *rolloutJob) assignPod(l *snapshot, pod *corev1.Pod, minReady int32) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return
	}
	p := podSeen(pod, minReady, t.a.options.Now())
	p.Revision = pod.Labels[t.kind.RevisionLabel]
	switch {
	case l.owners[owner.UID]:
		l.seen.Pods = append(l.seen.Pods, p)
	case l.extras[owner.UID] && l.seen.Extra != nil:
		l.seen.Extra.Pods = append(l.seen.Extra.Pods, p)
	}
}

// describeEdit describes what another client has changed in the pod template, by whom and when, as far as the cluster
// shows it: ": image of container app (x:9, was x:2), by kubectl-set at 2026-03-01T09:00:00Z".
func (t *rolloutJob) describeEdit(l *snapshot) string {
	said := ""
	if base := t.writtenTemplate(l); base != nil {
		said = pods.DescribeEdits(base, pods.Stripped(templateOf(l.object)))
	}
	manager, at := fieldmanager.LastOther(l.object, "/spec/template")
	if said != "" {
		said = ": " + said
	} else if l.extra != nil { // only releases write to an extra workload: any other field manager is the one to name
		if other, then := fieldmanager.LastOther(l.extra, "/spec/template"); other != "" {
			manager, at = other, then
		}
	}
	if manager == "" {
		return said
	}
	return fmt.Sprintf("%s, by %s at %s", said, manager, phrase.Time(at.Time))
}

// writtenTemplate is the template that this rollout left on the workload, which is the stable one if there is an extra
// workload; nil when it is not known any more.
func (t *rolloutJob) writtenTemplate(l *snapshot) map[string]any {
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
