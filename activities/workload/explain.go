package workload

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"slipway.io/slipway/kube"
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

// explainMissing adds to a snapshot why pods of a workload are missing, as its events say; a job that does not advance
// calls it. found is false if there is nothing to add.
func (t *job) explainMissing(ctx context.Context, o *unstructured.Unstructured, seen *workload.Snapshot) (found bool) {
	if seen.Creation.Reported() || seen.StalledFor < askEventsAfter {
		return false
	}
	said := t.ask(ctx, &t.missing, o.GetUID(), workload.CreationReasons)
	w := said.warning
	seen.Creation = workload.CreationFailure{Message: kube.Line(workload.CreationMessage(w.Message)), Since: w.First,
		Last: w.Last, Unreadable: said.unreadable}
	return seen.Creation.Reported()
}

// explainSilent adds why a pod does not start to the first one whose status does not say so.
func (t *job) explainSilent(ctx context.Context, seen *workload.Snapshot, pods []workload.Pod) (found bool) {
	for i := range pods {
		if p := &pods[i]; p.Silent(seen.Now) && seen.StalledFor >= askEventsAfter {
			said := t.ask(ctx, &t.silent, types.UID(p.UID), workload.StartReasons).warning
			if said.Reason != "" {
				p.Reason, p.Message = said.Reason, kube.Line(said.Message)
			}
			return said.Reason != ""
		}
	}
	return false
}
