package link

import (
	"context"
	"fmt"
	"os"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// readAPIKey reads an API key, without surrounding white space.
func readAPIKey(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("--temporal-api-key-file: %w", err)
	}
	key := strings.TrimSpace(string(text))
	if key == "" {
		return "", fmt.Errorf("--temporal-api-key-file: %s is empty: write the API key to it", path)
	}
	return key, nil
}

// explainRefusals adds to permission errors which file this process has used to identify itself.
func explainRefusals(o Options) grpc.UnaryClientInterceptor {
	shown := "has no API key (--temporal-api-key-file) and no client certificate (--temporal-cert-file)"
	switch {
	case o.APIKeyFile != "":
		shown = "uses the API key in " + o.APIKeyFile + " (--temporal-api-key-file)"
	case o.CertFile != "":
		shown = "uses the client certificate " + o.CertFile + " (--temporal-cert-file)"
	}
	return func(ctx context.Context, method string, request, reply any, to *grpc.ClientConn, call grpc.UnaryInvoker,
		options ...grpc.CallOption) error {
		err := call(ctx, method, request, reply, to, options...)
		refusal, ok := status.FromError(err)
		if !ok || refusal.Code() != codes.PermissionDenied && refusal.Code() != codes.Unauthenticated {
			return err
		}
		refused := refusal.Proto()
		refused.Message = fmt.Sprintf("%s: the Temporal server at %s rejected %s; this process %s",
			refused.GetMessage(), o.Address, method[strings.LastIndexByte(method, '/')+1:], shown)
		return status.FromProto(refused).Err()
	}
}
