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

// limitKey is where the context of a question to Temporal keeps the limit that has refused it.
type limitKey struct{}

type limit = atomic.Pointer[status.Status]

// NoteLimits belongs into every connection to Temporal that questions are asked on. Temporal's client asks again what a limit has refused until
// the time for it is over, so that the error that comes of it says nothing of the limit.
func NoteLimits(ctx context.Context, method string, request, reply any, to *grpc.ClientConn, call grpc.UnaryInvoker, options ...grpc.CallOption) error {
	err := call(ctx, method, request, reply, to, options...)
	if noted, asked := ctx.Value(limitKey{}).(*limit); asked {
		if told, ok := status.FromError(err); ok && told.Code() == codes.ResourceExhausted {
			noted.Store(told)
		}
	}
	return err
}

// ofLimit is the error of a question whose time was over because a limit has refused it again and again; other errors stay what they are.
func ofLimit(ctx context.Context, err error) error {
	noted, asked := ctx.Value(limitKey{}).(*limit)
	if err == nil || !asked || noted.Load() == nil {
		return err
	}
	var late *serviceerror.DeadlineExceeded
	if !errors.As(err, &late) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return serviceerror.FromStatus(noted.Load())
}
