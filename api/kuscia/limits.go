package kuscia

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// The bounds of the gRPC listener. All its calls are unary: one message, one answer.
const (
	// maxCalls is how many calls are open at once at most, on all connections together. Each may hold a message of maxBody.
	maxCalls = 256
	// callTimeout is how long a call may take, its message included: a client that never sends it would be waited for without end.
	callTimeout = time.Minute
	// handshakeTimeout is how long a connection may take until it can carry calls, and idleTimeout how long it may be without one.
	handshakeTimeout = 20 * time.Second
	idleTimeout      = 300 * time.Second
	// maxHeaders is how large the metadata of a call may be, in bytes.
	maxHeaders = 64 << 10
)

// callLimits bound what clients can hold of the server.
func callLimits(most int64, timeout time.Duration) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ConnectionTimeout(handshakeTimeout), grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleTimeout}),
		grpc.MaxHeaderListSize(maxHeaders), grpc.MaxConcurrentStreams(uint32(most)), grpc.InTapHandle(boundedCalls(most, timeout)),
	}
}

// boundedCalls counts calls from their first frame on, before anything is read of their message. The context that it returns ends with the
// call.
func boundedCalls(most int64, timeout time.Duration) tap.ServerInHandle {
	var open atomic.Int64
	return func(ctx context.Context, _ *tap.Info) (context.Context, error) {
		if open.Add(1) > most {
			open.Add(-1)
			return ctx, status.Errorf(codes.ResourceExhausted, "%d calls are open already: repeat it when some have ended", most)
		}
		bounded, cancel := context.WithTimeout(ctx, timeout)
		context.AfterFunc(bounded, func() {
			cancel()
			open.Add(-1)
		})
		return bounded, nil
	}
}
