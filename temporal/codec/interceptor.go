package codec

import (
	"context"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/failure/v1"
	"go.temporal.io/api/proxy"
	"go.temporal.io/sdk/converter"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// NewInterceptor encrypts what a client sends to Temporal and decrypts what it receives: arguments, results, memos,
// heartbeat details, summaries, and the messages and stack traces of failures. Search attributes stay readable, since
// Temporal compares them.
//
// It works on the connection rather than in the client's data converter, so that code that reads Temporal's responses
// directly (the memo in a list, the details of a pending activity, the first event of a history) gets decrypted values.
func NewInterceptor(keys *Keys) (grpc.UnaryClientInterceptor, error) {
	codec := New(keys)
	payloads, err := proxy.NewPayloadVisitorInterceptor(proxy.PayloadVisitorInterceptorOptions{
		Outbound: &proxy.VisitPayloadsOptions{SkipSearchAttributes: true,
			Visitor: func(_ *proxy.VisitPayloadsContext, payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
				return codec.Encode(payloads)
			}},
		Inbound: &proxy.VisitPayloadsOptions{SkipSearchAttributes: true,
			Visitor: func(_ *proxy.VisitPayloadsContext, payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
				return codec.Decode(payloads)
			}},
	})
	if err != nil {
		return nil, err
	}
	plain := converter.GetDefaultDataConverter()
	failures, err := proxy.NewFailureVisitorInterceptor(proxy.FailureVisitorInterceptorOptions{
		Outbound: &proxy.VisitFailuresOptions{Visitor: func(_ *proxy.VisitFailuresContext, f *failure.Failure) error {
			return converter.EncodeCommonFailureAttributes(plain, f)
		}},
		Inbound: &proxy.VisitFailuresOptions{Visitor: func(_ *proxy.VisitFailuresContext, f *failure.Failure) error {
			converter.DecodeCommonFailureAttributes(plain, f)
			return nil
		}},
	})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, method string, request, reply any, to *grpc.ClientConn, call grpc.UnaryInvoker,
		options ...grpc.CallOption) error {
		// Both interceptors change requests in place; the client's own copies, for retries and caches, must stay
		// unencrypted.
		if message, ok := request.(proto.Message); ok {
			request = proto.Clone(message)
		}
		sealed := func(ctx context.Context, method string, request, reply any, to *grpc.ClientConn,
			options ...grpc.CallOption) error {
			return payloads(ctx, method, request, reply, to, call, options...)
		}
		return failures(ctx, method, request, reply, to, sealed, options...)
	}, nil
}
