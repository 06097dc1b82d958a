package backend

import (
	"context"
	"errors"
	"sync/atomic"

	"go.temporal.io/api/serviceerror"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// limitKey is the context key of the rate-limit error that last rejected a Temporal call.
type limitKey struct{}

type limit = atomic.Pointer[status.Status]

// RecordRateLimits is a gRPC interceptor for connections to Temporal. Temporal's client retries calls rejected by a
// rate limit until their deadline, and the final error no longer mentions the limit; the interceptor records the
// rejection in the context.
func RecordRateLimits(ctx context.Context, method string, request, reply any, to *grpc.ClientConn,
	call grpc.UnaryInvoker, options ...grpc.CallOption) error {
	err := call(ctx, method, request, reply, to, options...)
	if noted, ok := ctx.Value(limitKey{}).(*limit); ok {
		if rejection, ok := status.FromError(err); ok && rejection.Code() == codes.ResourceExhausted {
			noted.Store(rejection)
		}
	}
	return err
}

// preferRateLimit replaces a deadline error by the rate-limit error that caused it; other errors are returned
// unchanged.
func preferRateLimit(ctx context.Context, err error) error {
	noted, ok := ctx.Value(limitKey{}).(*limit)
	if err == nil || !ok || noted.Load() == nil {
		return err
	}
	var late *serviceerror.DeadlineExceeded
	if !errors.As(err, &late) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return serviceerror.FromStatus(noted.Load())
}
