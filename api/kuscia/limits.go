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

// The limits of the gRPC listener. All its calls are unary: one request message, one response message.
const (
	// maxCalls is the maximum number of open calls on all connections. Each may hold a message of maxBody.
	maxCalls = 256
	// callTimeout is the time limit of a call, including its message: without it, the server would wait forever for a
	// client that never sends it.
	callTimeout = time.Minute
	// handshakeTimeout is the time limit for setting up a connection, and idleTimeout how long it may remain without
	// calls.
	handshakeTimeout = 20 * time.Second
	idleTimeout      = 300 * time.Second
	// maxHeaders is the maximum size of a call's metadata, in bytes.
	maxHeaders = 64 << 10
)

// callLimits are the server options that bound what clients can occupy.
func callLimits(most int64, timeout time.Duration) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ConnectionTimeout(handshakeTimeout), grpc.KeepaliveParams(
			keepalive.ServerParameters{MaxConnectionIdle: idleTimeout}),
		grpc.MaxHeaderListSize(maxHeaders), grpc.MaxConcurrentStreams(uint32(most)),
		grpc.InTapHandle(limitCalls(most, timeout)),
	}
}

// limitCalls counts calls from their first frame on, before their message is read. The context that it returns ends
// with the call.
func limitCalls(most int64, timeout time.Duration) tap.ServerInHandle {
	var open atomic.Int64
	return func(ctx context.Context, _ *tap.Info) (context.Context, error) {
		if open.Add(1) > most {
			open.Add(-1)
			return ctx, status.Errorf(codes.ResourceExhausted,
				"%d calls are open already: repeat it when some have ended", most)
		}
		bounded, cancel := context.WithTimeout(ctx, timeout)
		context.AfterFunc(bounded, func() {
			cancel()
			open.Add(-1)
		})
		return bounded, nil
	}
}
