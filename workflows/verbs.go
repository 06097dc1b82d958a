package workflows

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"slipway.io/slipway/release/audit"
	"slipway.io/slipway/release/sealed"
)

// The longest actor, reason, key, front door, party and gate that a verb may carry, in characters, and what of an unknown signal's name is
// kept, in bytes: they are kept in history and in the record.
const (
	MaxActor  = 200
	MaxReason = 2000
	MaxKey    = 200
	MaxParty  = 200
	maxVia    = 32
	maxGate   = 100
	maxVerb   = 40
)

// menu is what one type of workflow takes from people: its verbs, each by Signal and by Update.
type menu[C any] struct {
	verbs []menuEntry
	// read makes a command of a verb and its payload, and rejects what is malformed; what the state forbids is refused on record instead.
	read func(verb audit.Verb, payloads *commonpb.Payloads) (C, error)
}

// menuEntry is a verb, or a signal of the engine's own, with what the signal menu of the Temporal UI says of it.
type menuEntry struct {
	name        audit.Verb
	description string
}

// menuOf is a menu whose verbs have a request Q, of which command makes a command.
func menuOf[C, Q any](command func(verb audit.Verb, q Q) C, validate func(verb audit.Verb, q Q) error, verbs ...menuEntry) menu[C] {
	return menu[C]{verbs: verbs, read: func(verb audit.Verb, payloads *commonpb.Payloads) (C, error) {
		var request, none Q
		if err := decodeStrictly(payloads, &request); err != nil { // of what is malformed nothing is kept
			return command(verb, none), fmt.Errorf(`the payload cannot be read: %w; send it empty, or as {"actor":"…","reason":"…"}`, err)
		}
		if err := validate(verb, request); err != nil {
			return command(verb, none), err
		}
		return command(verb, request), nil
	}}
}

// envelope is a command on its way to the machine.
type envelope[C any] struct {
	command C
	// unreadable says why what was sent is no command; "" when it is.
	unreadable string
	// with is what comes with the command: the newer release of a supersede.
	with any
	// outcome and text are what the machine said; response is set once it is known what follows from it.
	outcome  audit.Outcome
	text     string
	response *VerbResponse
}

// open reads a signal. One that is unknown or cannot be read is refused in the record, since it has no other answer.
func (m menu[C]) open(s *signal) *envelope[C] {
	verb := audit.Verb(cell(s.SignalName, maxVerb))
	e := &envelope[C]{}
	if slices.ContainsFunc(m.verbs, func(v menuEntry) bool { return string(v.name) == s.SignalName }) {
		var err error
		if e.command, err = m.read(verb, s.Arg); err != nil {
			e.unreadable = err.Error()
		}
		return e
	}
	e.command, _ = m.read(verb, nil)
	names := make([]audit.Verb, len(m.verbs))
	for i, v := range m.verbs {
		names[i] = v.name
	}
	e.unreadable = fmt.Sprintf("there is no signal %q: send one of %v", verb, names)
	return e
}

// offerSignals lists signals in the UI's signal menu, by asking for their channels. The interceptor takes them.
func offerSignals(ctx workflow.Context, entries ...menuEntry) {
	for _, s := range entries {
		workflow.GetSignalChannelWithOptions(ctx, string(s.name), workflow.SignalChannelOptions{Description: s.description})
	}
}

// answerState answers the query `state` by a function.
func answerState(ctx workflow.Context, state any, description string) error {
	return workflow.SetQueryHandlerWithOptions(ctx, QueryState, state, workflow.QueryHandlerOptions{Description: description})
}

// offer answers the query `state`, lists each verb in the UI's signal menu and answers it as an Update. Both ways end in the same inbox.
func (l *loop[C]) offer(state any, description string) error {
	if err := answerState(l.ctx, state, description); err != nil {
		return err
	}
	offerSignals(l.ctx, l.menu.verbs...)
	for _, v := range l.menu.verbs {
		if err := l.answerUpdate(v, func(payloads *commonpb.Payloads) (*envelope[C], error) {
			command, err := l.menu.read(v.name, payloads)
			return &envelope[C]{command: command}, err
		}); err != nil {
			return err
		}
	}
	return nil
}

// answerUpdate has what an Update sends end in the inbox. Its payload is read as strictly as a signal's.
func (l *loop[C]) answerUpdate(v menuEntry, read func(payloads *commonpb.Payloads) (*envelope[C], error)) error {
	open := func(raw converter.RawValue) (*envelope[C], error) {
		var payloads commonpb.Payloads
		if raw.Payload() != nil {
			payloads.Payloads = append(payloads.Payloads, raw.Payload())
		}
		e, err := read(&payloads)
		if err != nil {
			return nil, temporal.NewNonRetryableApplicationError(err.Error(), "Malformed", nil)
		}
		return e, nil
	}
	handle := func(ctx workflow.Context, raw converter.RawValue) (VerbResponse, error) {
		e, err := open(raw)
		if err != nil {
			return VerbResponse{}, err
		}
		l.box.push(e)
		if err := workflow.Await(ctx, func() bool { return e.response != nil }); err != nil {
			return VerbResponse{}, err
		}
		return *e.response, nil
	}
	validate := func(_ workflow.Context, raw converter.RawValue) error {
		_, err := open(raw)
		return err
	}
	return workflow.SetUpdateHandlerWithOptions(l.ctx, string(v.name), handle,
		workflow.UpdateHandlerOptions{Description: v.description, Validator: validate})
}

// validateVerb rejects what is too long to be kept.
func validateVerb(r VerbRequest) error {
	for _, field := range []struct {
		name, value string
		most        int
	}{{"actor", r.Actor, MaxActor}, {"reason", r.Reason, MaxReason}, {"key", r.Key, MaxKey}, {"via", r.Via, maxVia}} {
		if length := utf8.RuneCountInString(field.value); length > field.most {
			return fmt.Errorf("%s has %d characters: at most %d are kept", field.name, length, field.most)
		}
	}
	return nil
}

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

// HandleSignal is called as the event comes in. A signal is read when it is taken out: an error here would fail the task for ever.
func (i *inboundInterceptor) HandleSignal(ctx workflow.Context, in *signal) error {
	switch workflow.GetInfo(ctx).WorkflowType.Name {
	case TypeServingStatus, TypeServingStatuses: // they take observations from a channel, and nobody's verbs
		return i.Next.HandleSignal(ctx, in)
	}
	i.box.push(in)
	return nil
}

// decodePayload reads one JSON payload. The Temporal UI sends none at all for an empty editor: that is the zero value. It panics on one that is encrypted:
// what was sent must not be lost because this worker lacks a key, and the SDK makes the workflow's task again.
func decodePayload(payloads *commonpb.Payloads, into any) error {
	if len(payloads.GetPayloads()) == 0 {
		return nil
	}
	if string(payloads.GetPayloads()[0].GetMetadata()[converter.MetadataEncoding]) == sealed.Encoding {
		panic(sealed.Unreadable)
	}
	return converter.GetDefaultDataConverter().FromPayload(payloads.GetPayloads()[0], into)
}

// decodeStrictly reads a verb's payload. Unknown keys are refused: {"stp":2} is a misspelt step rather than none.
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
		if _, end := decoder.Token(); !errors.Is(end, io.EOF) {
			return errors.New("it has more than one value")
		}
		return nil
	case errors.As(err, &syntax) && bytes.ContainsAny(payload.GetData(), "“”"):
		return errors.New(`its quotes are typographic: write " in place of “ and ”`)
	default:
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
}
