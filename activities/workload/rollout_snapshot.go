package workload

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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
	// kept are the workload's revisions, and extraKept those of the extra Deployment.
	kept, extraKept []keptRevision
	extra           *unstructured.Unstructured
}

// template is the pod template of a revision; nil when the cluster no longer keeps it.
func (l *snapshot) template(revision string) map[string]any { return templateIn(l.kept, revision) }

// observe reads everything that a decision needs except the pods: what only the API server can answer, too, namely the
// autoscalers, and the digest that the new template would get.
func (t *rolloutJob) observe(ctx context.Context, from objectSource) (*snapshot, error) {
	object, err := from.workload(ctx, t.subject.Workload.WorkloadRef.Name)
	if err != nil {
		return nil, err
	}
	l := &snapshot{object: object, seen: t.observedOf(object)}
	if l.kept, err = from.revisions(ctx, object); err != nil {
		return nil, err
	}
	for _, r := range l.kept {
		l.seen.Revisions = append(l.seen.Revisions, r.Revision)
	}
	if l.seen.Saved != nil && l.seen.Saved.CanaryWorkload != "" {
		if err := t.readExtra(ctx, l, from); err != nil {
			return nil, err
		}
	}
	if t.usesAutoscalers(l) {
		if from.cached {
			return nil, errNotCached
		}
		if err := t.autoscalers(ctx, l); err != nil {
			return nil, err
		}
	}
	return l, t.determineDigest(ctx, l, from.cached)
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
	annotations := rollout.AnnotationsOf(o)
	seen := pods.Observed{
		Snapshot: t.kind.snapshot(o, append(t.tech.Pointers(), "/spec/paused", "/spec/updateStrategy",
			workload.PathPodManagement)),
		Busy: annotations[workload.AnnotationOriginal], UID: string(o.GetUID()),
		Template: pods.Digest(templateOf(o)),
	}
	if t.kind.Revisions == workload.ReplicaSets { // they report it themselves, also while the Deployment is paused
		seen.Creation = noReplicaSet(o)
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
	seen.Recalled, seen.Served = t.change.Revision, t.served
	if next := nextTemplate(o); next != nil {
		seen.Next = pods.Digest(next)
	}
	seen.Now, seen.Repairer = t.a.options.Now(), t.a.repairer(o)
	seen.Update, seen.Current = text(o, "status", "updateRevision"), text(o, "status", "currentRevision")
	seen.Progress = progressOf(o)
	if raw := rollout.SavedOn(o.GetLabels(), annotations); raw != "" {
		saved, err := pods.ReadSaved(t.subject.Workload.WorkloadRef, raw)
		if err != nil {
			seen.SavedProblem = err.Error()
		}
		seen.Saved = saved
	}
	if seen.Rest = rollout.SettledOn(annotations); seen.Rest != nil {
		maps.DeleteFunc(seen.Rest.Settings, func(path string, _ json.RawMessage) bool {
			return !pods.Borrows(t.subject.Workload.WorkloadRef, path)
		})
	}
	return seen
}

// withPods adds the pods to a snapshot: the workload's, and those of the extra Deployment.
func (t *rolloutJob) withPods(ctx context.Context, l *snapshot) error {
	l.seen.Pods, l.seen.PodsSeen = nil, true
	_, err := t.eachPod(ctx, l.object, func(pod *corev1.Pod, p workload.Pod) {
		owner := metav1.GetControllerOf(pod)
		ofIt := func(r keptRevision) bool { return r.uid == owner.UID }
		switch {
		case owner == nil:
		case owner.UID == l.object.GetUID(), slices.ContainsFunc(l.kept, ofIt):
			l.seen.Pods = append(l.seen.Pods, p)
		case slices.ContainsFunc(l.extraKept, ofIt):
			l.seen.Extra.Pods = append(l.seen.Extra.Pods, p)
		}
	})
	return err
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
	digest := cmp.Or(t.template, saved.StableTemplate)
	if saved.Style == strategy.StyleCanary {
		digest = saved.StableTemplate
	}
	r, _ := l.seen.RevisionByTemplate(digest)
	return l.template(r.Name)
}

// objectSource is where a round reads its objects: from the API server or from memory.
type objectSource struct {
	// workload is the workload, or its extra workload, by name.
	workload func(ctx context.Context, name string) (*unstructured.Unstructured, error)
	// revisions are the revisions of one of them, oldest first.
	revisions func(ctx context.Context, of *unstructured.Unstructured) ([]keptRevision, error)
	// cached is true if the API server must not be asked for anything else either.
	cached bool
}

// errNotCached means that the watches have not shown the object, or are unreliable.
var errNotCached = errors.New("not in the watch cache")

// readLive reads from the API server, except what was read just before our own write to the workload.
func (t *rolloutJob) readLive(ctx context.Context) (*snapshot, error) {
	kept := t.lastRead.revisions
	t.lastRead.revisions = nil
	if kept != nil && !t.changedSinceRead() {
		l, err := t.observe(ctx, objectSource{workload: func(_ context.Context, name string) (*unstructured.Unstructured,
			error) {
			if name != t.workload.WorkloadRef.Name {
				return nil, errNotCached
			}
			return t.lastRead.known, nil
		}, revisions: func(context.Context, *unstructured.Unstructured) ([]keptRevision, error) { return kept, nil }})
		if !errors.Is(err, errNotCached) {
			return l, err
		}
	}
	return t.observe(ctx, t.server())
}

// server reads from the API server.
func (t *job) server() objectSource {
	return objectSource{workload: t.getNamed, revisions: t.revisionsOf}
}

// watchCache reads from the watch cache.
func (t *job) watchCache() objectSource {
	return objectSource{cached: true, workload: func(_ context.Context, name string) (*unstructured.Unstructured, error) {
		known := t.lastRead.known
		if name != t.workload.WorkloadRef.Name {
			known = nil
		}
		seen, _ := t.a.notifier.followed.get(t.target(name))
		if o, ok := newer(seen.object, known); ok && !seen.left {
			return o, nil
		}
		return nil, errNotCached
	}, revisions: func(_ context.Context, of *unstructured.Unstructured) ([]keptRevision, error) {
		return t.a.notifier.revisionsOf(t.kind, of)
	}}
}

// decideFromCache decides from the watch cache if the result is to wait, to hold the workload, or to end a step after
// which the next action reads again. Every other decision reads from the API server, because a watch may lag, and no
// write that moves pods is based on one. The API server is also read in the first round of an attempt, when the pods
// are to be checked, and after a refused write.
func (t *rolloutJob) decideFromCache(ctx context.Context) (l *snapshot, d pods.NextAction, decided bool) {
	now := t.Now()
	if t.lastRead.known == nil || t.tech.CountsPods() || !now.Before(t.nextPodCheck) || !t.live() {
		return nil, d, false
	}
	l, err := t.observe(ctx, t.watchCache())
	if err != nil {
		return nil, d, false
	}
	t.addProgress(l)
	d = t.decide(l.seen)
	switch d.Action {
	case workload.ActWait:
		return l, d, d.RecheckAfter == 0
	case workload.ActDone:
		return l, d, t.endsOnCache
	}
	return l, d, d.RemovesNoPod && t.rejected == ""
}
