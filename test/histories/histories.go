// Package histories reads and describes recorded workflow histories, for the replay test and the tests that record them.
package histories

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/temporalproto"
	"go.temporal.io/sdk/converter"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/rollout/machine"
)

// Read returns the history in a file that Write has written.
func Read(path string) (*historypb.History, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(z)
	if err != nil {
		return nil, err
	}
	var h historypb.History
	return &h, temporalproto.CustomJSONUnmarshalOptions{DiscardUnknown: true}.Unmarshal(raw, &h)
}

var identities = regexp.MustCompile(`"identity":\s*"[^"]*"`)

// Write writes a history to a file, without the host and process that recorded it.
func Write(path string, h *historypb.History) error {
	raw, err := temporalproto.CustomJSONMarshalOptions{}.Marshal(h)
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	z := gzip.NewWriter(f)
	if _, err := z.Write(identities.ReplaceAll(raw, []byte(`"identity":"slipway"`))); err != nil {
		return err
	}
	return z.Close()
}

// TypeOf returns the workflow type of a history.
func TypeOf(h *historypb.History) string {
	return h.Events[0].GetWorkflowExecutionStartedEventAttributes().GetWorkflowType().GetName()
}

// Encrypted reports whether the payloads of a history are encrypted, so that it can't be replayed without the key.
func Encrypted(h *historypb.History) bool {
	input := h.Events[0].GetWorkflowExecutionStartedEventAttributes().GetInput().GetPayloads()
	return len(input) > 0 && string(input[0].GetMetadata()[converter.MetadataEncoding]) != converter.MetadataEncodingJSON
}

// contents collects what a history contains.
type contents struct {
	found map[string]bool
	// types are the activity types by the ID of the event that scheduled them.
	types map[int64]string
}

// Contents returns what a workflow did and met, sorted: "activity rollout.Leg", "leg move" for an action of a leg,
// "failure Drift", "update approve", "signal pause", "child Rollout", and the types of other events.
func Contents(h *historypb.History) []string {
	c := contents{found: map[string]bool{}, types: map[int64]string{}}
	for _, event := range h.Events {
		c.add(event)
	}
	return slices.Sorted(maps.Keys(c.found))
}

func (c *contents) note(format string, args ...any) { c.found[fmt.Sprintf(format, args...)] = true }

func (c *contents) add(event *historypb.HistoryEvent) {
	switch event.GetEventType() {
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
		name := event.GetActivityTaskScheduledEventAttributes().GetActivityType().GetName()
		c.types[event.GetEventId()] = name
		c.note("activity %s", name)
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
		a := event.GetActivityTaskCompletedEventAttributes()
		c.addLeg(a.GetScheduledEventId(), a.GetResult())
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_CANCELED:
		a := event.GetActivityTaskCanceledEventAttributes()
		c.note("cancelled %s", c.types[a.GetScheduledEventId()])
		c.addLeg(a.GetScheduledEventId(), a.GetDetails())
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_FAILED:
		c.addFailure(event.GetActivityTaskFailedEventAttributes().GetFailure())
	case enumspb.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
		c.note("timeout %s",
			event.GetActivityTaskTimedOutEventAttributes().GetFailure().GetTimeoutFailureInfo().GetTimeoutType())
	case enumspb.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED:
		c.note("child %s",
			event.GetStartChildWorkflowExecutionInitiatedEventAttributes().GetWorkflowType().GetName())
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
		c.note("signal %s", event.GetWorkflowExecutionSignaledEventAttributes().GetSignalName())
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED:
		c.note("update %s",
			event.GetWorkflowExecutionUpdateAcceptedEventAttributes().GetAcceptedRequest().GetInput().GetName())
	case enumspb.EVENT_TYPE_MARKER_RECORDED:
		c.addMarker(event.GetMarkerRecordedEventAttributes())
	default:
		c.note("event %s", event.GetEventType())
	}
}

// addFailure notes the kind of an activity's failure, and what its leg had completed before.
func (c *contents) addFailure(f *failurepb.Failure) {
	info := f.GetApplicationFailureInfo()
	c.note("failure %s", info.GetType())
	var details failure.Details
	var parts []machine.Part
	if payloads := info.GetDetails().GetPayloads(); len(payloads) > 0 &&
		converter.GetDefaultDataConverter().FromPayload(payloads[0], &details) == nil &&
		json.Unmarshal(details.Leg, &parts) == nil {
		c.addParts(parts)
	}
}

// addLeg notes the actions of a leg, if the activity was one. An encrypted result is skipped.
func (c *contents) addLeg(scheduled int64, result *commonpb.Payloads) {
	var leg machine.LegResult
	if c.types[scheduled] == machine.ActivityLeg && len(result.GetPayloads()) > 0 &&
		converter.GetDefaultDataConverter().FromPayloads(result, &leg) == nil {
		c.addParts(leg.Parts)
	}
}

func (c *contents) addParts(parts []machine.Part) {
	for _, p := range parts {
		c.note("leg %s", p.Kind)
	}
}

// addMarker notes a local activity by its type.
func (c *contents) addMarker(m *historypb.MarkerRecordedEventAttributes) {
	var data struct{ ActivityType string }
	if payloads := m.GetDetails()["data"].GetPayloads(); len(payloads) > 0 {
		_ = converter.GetDefaultDataConverter().FromPayload(payloads[0], &data)
	}
	c.note("marker %s %s", m.GetMarkerName(), data.ActivityType)
}
