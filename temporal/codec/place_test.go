package codec

import (
	"context"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	commandpb "go.temporal.io/api/command/v1"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	historypb "go.temporal.io/api/history/v1"
	protocolpb "go.temporal.io/api/protocol/v1"
	querypb "go.temporal.io/api/query/v1"
	sdkpb "go.temporal.io/api/sdk/v1"
	updatepb "go.temporal.io/api/update/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"slipway.io/slipway/release/sealed"
)

// wire is a connection to a Temporal server that only the test answers.
type wire struct {
	t         *testing.T
	intercept grpc.UnaryClientInterceptor
}

func newWire(t *testing.T, dir string, strict bool) wire {
	t.Helper()
	keys, err := OpenKeys(dir, nil)
	require.NoError(t, err)
	intercept, err := NewInterceptor(keys, strict)
	require.NoError(t, err)
	return wire{t, intercept}
}

// call sends a request and receives an answer; it returns the request as Temporal gets it. answer is changed in place.
func (w wire) call(request, answer proto.Message) (sent proto.Message) {
	w.t.Helper()
	err := w.intercept(w.t.Context(), "/m", request, answer, nil,
		func(_ context.Context, _ string, request, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
			sent = request.(proto.Message)
			return nil
		})
	require.NoError(w.t, err)
	return sent
}

func execution(id string) *commonpb.WorkflowExecution {
	return &commonpb.WorkflowExecution{WorkflowId: id}
}

func payloads(p *commonpb.Payload) *commonpb.Payloads {
	return &commonpb.Payloads{Payloads: []*commonpb.Payload{p}}
}

