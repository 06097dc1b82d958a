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
	"slipway.io/slipway/release/workload"
)

// The reasons of the events that `kubectl describe` shows of a workload. A failure's reason is its kind (failure.Kind).
const (
	eventBegan = "ReleaseBegan"
	eventRests = "ReleaseRests"
	eventEnded = "ReleaseEnded"
)

// events records on a workload what releases do to it, as Kubernetes' own controllers do. Events are recorded
// asynchronously; one that cannot be written, or exceeds the rate limit, is lost.
type events struct {
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorder
}

func newEvents(client kube.Typed, logger *slog.Logger) *events {
	e := &events{broadcaster: record.NewBroadcaster()}
	e.broadcaster.StartRecordingToSink(
		&eventSink{EventSinkImpl: typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")}, logger: logger})
	e.recorder = e.broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "slipway"})
	return e
}

func (e *events) stop() {
	if e != nil {
		e.broadcaster.Shutdown()
	}
}

// record records an event of a workload that was read before; about nil: none.
func (e *events) record(about *unstructured.Unstructured, kind, reason, message string) {
	if e != nil && about != nil {
		e.recorder.Event(about, kind, reason, message)
	}
}

// recordFailure records a failure that needs a user; a failure that is retried, or a cancellation, is not recorded.
func (e *events) recordFailure(about *unstructured.Unstructured, by string, err error) {
	var app *temporal.ApplicationError
	if !errors.As(err, &app) || !app.NonRetryable() || app.Type() == string(failure.Gone) {
		return
	}
	e.record(about, corev1.EventTypeWarning, app.Type(), fmt.Sprintf("%s: %s", by, app.Message()))
}

// releaseOf names the release that holds a claim: the ID of its workflow.
func releaseOf(claim string) string { return workload.ParseHolder(claim).WorkflowID }

// recordPause records that a step's pods are complete.
func (a *Activities) recordPause(ctx context.Context, req rollout.MoveRequest, numbers rollout.MoveResult, err error) {
	about := lastReadOf(ctx).known
	switch {
	case err != nil:
		a.events.recordFailure(about, releaseOf(req.Claim), err)
	case req.Settle && !req.Halt:
		a.events.record(about, corev1.EventTypeNormal, eventRests, releaseOf(req.Claim)+": "+numbers.Message)
	}
}

// recordEnd records that a release has ended for its workload.
func (a *Activities) recordEnd(ctx context.Context, req rollout.FinishRequest, err error) {
	about, by := lastReadOf(ctx).known, releaseOf(req.Claim)
	switch {
	case err != nil:
		a.events.recordFailure(about, by, err)
	case req.Action == rollout.FinishFreeze:
		a.events.record(about, corev1.EventTypeNormal, eventEnded, by+" has stopped: pods and routes stay unchanged")
	case req.Action == rollout.FinishResumeAndRelease:
		a.events.record(about, corev1.EventTypeNormal, eventEnded,
			fmt.Sprintf("%s has ended: all pods are of the %s version", by, req.To))
	case req.Action == rollout.FinishRelease: // the pods may be unchanged
		a.events.record(about, corev1.EventTypeNormal, eventEnded, by+" has ended")
	}
}

// eventSink writes events, and logs once why it cannot.
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
	if err == nil || kube.Classify(err) != kube.Forbidden ||
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return err
	}
	s.once.Do(func() {
		s.logger.Warn(
			"workloads show no events of releases: apply deploy/rbac again, or grant create and patch of events",
			"namespace", event.Namespace,
			"error", strings.TrimSpace(err.Error()))
	})
	return nil // a retry would fail as well
}
