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
	eventBegan   = "ReleaseBegan"
	eventRests   = "ReleaseRests"
	eventBlocked = "ReleaseBlocked"
	eventLeftOut = "RouteLeftOut"
	eventEnded   = "ReleaseEnded"
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

// record records on a workload that was read before how the holder of a claim fared: its failure, or else a message; ""
// and about nil: nothing. Only a failure that needs a user is recorded: not one that is retried, and no cancellation.
func (e *events) record(about *unstructured.Unstructured, claim, reason, message string, err error) {
	if e == nil || about == nil || err == nil && message == "" {
		return
	}
	kind := corev1.EventTypeNormal
	if err != nil {
		var app *temporal.ApplicationError
		if !errors.As(err, &app) || !app.NonRetryable() || app.Type() == string(failure.Gone) {
			return
		}
		kind, reason, message = corev1.EventTypeWarning, app.Type(), ": "+app.Message()
	}
	e.recorder.Event(about, kind, reason, workload.ParseHolder(claim).WorkflowID+message)
}

// ReportLeftOut records on a workload, as an event, which routes a step has left out because they cannot express it.
func (a *Activities) ReportLeftOut(ctx context.Context, s rollout.Subject, routes []string) {
	if a.events == nil {
		return
	}
	reader := a.reader(s.Workload)
	about, err := reader.get(ctx)
	if err != nil {
		a.options.Logger.Warn("an event about routes that were left out could not be recorded", "workload",
			s.Workload.String(), "routes", routes, "error", err)
		return
	}
	holder := workload.ParseHolder(s.Claim)
	a.events.recorder.Event(about, corev1.EventTypeWarning, eventLeftOut, holder.WorkflowID+": "+
		strings.Join(routes, "; "))
}

// endOf is the message that a step of finalising has ended a release; "" if it has not.
func endOf(req rollout.FinishRequest) string {
	switch req.Action {
	case rollout.FinishFreeze:
		return " has stopped: pods and routes stay unchanged"
	case rollout.FinishResumeAndRelease:
		return fmt.Sprintf(" has ended: all pods are of the %s version", req.To)
	case rollout.FinishRelease: // the pods may be unchanged
		return " has ended"
	}
	return ""
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
			"namespace", event.Namespace, "error", strings.TrimSpace(err.Error()))
	})
	return nil // a retry would fail as well
}
