package workload

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/activities/attempt"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workload"
)

const (
	// askEventsAfter is how long nothing may come of a job before events are read: a healthy release reads none.
	askEventsAfter = 2 * time.Second
	// askEventsEvery is how often the events of an object are read while pods are missing or do not start.
	askEventsEvery = 10 * time.Second
)

// askedEvents is what the events of one object said, and when they are read again.
type askedEvents struct {
	of         types.UID
	warning    kube.Warning
	unreadable bool
	next       time.Time
}

// ask returns what the events of an object report. It reads them at most every askEventsEvery, and never fails: without
// them, a release works, and only the reason is missing.
func (t *job) ask(ctx context.Context, last *askedEvents, of types.UID, reasons []string) askedEvents {
	now := t.Now()
	if last.of == of && now.Before(last.next) {
		return *last
	}
	warning, err := kube.NewestWarning(ctx, t.a.cluster.Client, t.workload.Namespace, of, reasons)
	*last = askedEvents{of: of, warning: warning, unreadable: kube.IsAny(err, kube.Forbidden),
		next: now.Add(askEventsEvery * t.LoadFactor())}
	if err != nil {
		t.a.options.Logger.DebugContext(ctx, "events cannot be read", "workload", t.workload.String(), "error", err)
	}
	return *last
}

// needsExplanation reports whether a job waits for pods, or has waited in vain.
func needsExplanation(d workload.NextAction) bool {
	return d.Action == workload.ActWait || d.Failure != nil && d.Failure.Kind == failure.WorkloadFailed
}

// creation is what they said about pods that are missing.
func (a askedEvents) creation() workload.CreationFailure {
	return workload.CreationFailure{Message: kube.Line(workload.CreationMessage(a.warning.Message)),
		Since: a.warning.First, Last: a.warning.Last, Unreadable: a.unreadable}
}

// explainMissing adds to a snapshot why pods of a workload are missing, as its events say. found is false if there is
// nothing to add.
func (t *job) explainMissing(ctx context.Context, o *unstructured.Unstructured, seen *workload.Snapshot) (found bool) {
	if seen.Creation.Reported() || seen.StalledFor < askEventsAfter {
		return false
	}
	seen.Creation = t.ask(ctx, &t.missing, o.GetUID(), workload.CreationReasons).creation()
	return seen.Creation.Reported()
}

// explainSilent adds why a pod does not start to the first one whose status does not say so.
func (t *job) explainSilent(ctx context.Context, seen *workload.Snapshot, pods []workload.Pod) (found bool) {
	if seen.StalledFor < askEventsAfter {
		return false
	}
	i := slices.IndexFunc(pods, func(p workload.Pod) bool { return p.Silent(seen.Now) })
	if i < 0 {
		return false
	}
	p, said := &pods[i], t.ask(ctx, &t.silent, types.UID(pods[i].UID), workload.StartReasons)
	switch {
	case said.warning.Reason != "":
		p.Reason, p.Message = said.warning.Reason, kube.Line(said.warning.Message)
	case said.unreadable:
		p.Message = workload.EventsUnreadable
	default:
		return false
	}
	return true
}

// mustAsk reports whether pods are missing for long enough to read the events for the first time in this attempt. What
// keeps the pods of a Deployment from being created is in its status.
func (t *job) mustAsk(seen workload.Snapshot) bool {
	return t.kind.Revisions != workload.ReplicaSets && seen.Total < seen.Replicas &&
		seen.StalledFor >= askEventsAfter && t.missing.next.IsZero()
}

// reportBlocked reports, as an event of a workload and in the metrics, that the holder of a claim waits for its pods,
// and why they do not come.
func (a *Activities) reportBlocked(ctx context.Context, about *unstructured.Unstructured, claim, why string) {
	holder := workload.ParseHolder(claim)
	attempt.CountBlocked(ctx, holder.WorkflowID, why)
	if a.events != nil && about != nil {
		a.events.recorder.Event(about, corev1.EventTypeWarning, eventBlocked, holder.WorkflowID+" waits: "+why)
	}
}

// explain adds what events say about pods that are missing or do not start.
func (t *operationJob) explain(ctx context.Context, o *object) (found bool) {
	if t.kind.Revisions != workload.ReplicaSets && o.seen.LacksPods(o.seen.OrderedReady) {
		found = t.explainMissing(ctx, o.Unstructured, &o.seen.Snapshot)
	}
	return t.explainSilent(ctx, &o.seen.Snapshot, o.seen.Pods) || found
}

// explain adds what events say about pods that are missing or do not start.
func (t *rolloutJob) explain(ctx context.Context, l *snapshot, numbers rollout.MoveResult) (found bool) {
	if l.seen.LacksPods(numbers) {
		found = t.explainMissing(ctx, l.object, &l.seen.Snapshot)
	}
	if l.seen.Extra != nil && t.explainSilent(ctx, &l.seen.Snapshot, l.seen.Extra.Pods) {
		return true
	}
	return t.explainSilent(ctx, &l.seen.Snapshot, l.seen.Pods) || found
}
