package kuscia

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"slipway.io/slipway/api/kuscia/kusciapb"
	"slipway.io/slipway/api/limits"
	"slipway.io/slipway/api/problem"
)

// NewGRPCServer returns a server for Kuscia's API over gRPC. As over HTTP, the outcome of a request is the status in
// its response; the gRPC status reports only wrong tokens, too large requests and internal errors.
func NewGRPCServer(service *Service, security Security) *grpc.Server {
	options := append(callLimits(security, maxCalls, callTimeout), grpc.MaxRecvMsgSize(maxBody),
		grpc.ChainUnaryInterceptor(recoverPanics(service.log)))
	if security.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(security.TLS.Config())))
	}
	server := grpc.NewServer(options...)
	kusciapb.RegisterServingServiceServer(server, service)
	kusciapb.RegisterAppImageServiceServer(server, service)
	kusciapb.RegisterHealthServiceServer(server, service)
	return server
}

// caller is the client of a call.
type caller struct {
	// local is the address that the call arrived at.
	local net.Addr
	// address is the client's own.
	address string
}

// callerOf returns the client of a call with these metadata.
func callerOf(ctx context.Context, proxies limits.Proxies, md metadata.MD) caller {
	connection, ok := peer.FromContext(ctx)
	if !ok {
		return caller{}
	}
	request := http.Request{RemoteAddr: connection.Addr.String(),
		Header: http.Header{echo.HeaderXForwardedFor: md.Get(echo.HeaderXForwardedFor)}}
	return caller{connection.LocalAddr, proxies.Client(&request)}
}

// admit refuses calls to unknown hosts, calls that a browser sends for a page of another site, and calls without the
// token.
func (s Security) admit(from caller, md metadata.MD) error {
	if err := s.guard().AdmitCall(strings.Join(md.Get(":authority"), ","), md.Get, from.local); err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	err := s.authenticate(from.address, md.Get)
	if err == nil {
		return nil
	}
	return status.Error(codeOfStatus[problem.Of(err).Status], err.Error())
}

// codeOfStatus has the gRPC codes of HTTP's statuses for failed authentications.
var codeOfStatus = map[int]codes.Code{http.StatusUnauthorized: codes.Unauthenticated,
	http.StatusTooManyRequests: codes.ResourceExhausted, http.StatusServiceUnavailable: codes.Unavailable}

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
func callLimits(security Security, most int, timeout time.Duration) []grpc.ServerOption {
	calls := &calls{security: security, most: int64(most), timeout: timeout}
	if !security.Closed() {
		calls.byAddress = limits.NewByAddress(most)
	}
	return []grpc.ServerOption{
		grpc.ConnectionTimeout(handshakeTimeout), grpc.KeepaliveParams(
			keepalive.ServerParameters{MaxConnectionIdle: idleTimeout}),
		grpc.MaxHeaderListSize(maxHeaders), grpc.MaxConcurrentStreams(uint32(most)),
		grpc.InTapHandle(calls.begin),
	}
}

// calls admits calls at their first frame, before their message is read: those without credentials occupy nothing.
type calls struct {
	security Security
	most     int64
	timeout  time.Duration
	open     atomic.Int64
	// byAddress limits the open calls of one address; nil if all clients have credentials.
	byAddress *limits.ByAddress
}

// begin admits a call. The context that it returns ends with the call.
func (c *calls) begin(ctx context.Context, info *tap.Info) (context.Context, error) {
	from := callerOf(ctx, c.security.Proxies, info.Header)
	if err := c.security.admit(from, info.Header); err != nil {
		return ctx, err
	}
	release, ok := c.byAddress.Acquire(from.address)
	if !ok {
		return ctx, status.Errorf(codes.ResourceExhausted, "%d calls are open already from this address, which is the "+
			"maximum for one address while no token is required: repeat it when some have ended", c.byAddress.Most())
	}
	if c.open.Add(1) > c.most {
		c.open.Add(-1)
		release()
		return ctx, status.Errorf(codes.ResourceExhausted,
			"%d calls are open already: repeat it when some have ended", c.most)
	}
	bounded, cancel := context.WithTimeout(ctx, c.timeout)
	context.AfterFunc(bounded, func() {
		cancel()
		c.open.Add(-1)
		release()
	})
	return bounded, nil
}
