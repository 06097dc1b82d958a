// Package link is a process's connection to Temporal: TLS, a client certificate or an API key, and encrypted payloads.
// The secrets are in files, which are read again when they change.
package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"slipway.io/slipway/reload"
	"slipway.io/slipway/temporal/codec"
)

// Options configure the connection to Temporal. Empty paths mean that there is no such file.
type Options struct {
	// Address is host:port.
	Address string
	// TLS is one of the modes; "" is TLSAuto.
	TLS string
	// CAFile holds the CAs, in PEM form, for Temporal's certificate; "" means the system's CAs.
	CAFile string
	// CertFile and KeyFile are the client certificate, with its chain, and its key.
	CertFile, KeyFile string
	// ServerName is the name in Temporal's certificate, if that is not the host of Address.
	ServerName string
	// APIKeyFile holds the API key.
	APIKeyFile string
	// CodecKeyDir is the folder of payload keys; see package codec.
	CodecKeyDir string
	// Log gets warnings about files that became invalid while their previous content is still used.
	Log *slog.Logger
}

// The modes of TLS.
const (
	// TLSAuto is TLSOn if a TLS file, a server name or an API key is given, else TLSOff.
	TLSAuto = "auto"
	// TLSOn encrypts every connection.
	TLSOn = "on"
	// TLSOff is for a Temporal server on this machine, or behind a proxy that encrypts.
	TLSOff = "off"
)

// maxAge is the maximum age of a file's cached content.
const maxAge = time.Second

// usesTLS reports whether connections are encrypted.
func (o Options) usesTLS() bool {
	given := o.CAFile != "" || o.CertFile != "" || o.KeyFile != "" || o.ServerName != "" || o.APIKeyFile != ""
	return o.TLS == TLSOn || o.TLS != TLSOff && given
}

// check rejects contradictory settings.
func (o Options) check() error {
	switch {
	case (o.CertFile == "") != (o.KeyFile == ""):
		return errors.New("--temporal-cert-file and --temporal-key-file belong together: give both, or neither")
	case o.TLS == TLSOff && (o.CAFile != "" || o.CertFile != "" || o.ServerName != ""):
		return errors.New("--temporal-tls=off contradicts --temporal-ca-file, --temporal-cert-file and " +
			"--temporal-server-name: remove them, or turn TLS on")
	}
	return nil
}

// Apply adds the options to those of a client. An error is about a setting, and names the file.
func Apply(o Options, to *client.Options) error {
	if err := o.check(); err != nil {
		return err
	}
	to.DataConverter = codec.NewDataConverter()
	connection := &to.ConnectionOptions
	// compression takes 4 % of a busy worker's CPU, and large payloads are compressed already
	connection.GrpcCompression = &client.GrpcCompressionNone{}
	// the SDK's own TLS: the credentials below do it, since their files may change
	connection.TLSDisabled = true
	credentials, err := newCredentials(o)
	if err != nil {
		return err
	}
	connection.DialOptions = append(connection.DialOptions, grpc.WithTransportCredentials(credentials))
	if o.APIKeyFile != "" {
		key, err := openFiles(o.Log, func() (string, error) { return readAPIKey(o.APIKeyFile) }, o.APIKeyFile)
		if err != nil {
			return err
		}
		to.Credentials = client.NewAPIKeyDynamicCredentials(func(context.Context) (string, error) {
			return key.get(), nil
		})
	}
	connection.DialOptions = append(connection.DialOptions, grpc.WithChainUnaryInterceptor(explainRefusals(o)))
	if o.CodecKeyDir == "" {
		return nil
	}
	keys, err := codec.OpenKeys(o.CodecKeyDir, o.Log)
	if err != nil {
		return fmt.Errorf("--temporal-codec-key-dir: %w", err)
	}
	sealed, err := codec.NewInterceptor(keys)
	if err != nil {
		return err
	}
	connection.DialOptions = append(connection.DialOptions, grpc.WithChainUnaryInterceptor(sealed))
	return nil
}

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

// reloadedFiles is the value of files, or the previous value while they are invalid: they may just be being replaced.
type reloadedFiles[T any] struct {
	files *reload.Files[T]
	log   *slog.Logger

	mu        sync.Mutex
	lastError string
}

// openFiles fails if the files are invalid now.
func openFiles[T any](log *slog.Logger, load func() (T, error), paths ...string) (*reloadedFiles[T], error) {
	files, err := reload.New(load, maxAge, paths...)
	return &reloadedFiles[T]{files: files, log: log}, err
}

// get returns the value. It logs an error once, until it is resolved or changes: it is called for each request.
func (f *reloadedFiles[T]) get() T {
	value, err := f.files.Get()
	text := ""
	if err != nil {
		text = err.Error()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if text != "" && text != f.lastError && f.log != nil {
		f.log.Warn("a file for Temporal is invalid, still using its previous content", "error", err)
	}
	f.lastError = text
	return value
}
