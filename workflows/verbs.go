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
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/sealed"
	"slipway.io/slipway/release/serving"
)

// The maximum lengths of a verb's actor, reason, key, interface, party and gate, in characters, and of an unknown
// signal's name, in bytes. They are kept in history and in the record.
const (
	MaxActor  = 200
	MaxReason = 2000
	MaxKey    = 200
	MaxParty  = 200
	maxVia    = 32
	maxGate   = 100
	maxVerb   = 40
)

// menu is what a workflow type accepts from users: its verbs, each as Signal and as Update.
type menu[C any] struct {
	verbs []menuEntry
	// read decodes a verb's payload into a command. It rejects malformed payloads; a verb that the state forbids is
	// refused and recorded instead.
	read func(verb audit.Verb, payloads *commonpb.Payloads) (C, error)
}

// menuEntry is a verb, or an internal signal, with its description in the signal menu of Temporal's UI.
type menuEntry struct {
	name        audit.Verb
	description string
}

// newMenu returns a menu of verbs with the request type Q; command turns a request into a command.
func newMenu[C, Q any](command func(verb audit.Verb, q Q) C, validate func(verb audit.Verb, q Q) error,
	verbs ...menuEntry) menu[C] {
	return menu[C]{verbs: verbs, read: func(verb audit.Verb, payloads *commonpb.Payloads) (C, error) {
		var request, none Q
		if err := decodeStrictly(payloads, &request); err != nil { // nothing of a malformed payload is kept
			return command(verb, none), fmt.Errorf(
				`the payload cannot be read: %w; send it empty, or as {"actor":"…","reason":"…"}`, err)
		}
		if err := validate(verb, request); err != nil {
			return command(verb, none), err
		}
		return command(verb, request), nil
	}}
}

// envelope is a command on its way to the machine, and its response.
type envelope[C any] struct {
	command C
	// unreadable is why the payload is no valid command; "" if it is.
	unreadable string
	// attachment is an additional payload: the newer release of a supersede, the strategy of a replan.
	attachment any
	// outcome and text are the machine's answer. response is set after the round, with the resulting state.
	outcome  audit.Outcome
	text     string
	response *VerbResponse
}

// readSignal reads a signal. An unknown or unreadable one is refused in the record, since a signal has no response.
func (m menu[C]) readSignal(s *signal) *envelope[C] {
	verb := audit.Verb(phrase.Line(s.SignalName, maxVerb))
	e := &envelope[C]{}
	if slices.ContainsFunc(m.verbs, func(v menuEntry) bool { return string(v.name) == s.SignalName }) {
		var err error
		if e.command, err = m.read(verb, s.Arg); err != nil {
			e.unreadable = err.Error()
		}
		return e
	}
	e.command, _ = m.read(verb, nil)
	names := phrase.Each(m.verbs, func(v menuEntry) string { return string(v.name) })
	e.unreadable = fmt.Sprintf("there is no signal %q: send one of %v", verb, names)
	return e
}

// declareSignals lists signals in the UI's signal menu by requesting their channels. The interceptor receives the
// signals.
func declareSignals(ctx workflow.Context, entries ...menuEntry) {
	for _, s := range entries {
		workflow.GetSignalChannelWithOptions(ctx, string(s.name),
			workflow.SignalChannelOptions{Description: s.description})
	}
}

// setStateQuery registers the handler of the query `state`.
func setStateQuery(ctx workflow.Context, state any, description string) error {
	return workflow.SetQueryHandlerWithOptions(ctx, QueryState, state,
		workflow.QueryHandlerOptions{Description: description})
}

// registerHandlers registers the query `state`, lists each verb in the UI's signal menu and accepts it as an Update.
// Signals and Updates end in the same inbox.
func (l *loop[C]) registerHandlers(state any, description string) error {
	if err := setStateQuery(l.ctx, state, description); err != nil {
		return err
	}
	declareSignals(l.ctx, l.menu.verbs...)
	for _, v := range l.menu.verbs {
		if err := l.handleUpdate(v, func(payloads *commonpb.Payloads) (*envelope[C], error) {
			command, err := l.menu.read(v.name, payloads)
			return &envelope[C]{command: command}, err
		}); err != nil {
			return err
		}
	}
	return nil
}

