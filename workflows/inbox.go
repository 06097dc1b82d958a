package workflows

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/plan"
)

// inbox holds what was sent to one workflow, in the order of its history. The SDK's selectors lose the order across signal names, so
// an interceptor puts signals here as their events come in, updates join them, and the workflow's one loop takes them out.
type inbox struct {
	pending []*command
	// rollout is what was sent to a Rollout.
	rollout []*rolloutCommand
	// serving is what people have sent to a Serving.
	serving []*servingCommand
}

// command is one verb that waits to be carried out.
type command struct {
	verb    plan.Verb
	request VerbRequest
	// malformed says why the payload could not be read; "" when it could.
	malformed string
	// unknown says that the workflow knows no such verb: a misspelt signal is answered in the record, since it has no other answer.
	unknown bool
	// item is set instead of a verb when an item of the task reports.
	item *ItemSignal
	// response is set once the command was carried out.
	response *VerbResponse
}

func (b *inbox) push(c *command) { b.pending = append(b.pending, c) }

// take removes the oldest command; nil when there is none.
func (b *inbox) take() *command {
	if len(b.pending) == 0 {
		return nil
	}
	c := b.pending[0]
	b.pending = b.pending[1:]
	return c
}

// maxVerb is how much of an unknown signal's name is kept, in bytes.
const maxVerb = 40

type inboxKey struct{}

func inboxOf(ctx workflow.Context) *inbox {
	box, ok := ctx.Value(inboxKey{}).(*inbox)
	if !ok {
		panic("the worker was started without workflows.NewInterceptor: verbs would be lost")
	}
	return box
}

// NewInterceptor fills the inbox of each workflow. Every worker that runs workflows of this package needs it.
func NewInterceptor() interceptor.WorkerInterceptor { return &workerInterceptor{} }

type workerInterceptor struct {
	interceptor.WorkerInterceptorBase
}

func (*workerInterceptor) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	i := &inboundInterceptor{}
	i.Next = next
	return i
}

type inboundInterceptor struct {
	interceptor.WorkflowInboundInterceptorBase
	box inbox
}

func (i *inboundInterceptor) ExecuteWorkflow(ctx workflow.Context, in *interceptor.ExecuteWorkflowInput) (any, error) {
	return i.Next.ExecuteWorkflow(workflow.WithValue(ctx, inboxKey{}, &i.box), in)
}

// HandleSignal is called as the event comes in, before any code of the workflow runs.
func (i *inboundInterceptor) HandleSignal(ctx workflow.Context, in *interceptor.HandleSignalInput) error {
	switch workflow.GetInfo(ctx).WorkflowType.Name {
	case TypeRollout:
		i.box.rollout = append(i.box.rollout, rolloutSignal(ctx, in))
		return nil
	case TypeServing:
		c := servingSignal(ctx, in)
		if c == nil { // no person's: it goes by a channel
			return i.Next.HandleSignal(ctx, in)
		}
		i.box.serving = append(i.box.serving, c)
		return nil
	case TypeServingStatus, TypeServingCheck: // nobody's verbs
		return i.Next.HandleSignal(ctx, in)
	}
	if in.SignalName != SignalItem {
		s := planMenu.read(ctx, in)
		i.box.push(&command{verb: s.verb, request: s.request, malformed: s.malformed, unknown: s.unknown})
		return nil
	}
	var s ItemSignal
	if err := decodePayload(in.Arg, &s); err != nil {
		workflow.GetLogger(ctx).Warn("a report that cannot be read is passed over", "error", err)
		return nil // an error here would fail the workflow's task for ever
	}
	i.box.push(&command{item: &s})
	return nil
}

// decodePayload reads one JSON payload. The Temporal UI sends none at all for an empty editor: that is the zero value.
func decodePayload(payloads *commonpb.Payloads, into any) error {
	if len(payloads.GetPayloads()) == 0 {
		return nil
	}
	return converter.GetDefaultDataConverter().FromPayload(payloads.GetPayloads()[0], into)
}

// decodeStrictly reads the payload of a verb: a key that its type does not know is refused, since {"stp":2} is a misspelt step rather than none.
func decodeStrictly(payloads *commonpb.Payloads, into any) error {
	if len(payloads.GetPayloads()) == 0 {
		return nil
	}
	payload := payloads.GetPayloads()[0]
	if string(payload.GetMetadata()[converter.MetadataEncoding]) != converter.MetadataEncodingJSON {
		return decodePayload(payloads, into)
	}
	decoder := json.NewDecoder(bytes.NewReader(payload.GetData()))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &syntax) && bytes.ContainsAny(payload.GetData(), "“”"):
		return errors.New(`its quotes are typographic: write " in place of “ and ”`)
	default:
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
}
