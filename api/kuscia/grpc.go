package kuscia

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"slipway.io/slipway/api/kuscia/kusciapb"
)

// metadataToken is HeaderToken in gRPC's spelling.
const metadataToken = "token"

// NewGRPCServer returns a server for Kuscia's API over gRPC. As over HTTP, the outcome of a request is the status in
// its response; the gRPC status reports only wrong tokens, too large requests and internal errors.
func NewGRPCServer(service *Service, security Security) *grpc.Server {
	options := append(callLimits(maxCalls, callTimeout), grpc.MaxRecvMsgSize(maxBody),
		grpc.ChainUnaryInterceptor(recoverPanics(service.log), admit(security)))
	if security.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(security.TLS.Clone())))
	}
	server := grpc.NewServer(options...)
	kusciapb.RegisterServingServiceServer(server, service)
	kusciapb.RegisterAppImageServiceServer(server, service)
	kusciapb.RegisterHealthServiceServer(server, service)
	return server
}

// admit refuses calls to unknown hosts, calls that a browser sends for a page of another site, and calls without the
// token.
func admit(security Security) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		var local net.Addr
		if caller, ok := peer.FromContext(ctx); ok {
			local = caller.LocalAddr
		}
		if err := security.guard().AdmitCall(strings.Join(md.Get(":authority"), ","), md.Get, local); err != nil {
			return nil, status.Error(codes.PermissionDenied, err.Error())
		}
		if presented := append(md.Get(metadataToken), ""); !security.Token.Matches(presented[0]) {
			return nil, status.Error(codes.Unauthenticated,
				"the token is wrong or missing: send what is in the token file as the metadata `token`")
		}
		return next(ctx, request)
	}
}

// recoverPanics turns a panic into an error; the process continues.
func recoverPanics(log *slog.Logger) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (answer any,
		err error) {
		defer func() {
			if value := recover(); value != nil {
				log.Error("panic in an operation of Kuscia's API", "method", info.FullMethod, "panic", value, "stack",
					string(debug.Stack()))
				err = status.Error(codes.Internal, fmt.Sprintf("doBizProcess panic, err: %v", value))
			}
		}()
		return next(ctx, request)
	}
}

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