// senders are the messages in which payloads are sent to workflow w1, or by it, and where the payload is in them.
func senders(t *testing.T, p *commonpb.Payload) map[string]struct {
	request proto.Message
	payload func(proto.Message) *commonpb.Payload
} {
	t.Helper()
	type sender = struct {
		request proto.Message
		payload func(proto.Message) *commonpb.Payload
	}
	const ns = "ns"
	first := func(p *commonpb.Payloads) *commonpb.Payload { return p.GetPayloads()[0] }
	completed := func(of string, command *commandpb.Command) *workflowservice.RespondWorkflowTaskCompletedRequest {
		return &workflowservice.RespondWorkflowTaskCompletedRequest{Namespace: ns, ResourceId: "workflow:" + of,
			Commands: []*commandpb.Command{command}}
	}
	command := func(m proto.Message) *commandpb.Command {
		return m.(*workflowservice.RespondWorkflowTaskCompletedRequest).GetCommands()[0]
	}
	child := completed("parent", &commandpb.Command{UserMetadata: &sdkpb.UserMetadata{Summary: p},
		Attributes: &commandpb.Command_StartChildWorkflowExecutionCommandAttributes{
			StartChildWorkflowExecutionCommandAttributes: &commandpb.StartChildWorkflowExecutionCommandAttributes{
				WorkflowId: "w1", Input: payloads(p),
				Memo: &commonpb.Memo{Fields: map[string]*commonpb.Payload{"m": p}}}}})
	update, err := anypb.New(&updatepb.Response{Outcome: &updatepb.Outcome{
		Value: &updatepb.Outcome_Success{Success: payloads(p)}}})
	require.NoError(t, err)
	other := &commandpb.SignalExternalWorkflowExecutionCommandAttributes{Execution: execution("w1"),
		Input: payloads(p)}
	continued := &commandpb.ContinueAsNewWorkflowExecutionCommandAttributes{Input: payloads(p)}
	return map[string]sender{
		"start": {&workflowservice.StartWorkflowExecutionRequest{Namespace: ns, WorkflowId: "w1", Input: payloads(p)},
			func(m proto.Message) *commonpb.Payload {
				return first(m.(*workflowservice.StartWorkflowExecutionRequest).GetInput())
			}},
		"memo": {&workflowservice.StartWorkflowExecutionRequest{Namespace: ns, WorkflowId: "w1",
			Memo: &commonpb.Memo{Fields: map[string]*commonpb.Payload{"m": p}}},
			func(m proto.Message) *commonpb.Payload {
				return m.(*workflowservice.StartWorkflowExecutionRequest).GetMemo().GetFields()["m"]
			}},
		"signal": {&workflowservice.SignalWorkflowExecutionRequest{Namespace: ns, WorkflowExecution: execution("w1"),
			Input: payloads(p)}, func(m proto.Message) *commonpb.Payload {
			return first(m.(*workflowservice.SignalWorkflowExecutionRequest).GetInput())
		}},
		"update": {&workflowservice.UpdateWorkflowExecutionRequest{Namespace: ns, WorkflowExecution: execution("w1"),
			Request: &updatepb.Request{Input: &updatepb.Input{Args: payloads(p)}}},
			func(m proto.Message) *commonpb.Payload {
				return first(m.(*workflowservice.UpdateWorkflowExecutionRequest).GetRequest().GetInput().GetArgs())
			}},
		"update's answer": {&workflowservice.RespondWorkflowTaskCompletedRequest{Namespace: ns,
			ResourceId: "workflow:w1", Messages: []*protocolpb.Message{{Body: update}}},
			func(m proto.Message) *commonpb.Payload {
				response := &updatepb.Response{}
				require.NoError(t, m.(*workflowservice.RespondWorkflowTaskCompletedRequest).GetMessages()[0].GetBody().
					UnmarshalTo(response))
				return first(response.GetOutcome().GetSuccess())
			}},
		"query": {&workflowservice.QueryWorkflowRequest{Namespace: ns, Execution: execution("w1"),
			Query: &querypb.WorkflowQuery{QueryArgs: payloads(p)}}, func(m proto.Message) *commonpb.Payload {
			return first(m.(*workflowservice.QueryWorkflowRequest).GetQuery().GetQueryArgs())
		}},
		"query's answer": {&workflowservice.RespondQueryTaskCompletedRequest{Namespace: ns, TaskToken: []byte("token"),
			QueryResult: payloads(p)}, func(m proto.Message) *commonpb.Payload {
			return first(m.(*workflowservice.RespondQueryTaskCompletedRequest).GetQueryResult())
		}},
		"child": {child, func(m proto.Message) *commonpb.Payload {
			return first(command(m).GetStartChildWorkflowExecutionCommandAttributes().GetInput())
		}},
		"child's memo": {child, func(m proto.Message) *commonpb.Payload {
			return command(m).GetStartChildWorkflowExecutionCommandAttributes().GetMemo().GetFields()["m"]
		}},
		"child's summary": {child, func(m proto.Message) *commonpb.Payload {
			return command(m).GetUserMetadata().GetSummary()
		}},
		"signal of another workflow": {completed("sender", &commandpb.Command{
			Attributes: &commandpb.Command_SignalExternalWorkflowExecutionCommandAttributes{
				SignalExternalWorkflowExecutionCommandAttributes: other}}), func(m proto.Message) *commonpb.Payload {
			return first(command(m).GetSignalExternalWorkflowExecutionCommandAttributes().GetInput())
		}},
		"continue as new": {completed("w1", &commandpb.Command{
			Attributes: &commandpb.Command_ContinueAsNewWorkflowExecutionCommandAttributes{
				ContinueAsNewWorkflowExecutionCommandAttributes: continued}}), func(m proto.Message) *commonpb.Payload {
			return first(command(m).GetContinueAsNewWorkflowExecutionCommandAttributes().GetInput())
		}},
		"heartbeat": {&workflowservice.RecordActivityTaskHeartbeatRequest{Namespace: ns, ResourceId: "workflow:w1",
			Details: payloads(p)}, func(m proto.Message) *commonpb.Payload {
			return first(m.(*workflowservice.RecordActivityTaskHeartbeatRequest).GetDetails())
		}},
		"activity's result": {&workflowservice.RespondActivityTaskCompletedRequest{Namespace: ns,
			ResourceId: "workflow:w1", Result: payloads(p)}, func(m proto.Message) *commonpb.Payload {
			return first(m.(*workflowservice.RespondActivityTaskCompletedRequest).GetResult())
		}},
	}
}

// reader is how a payload of a workflow is received.
type reader struct {
	request, answer proto.Message
	payload         func() *commonpb.Payload
	command         bool
}

