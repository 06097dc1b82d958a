package kuscia

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"slipway.io/slipway/api/auth"
	"slipway.io/slipway/api/kuscia/kusciapb"
)

// metadataToken is HeaderToken as gRPC writes it.
const metadataToken = "token"

// NewGRPCServer answers Kuscia's requests over gRPC. As over HTTP, the outcome of a request is the status inside its answer; gRPC's own
// says only that the token is wrong, that a request is too large, or that something broke.
func NewGRPCServer(service *Service, security Security) *grpc.Server {
	options := append(callLimits(maxCalls, callTimeout), grpc.MaxRecvMsgSize(maxBody),
		grpc.ChainUnaryInterceptor(recovered(service.log), admitted(security.guard()), permitted(security.Token)))
	if security.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(security.TLS.Clone())))
	}
	server := grpc.NewServer(options...)
	kusciapb.RegisterServingServiceServer(server, service)
	kusciapb.RegisterAppImageServiceServer(server, service)
	kusciapb.RegisterHealthServiceServer(server, service)
	return server
}

// admitted refuses calls to other hosts, and those of browsers for a page of another site.
func admitted(guard auth.Guard) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		shown, _ := metadata.FromIncomingContext(ctx)
		var local net.Addr
		if caller, ok := peer.FromContext(ctx); ok {
			local = caller.LocalAddr
		}
		if err := guard.AdmitCall(strings.Join(shown.Get(":authority"), ","), shown.Get, local); err != nil {
			return nil, status.Error(codes.PermissionDenied, err.Error())
		}
		return next(ctx, request)
	}
}

// permitted refuses who does not show the token.
func permitted(token auth.Token) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		shown := ""
		if values := metadata.ValueFromIncomingContext(ctx, metadataToken); len(values) > 0 {
			shown = values[0]
		}
		if !token.Matches(shown) {
			return nil, status.Error(codes.Unauthenticated, "the token is wrong or missing: send what is in the token file as the metadata `token`")
		}
		return next(ctx, request)
	}
}

// recovered makes an error of a panic; the rest of the engine goes on.
func recovered(log *slog.Logger) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (answer any, err error) {
		defer func() {
			if value := recover(); value != nil {
				log.Error("panic in an operation of Kuscia's API", "method", info.FullMethod, "panic", value, "stack", string(debug.Stack()))
				err = status.Error(codes.Internal, fmt.Sprintf("doBizProcess panic, err: %v", value))
			}
		}()
		return next(ctx, request)
	}
}
