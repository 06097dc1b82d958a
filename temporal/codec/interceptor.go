package codec

import (
	"context"
	"fmt"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/proxy"
	"go.temporal.io/sdk/converter"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"slipway.io/slipway/release/sealed"
)

// NewInterceptor encrypts what a client sends to Temporal and decrypts what it receives: arguments, results, memos,
// heartbeat details, summaries, and the messages and stack traces of failures. Search attributes stay readable, since
// Temporal compares them.
//
// What it sends names the Temporal namespace and the workflow that keeps it. What it receives from another place is
// refused, so that a payload cannot be moved. With require, it also refuses what is not encrypted, except payloads
// without data, which Temporal's UI sends for an empty editor.
//
// It works on the connection rather than in the client's data converter, so that code that reads Temporal's responses
// directly (the memo in a list, the details of a pending activity, the first event of a history) gets decrypted values,
// and so that each payload's place is known.
func NewInterceptor(keys *Keys, require bool) (grpc.UnaryClientInterceptor, error) {
	if id, _ := keys.current(); require && id == "" {
		return nil, fmt.Errorf("--codec-require needs a key for new payloads: write its ID to the file %s of %s",
			CurrentFile, keys.folder)
	}
	codec := placedCodec{Codec: New(keys), require: require}
	payloads, err := proxy.NewPayloadVisitorInterceptor(proxy.PayloadVisitorInterceptorOptions{
		Outbound: &proxy.VisitPayloadsOptions{Visitor: codec.send, ContextHook: enter, SkipSearchAttributes: true},
		Inbound:  &proxy.VisitPayloadsOptions{Visitor: codec.receive, ContextHook: enter, SkipSearchAttributes: true},
	})
	if err != nil {
		return nil, err
	}
	failures, err := converter.NewFailureGRPCClientInterceptor(
		converter.NewFailureGRPCClientInterceptorOptions{EncodeCommonAttributes: true})
	if err != nil {
		return nil, err
	}
	queries := &queryTasks{workflows: map[string]string{}}
	return func(ctx context.Context, method string, request, reply any, to *grpc.ClientConn, call grpc.UnaryInvoker,
		options ...grpc.CallOption) error {
		at := place{workflow: queries.workflowOf(request)}
		if asked, ok := request.(interface{ GetNamespace() string }); ok {
			at.namespace = asked.GetNamespace()
		}
		if id := keeperOf(request); id != "" { // responses do not name it again
			at.workflow = id
		}
		// Both interceptors change requests in place; the client's own copies, for retries and caches, must stay
		// unencrypted.
		if message, ok := request.(proto.Message); ok {
			request = proto.Clone(message)
		}
		inner := func(ctx context.Context, method string, request, reply any, to *grpc.ClientConn,
			options ...grpc.CallOption) error {
			return payloads(ctx, method, request, reply, to, call, options...)
		}
		err := failures(withPlace(ctx, at), method, request, reply, to, inner, options...)
		if err == nil {
			queries.receive(reply)
			queries.answered(request)
		}
		return err
	}, nil
}

// placedCodec encrypts and decrypts payloads whose place is known.
type placedCodec struct {
	Codec
	require bool
}

func (c placedCodec) send(ctx *proxy.VisitPayloadsContext, payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	if id, _ := c.keys.current(); c.require && id == "" {
		return nil, fmt.Errorf("nothing is sent to Temporal unencrypted (--codec-require): the file %s of %s names no "+
			"key", CurrentFile, c.keys.folder)
	}
	return c.encode(payloads, placeOf(ctx))
}

// receive decrypts payloads. A refused one is replaced, since an error would keep back the whole message, and Temporal
// would deliver it again.
func (c placedCodec) receive(ctx *proxy.VisitPayloadsContext, payloads []*commonpb.Payload) ([]*commonpb.Payload,
	error) {
	here := placeOf(ctx)
	result := make([]*commonpb.Payload, len(payloads))
	for i, payload := range payloads {
		opened, from, err := c.openNamed(payload)
		result[i] = opened
		reason := ""
		switch {
		case err != nil: // it stays encrypted
		case isSealed(payload):
			reason = here.differs(from)
		case c.require && len(payload.GetData()) > 0:
			reason = "a payload of " + here.String() + " is not encrypted, which --codec-require refuses"
		}
		if reason != "" {
			c.keys.logError(fmt.Errorf("%s: a client that may write to Temporal has put it there", reason))
			result[i] = here.refused(reason)
		}
	}
	return result, nil
}

// differs returns why a payload that names a place is refused here; "" if it is not. Payloads from builds that named no
// place, and those of the codec server, are accepted.
func (p place) differs(from place) string {
	known := func(a, b string) bool { return a != "" && b != "" }
	if known(p.namespace, from.namespace) && p.namespace != from.namespace ||
		known(p.workflow, from.workflow) && p.workflow != from.workflow {
		return "a payload of " + p.String() + " was encrypted for " + from.String()
	}
	return ""
}

// String names the place in messages.
func (p place) String() string {
	if p.workflow == "" {
		return fmt.Sprintf("Temporal namespace %q", p.namespace)
	}
	return fmt.Sprintf("workflow %q in Temporal namespace %q", p.workflow, p.namespace)
}

// refused replaces a payload that is refused.
func (p place) refused(reason string) *commonpb.Payload {
	encoding := sealed.Refused
	if p.command {
		encoding = sealed.RefusedCommand
	}
	return &commonpb.Payload{Metadata: map[string][]byte{converter.MetadataEncoding: []byte(encoding),
		sealed.MetadataReason: []byte(reason)}}
}
