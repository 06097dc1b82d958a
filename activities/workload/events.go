package workload

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"go.temporal.io/sdk/temporal"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/workloadops"
)

// The reasons of the events that `kubectl describe` shows of a workload. A failure's reason is its kind (failure.Kind).
const (
	eventBegan = "ReleaseBegan"
	eventRests = "ReleaseRests"
	eventEnded = "ReleaseEnded"
)

// events tells people who look at a workload what releases do to it, as Kubernetes' own controllers do. It is told beside the work: an event that can't be
// written, or is one of very many, is lost.
type events struct {
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorder
}

func newEvents(client kube.Typed, logger *slog.Logger) *events {
	e := &events{broadcaster: record.NewBroadcaster()}
	e.broadcaster.StartRecordingToSink(&eventSink{EventSinkImpl: typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")}, logger: logger})
	e.recorder = e.broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "slipway"})
	return e
}

func (e *events) stop() {
	if e != nil {
		e.broadcaster.Shutdown()
	}
}

// tell tells of a workload as it was last seen; of one that was never seen there is nothing to tell.
func (e *events) tell(about *unstructured.Unstructured, kind, reason, message string) {
	if e != nil && about != nil {
		e.recorder.Event(about, kind, reason, message)
	}
}

// failed tells of a failure that somebody has to see to; what is tried again, or was cancelled, is none.
func (e *events) failed(about *unstructured.Unstructured, by string, err error) {
	var app *temporal.ApplicationError
	if !errors.As(err, &app) || !app.NonRetryable() || app.Type() == string(failure.Gone) {
		return
	}
	e.tell(about, corev1.EventTypeWarning, app.Type(), fmt.Sprintf("%s: %s", by, app.Message()))
}

// release is who releases a workload, for people: the workflow that holds the claim.
func releaseOf(claim string) string { return workloadops.ParseHolder(claim).WorkflowID }

// rested tells that a step's pods have come to rest.
func (a *Activities) rested(ctx context.Context, req rollout.MoveRequest, numbers rollout.MoveResult, err error) {
	about := lookOf(ctx).known
	switch {
	case err != nil:
		a.events.failed(about, releaseOf(req.Claim), err)
	case req.Rest && !req.Halt:
		a.events.tell(about, corev1.EventTypeNormal, eventRests, releaseOf(req.Claim)+": "+numbers.Message)
	}
}

// finished tells that a release is over for its workload.
func (a *Activities) finished(ctx context.Context, req rollout.FinishRequest, err error) {
	about, by := lookOf(ctx).known, releaseOf(req.Claim)
	switch {
	case err != nil:
		a.events.failed(about, by, err)
	case req.Action == rollout.FinishFreeze:
		a.events.tell(about, corev1.EventTypeNormal, eventEnded, by+" has stopped: pods and routes stay as they are")
	case req.Action == rollout.FinishResumeAndRelease:
		a.events.tell(about, corev1.EventTypeNormal, eventEnded, fmt.Sprintf("%s has ended: all pods are of the %s version", by, req.To))
	case req.Action == rollout.FinishRelease: // it may have left the pods as they were
		a.events.tell(about, corev1.EventTypeNormal, eventEnded, by+" has ended")
	}
}

// eventSink writes events, and says once why it can't.
type eventSink struct {
	typedcorev1.EventSinkImpl
	logger *slog.Logger
	once   sync.Once
}

// Create implements record.EventSink.
func (s *eventSink) Create(event *corev1.Event) (*corev1.Event, error) {
	made, err := s.EventSinkImpl.Create(event)
	return made, s.note(event, err)
}

// Patch implements record.EventSink.
func (s *eventSink) Patch(event *corev1.Event, data []byte) (*corev1.Event, error) {
	made, err := s.EventSinkImpl.Patch(event, data)
	return made, s.note(event, err)
}

func (s *eventSink) note(event *corev1.Event, err error) error {
	if err == nil || kube.Classify(err) != kube.Forbidden || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return err
	}
	s.once.Do(func() {
		s.logger.Warn("workloads show no events of releases: apply deploy/rbac again, or grant create and patch of events", "namespace", event.Namespace,
			"error", strings.TrimSpace(err.Error()))
	})
	return nil // it would not be written the next time either
}
