package workflows

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/workflow"
)

// inbox holds what was sent to one workflow, in the order of its history. The SDK's selectors lose the order across signal names, so
// an interceptor puts signals here as their events come in, updates join them, and the workflow's one loop takes them out.
type inbox struct {
	// items are signals (*signal), unread, and what came by Updates (*envelope[C]).
	items []any
}

// signal is one as it came in.
type signal = interceptor.HandleSignalInput

func (b *inbox) push(item any) { b.items = append(b.items, item) }

// take removes the oldest item; nil when there is none.
func (b *inbox) take() any {
	if len(b.items) == 0 {
		return nil
	}
	item := b.items[0]
	b.items = b.items[1:]
	return item
}

// signalled says whether there is a signal of that name.
func (b *inbox) signalled(name string) bool {
	return slices.ContainsFunc(b.items, func(item any) bool {
		s, is := item.(*signal)
		return is && s.SignalName == name
	})
}

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

func (*workerInterceptor) InterceptWorkflow(
	_ workflow.Context, next interceptor.WorkflowInboundInterceptor,
) interceptor.WorkflowInboundInterceptor {
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

// HandleSignal is called as the event comes in, before any code of the workflow runs. A signal is read when it is taken out: an error here
// would fail the workflow's task for ever.
func (i *inboundInterceptor) HandleSignal(ctx workflow.Context, in *signal) error {
	if workflow.GetInfo(ctx).WorkflowType.Name == TypeServingStatus { // it takes observations from a channel, and nobody's verbs
		return i.Next.HandleSignal(ctx, in)
	}
	i.box.push(in)
	return nil
}

// decodePayload reads one JSON payload. The Temporal UI sends none at all for an empty editor: that is the zero value.
func decodePayload(payloads *commonpb.Payloads, into any) error {
	if len(payloads.GetPayloads()) == 0 {
		return nil
	}
	return converter.GetDefaultDataConverter().FromPayload(payloads.GetPayloads()[0], into)
}

// decodeStrictly reads the payload of a verb: a key that its type does not know is refused, since {"stp":2} is a misspelt step rather than
// none.
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