func historyOf(id string, event *historypb.HistoryEvent) *workflowservice.PollWorkflowTaskQueueResponse {
	return &workflowservice.PollWorkflowTaskQueueResponse{WorkflowExecution: execution(id),
		History: &historypb.History{Events: []*historypb.HistoryEvent{event}}}
}

// readers are the messages in which a payload of the workflow with an ID arrives.
func readers(t *testing.T, id string, p *commonpb.Payload) map[string]reader {
	t.Helper()
	poll := &workflowservice.PollWorkflowTaskQueueRequest{Namespace: "ns"}
	all := map[string]reader{}
	input := &historypb.WorkflowExecutionStartedEventAttributes{Input: payloads(p)}
	all["input"] = reader{poll, historyOf(id, &historypb.HistoryEvent{
		Attributes: &historypb.HistoryEvent_WorkflowExecutionStartedEventAttributes{
			WorkflowExecutionStartedEventAttributes: input}}),
		func() *commonpb.Payload { return input.GetInput().GetPayloads()[0] }, false}
	signal := &historypb.WorkflowExecutionSignaledEventAttributes{Input: payloads(p),
		ExternalWorkflowExecution: execution("sender")}
	all["signal"] = reader{poll, historyOf(id, &historypb.HistoryEvent{
		Attributes: &historypb.HistoryEvent_WorkflowExecutionSignaledEventAttributes{
			WorkflowExecutionSignaledEventAttributes: signal}}),
		func() *commonpb.Payload { return signal.GetInput().GetPayloads()[0] }, true}
	body, err := anypb.New(&updatepb.Request{Input: &updatepb.Input{Args: payloads(p)}})
	require.NoError(t, err)
	update := &protocolpb.Message{Body: body}
	all["update"] = reader{poll, &workflowservice.PollWorkflowTaskQueueResponse{WorkflowExecution: execution(id),
		Messages: []*protocolpb.Message{update}}, func() *commonpb.Payload {
		request := &updatepb.Request{}
		require.NoError(t, update.GetBody().UnmarshalTo(request))
		return request.GetInput().GetArgs().GetPayloads()[0]
	}, true}
	child := &historypb.ChildWorkflowExecutionCompletedEventAttributes{WorkflowExecution: execution(id),
		Result: payloads(p)}
	all["child's result"] = reader{poll, historyOf("parent", &historypb.HistoryEvent{
		Attributes: &historypb.HistoryEvent_ChildWorkflowExecutionCompletedEventAttributes{
			ChildWorkflowExecutionCompletedEventAttributes: child}}),
		func() *commonpb.Payload { return child.GetResult().GetPayloads()[0] }, false}
	failed := &failurepb.ApplicationFailureInfo{Details: payloads(p)}
	all["child's failure"] = reader{poll, historyOf("parent", &historypb.HistoryEvent{
		Attributes: &historypb.HistoryEvent_ChildWorkflowExecutionFailedEventAttributes{
			ChildWorkflowExecutionFailedEventAttributes: &historypb.ChildWorkflowExecutionFailedEventAttributes{
				WorkflowExecution: execution(id), Failure: &failurepb.Failure{
					FailureInfo: &failurepb.Failure_ApplicationFailureInfo{ApplicationFailureInfo: failed}}}}}),
		func() *commonpb.Payload { return failed.GetDetails().GetPayloads()[0] }, false}
	activity := &workflowservice.PollActivityTaskQueueResponse{WorkflowExecution: execution(id),
		HeartbeatDetails: payloads(p)}
	all["heartbeat"] = reader{&workflowservice.PollActivityTaskQueueRequest{Namespace: "ns"}, activity,
		func() *commonpb.Payload { return activity.GetHeartbeatDetails().GetPayloads()[0] }, false}
	query := &workflowservice.QueryWorkflowResponse{QueryResult: payloads(p)}
	all["query's answer"] = reader{&workflowservice.QueryWorkflowRequest{Namespace: "ns", Execution: execution(id)},
		query, func() *commonpb.Payload { return query.GetQueryResult().GetPayloads()[0] }, false}
	version := &workflowservice.GetWorkflowExecutionHistoryResponse{History: &historypb.History{
		Events: []*historypb.HistoryEvent{{EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED,
			Attributes: &historypb.HistoryEvent_WorkflowExecutionStartedEventAttributes{
				WorkflowExecutionStartedEventAttributes: input}}}}}
	all["a version read by a party"] = reader{&workflowservice.GetWorkflowExecutionHistoryRequest{Namespace: "ns",
		Execution: execution(id)}, version,
		func() *commonpb.Payload { return input.GetInput().GetPayloads()[0] }, false}
	info := &workflowpb.WorkflowExecutionInfo{Execution: execution(id),
		Memo: &commonpb.Memo{Fields: map[string]*commonpb.Payload{"m": p}}}
	all["memo in a list"] = reader{&workflowservice.ListWorkflowExecutionsRequest{Namespace: "ns"},
		&workflowservice.ListWorkflowExecutionsResponse{Executions: []*workflowpb.WorkflowExecutionInfo{info}},
		func() *commonpb.Payload { return info.GetMemo().GetFields()["m"] }, false}
	return all
}