// handleUpdate registers an Update whose commands go to the inbox. Its payload is read as strictly as a signal's.
func (l *loop[C]) handleUpdate(v menuEntry, read func(payloads *commonpb.Payloads) (*envelope[C], error)) error {
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

// validateVerb rejects fields that are too long.
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

// inbox holds the messages of one workflow in the order of its history. The SDK's selectors lose the order across
// signal names, so an interceptor puts signals here as their events arrive; Updates join them, and the workflow's loop
// takes them out.
type inbox struct {
	// items are undecoded signals (*signal) and commands from Updates (*envelope[C]).
	items []any
}

// signal is a signal as received.
type signal = interceptor.HandleSignalInput

func (b *inbox) push(item any) { b.items = append(b.items, item) }

// take removes and returns the oldest item. There must be one.
func (b *inbox) take() any {
	item := b.items[0]
	b.items = b.items[1:]
	return item
}

// hasSignal reports whether the inbox holds a signal of that name.
func (b *inbox) hasSignal(name string) bool {
	return slices.ContainsFunc(b.items, func(item any) bool {
		s, is := item.(*signal)
		return is && s.SignalName == name
	})
}

type inboxKey struct{}

func inboxOf(ctx workflow.Context) *inbox {
	box, ok := ctx.Value(inboxKey{}).(*inbox)
	if !ok {
		panic("the worker runs without workflows.NewInterceptor: verbs would be lost")
	}
	return box
}

// NewInterceptor returns the interceptor that fills the inbox of each workflow. Every worker that runs workflows of
// this package needs it.
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

// HandleSignal is called when the event arrives. The signal is decoded only when it is taken out: an error here would
// make the workflow task fail forever.
func (i *inboundInterceptor) HandleSignal(ctx workflow.Context, in *signal) error {
	if workflow.GetInfo(ctx).WorkflowType.Name == TypeServingStatuses { // it receives through a channel and has no verbs
		return i.Next.HandleSignal(ctx, in)
	}
	i.box.push(in)
	return nil
}

// decodePayload decodes one JSON payload. Temporal's UI sends no payload for an empty editor: that is the zero value.
// It panics on an encrypted payload: the message must not be lost because this worker lacks a key, and the SDK retries
// the workflow task.
func decodePayload(payloads *commonpb.Payloads, into any) error {
	if len(payloads.GetPayloads()) == 0 {
		return nil
	}
	if string(payloads.GetPayloads()[0].GetMetadata()[converter.MetadataEncoding]) == sealed.Encoding {
		panic(sealed.Unreadable)
	}
	return converter.GetDefaultDataConverter().FromPayload(payloads.GetPayloads()[0], into)
}

// decodeStrictly decodes a verb's payload and rejects unknown keys: {"stp":2} is a misspelt step rather than no step.
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

// ServingVerbRequest is the payload of every verb of an operation on a serving, as Update and as Signal. All fields are
// optional.
type ServingVerbRequest struct {
	VerbRequest
	// Party is the approved party; "" is the one that waits now. Gate is waitingFor.gate as the sender saw it; "" is
	// not checked. Both are for approve only.
	Party string `json:"party,omitempty"`
	Gate  string `json:"gate,omitempty"`
}

// servingMenu lists the verbs of a Serving.
var servingMenu = newMenu(func(verb serving.Verb, q ServingVerbRequest) serving.Command {
	return serving.Command{Verb: verb, Actor: q.Actor, Via: q.Via, Reason: q.Reason, Key: q.Key, Party: q.Party,
		Gate: q.Gate}
}, validateServingVerb,
	menuEntry{serving.VerbApprove, `Let the party begin that waits for an approval. ` +
		`Payload: empty, or {"actor":"ann","reason":"looks good","party":"bob"}.`},
	menuEntry{serving.VerbPause, `Hold the operation: running steps continue, no other party begins. ` +
		`Payload: empty, or {"actor":"ann","reason":"lunch"}.`},
	menuEntry{serving.VerbResume, `Continue after a pause. Payload: empty, or {"actor":"ann"}.`},
	menuEntry{serving.VerbStop, `End an update: every party returns to the previous version. ` +
		`Payload: empty, or {"actor":"ann","reason":"bad numbers"}.`},
)

func validateServingVerb(verb serving.Verb, q ServingVerbRequest) error {
	switch {
	case verb != serving.VerbApprove && (q.Party != "" || q.Gate != ""):
		return fmt.Errorf("party and gate are for approve only: %s applies to all parties", verb)
	case len(q.Gate) > maxGate:
		return fmt.Errorf("gate has %d characters: send waitingFor.gate unchanged", len(q.Gate))
	case len(q.Party) > MaxParty:
		return fmt.Errorf("party has %d characters: send waitingFor.party unchanged", len(q.Party))
	}
	return validateVerb(q.VerbRequest)
}