// read receives the payload and returns it as the process reads it.
func (w wire) read(from reader) *commonpb.Payload {
	w.t.Helper()
	w.call(from.request, from.answer)
	return from.payload()
}

func encodingOf(p *commonpb.Payload) string {
	return string(p.GetMetadata()[converter.MetadataEncoding])
}

// A client that may write to Temporal moves a payload to another workflow, or to another Temporal namespace: it is
// refused in each message in which it may arrive. Where it belongs it is read.
func TestMovedPayloadIsRefused(t *testing.T) {
	t.Parallel()
	dir := folder(t, "", map[string]string{"a": key(1), "current": "a"})
	w := newWire(t, dir, true)
	plain := payload(t, "approve")
	w.call(&workflowservice.PollWorkflowTaskQueueRequest{Namespace: "ns"},
		&workflowservice.PollWorkflowTaskQueueResponse{WorkflowExecution: execution("w1"), TaskToken: []byte("token"),
			Query: &querypb.WorkflowQuery{QueryType: "state"}})
	for from, s := range senders(t, plain) {
		moved := s.payload(w.call(s.request, &workflowservice.SignalWorkflowExecutionResponse{}))
		require.Equal(t, sealed.Encoding, encodingOf(moved), from)
		for into := range readers(t, "w1", moved) {
			at := from + " → " + into
			require.True(t, proto.Equal(plain, w.read(readers(t, "w1", proto.CloneOf(moved))[into])), at)
			other := readers(t, "w2", proto.CloneOf(moved))[into]
			refused := w.read(other)
			want := sealed.Refused
			if other.command {
				want = sealed.RefusedCommand
			}
			require.Equal(t, want, encodingOf(refused), at)
			require.ErrorContains(t, NewDataConverter().FromPayload(refused, new(string)),
				`a payload of workflow "w2" in Temporal namespace "ns" was encrypted for workflow "w1"`, at)
		}
	}
	start := senders(t, plain)["start"]
	abroad := proto.CloneOf(start.request.(*workflowservice.StartWorkflowExecutionRequest))
	abroad.Namespace = "elsewhere"
	moved := start.payload(w.call(abroad, &workflowservice.StartWorkflowExecutionResponse{}))
	require.Equal(t, sealed.Refused, encodingOf(w.read(readers(t, "w1", moved)["input"])))
}

// What was encrypted before places were named, and by the codec server, is still read; the codec server reads all.
func TestPayloadsWithoutPlaceAreRead(t *testing.T) {
	t.Parallel()
	dir := folder(t, "", map[string]string{"a": key(1), "current": "a"})
	w, plain := newWire(t, dir, true), payload(t, "x")
	keys, err := OpenKeys(dir, nil)
	require.NoError(t, err)
	old := one(t, New(keys).Encode, plain)
	for into := range readers(t, "w1", old) {
		require.True(t, proto.Equal(plain, w.read(readers(t, "w1", old)[into])), into)
	}
	s := senders(t, plain)["signal"]
	bound := s.payload(w.call(s.request, &workflowservice.SignalWorkflowExecutionResponse{}))
	require.True(t, proto.Equal(plain, one(t, New(keys).Decode, bound)), "the codec server knows no place")

	forged := proto.CloneOf(plain)
	maps.Copy(forged.GetMetadata(), map[string][]byte{metadataNamespace: []byte("ns"), metadataWorkflow: []byte("w2")})
	s = senders(t, forged)["signal"]
	bound = s.payload(w.call(s.request, &workflowservice.SignalWorkflowExecutionResponse{}))
	require.Equal(t, sealed.Refused, encodingOf(w.read(readers(t, "w2", bound)["input"])),
		"a client cannot choose the place that its payload names")
}

func TestCodecRequire_RefusesUnencryptedPayloads(t *testing.T) {
	t.Parallel()
	dir := folder(t, "", map[string]string{"a": key(1), "current": "a"})
	strict, lax, plain := newWire(t, dir, true), newWire(t, dir, false), payload(t, "approve")
	for into := range readers(t, "w1", plain) {
		require.True(t, proto.Equal(plain, lax.read(readers(t, "w1", plain)[into])), into)
		refused := strict.read(readers(t, "w1", plain)[into])
		require.ErrorContains(t, NewDataConverter().FromPayload(refused, new(string)),
			`a payload of workflow "w1" in Temporal namespace "ns" is not encrypted, which --codec-require refuses`,
			into)
		empty := &commonpb.Payload{Metadata: map[string][]byte{converter.MetadataEncoding: []byte("binary/null")}}
		require.True(t, proto.Equal(empty, strict.read(readers(t, "w1", empty)[into])),
			"Temporal's UI sends it for an empty editor")
	}
	for encoding, panics := range map[string]bool{sealed.Refused: true, sealed.RefusedCommand: false} {
		inWorkflow := NewDataConverter().(blockingConverter).WithWorkflowContext(nil)
		p := &commonpb.Payload{Metadata: map[string][]byte{converter.MetadataEncoding: []byte(encoding)}}
		read := func() { require.Error(t, inWorkflow.FromPayloads(payloads(p), new(string))) }
		if panics {
			require.Panics(t, read, "the workflow stops until a process with other settings continues it")
		} else {
			require.NotPanics(t, read, "one bad signal does not stop a release")
		}
	}
}

func TestCodecRequire_SendsNothingUnencrypted(t *testing.T) {
	t.Parallel()
	dir := folder(t, "", map[string]string{"a": key(1)})
	keys, err := OpenKeys(dir, nil)
	require.NoError(t, err)
	_, err = NewInterceptor(keys, true)
	require.ErrorContains(t, err,
		"--codec-require needs a key for new payloads: write its ID to the file current of "+dir)
	folder(t, dir, map[string]string{"current": "a"})
	_, err = keys.files.Again()
	require.NoError(t, err)
	intercept, err := NewInterceptor(keys, true)
	require.NoError(t, err)
	folder(t, dir, map[string]string{"current": "absent"})
	_, err = keys.files.Again()
	require.Error(t, err)
	s := senders(t, payload(t, "x"))["signal"]
	sent := wire{t, intercept}.call(s.request, &workflowservice.SignalWorkflowExecutionResponse{})
	require.Equal(t, sealed.Encoding, encodingOf(s.payload(sent)), "a mistake in the folder decrypts nothing")
}

func TestQueryTasks_AreBounded(t *testing.T) {
	t.Parallel()
	q := &queryTasks{workflows: map[string]string{}}
	for i := range 3 * maxQueryTasks {
		q.receive(&workflowservice.PollWorkflowTaskQueueResponse{TaskToken: []byte{byte(i), byte(i >> 8)},
			WorkflowExecution: execution("w1"), Query: &querypb.WorkflowQuery{}})
		require.LessOrEqual(t, len(q.workflows), maxQueryTasks)
	}
	answer := &workflowservice.RespondQueryTaskCompletedRequest{TaskToken: []byte{1, 8}}
	require.Equal(t, "w1", q.workflowOf(answer))
	q.answered(answer)
	require.Empty(t, q.workflowOf(answer))
}
