// Package link is a process's connection to Temporal: TLS, a client certificate or an API key, and encrypted payloads.
// The secrets are in files, which are read again when they change.
package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
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
	// CodecRequire refuses payloads that are not encrypted.
	CodecRequire bool
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
	case o.CodecRequire && o.CodecKeyDir == "":
		return errors.New("--codec-require needs the payload keys: set --temporal-codec-key-dir")
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
			return key.Get(), nil
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
	sealed, err := codec.NewInterceptor(keys, o.CodecRequire)
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

// openFiles fails if the files are invalid now.
func openFiles[T any](log *slog.Logger, load func() (T, error), paths ...string) (*reload.Lasting[T], error) {
	return reload.NewLasting("a file for Temporal", log, load, maxAge, paths...)
}

// explainedCredentials are the credentials of connections to Temporal, with errors that say which file or setting they
// are about.
type explainedCredentials struct {
	credentials.TransportCredentials
	// current returns the credentials of a new connection.
	current func() credentials.TransportCredentials
	// handshake explains an error of a handshake, first one of the first read.
	handshake, first func(error) error
}

// newCredentials returns credentials that encrypt connections with the files' content at the time of the connection:
// gRPC's own credentials use one fixed configuration. Files that cannot be read leave their previous content in use:
// they may just be being replaced.
func newCredentials(o Options) (credentials.TransportCredentials, error) {
	if !o.usesTLS() {
		plain := insecure.NewCredentials()
		return explainedCredentials{TransportCredentials: plain,
			current:   func() credentials.TransportCredentials { return plain },
			handshake: func(err error) error { return err },
			first:     func(err error) error { return explainPlain(o, err) }}, nil
	}
	paths := slices.DeleteFunc([]string{o.CAFile, o.CertFile, o.KeyFile}, func(path string) bool { return path == "" })
	config, err := openFiles(o.Log, func() (*tls.Config, error) { return readTLS(o) }, paths...)
	if err != nil {
		return nil, err
	}
	return explainedCredentials{TransportCredentials: credentials.NewTLS(config.Get()),
		current:   func() credentials.TransportCredentials { return credentials.NewTLS(config.Get()) },
		handshake: func(err error) error { return explainTLS(o, err) },
		first: func(err error) error {
			var alert *net.OpError
			if errors.As(err, &alert) && alert.Op == "remote error" {
				return explainTLS(o, err)
			}
			return err
		}}, nil
}

func readTLS(o Options) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: o.ServerName}
	if o.CAFile != "" {
		var err error
		if config.RootCAs, err = reload.ReadCA("--temporal-ca-file", o.CAFile); err != nil {
			return nil, err
		}
	}
	if o.CertFile != "" {
		own, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("--temporal-cert-file %s with --temporal-key-file %s: %w", o.CertFile, o.KeyFile,
				err)
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}

// ClientHandshake implements credentials.TransportCredentials.
func (e explainedCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn,
	credentials.AuthInfo, error) {
	connection, info, err := e.current().ClientHandshake(ctx, authority, raw)
	if err != nil {
		return nil, nil, e.handshake(err)
	}
	return &firstRead{Conn: connection, explain: e.first}, info, nil
}

// Clone implements credentials.TransportCredentials; gRPC calls it once per client.
func (e explainedCredentials) Clone() credentials.TransportCredentials {
	e.TransportCredentials = e.TransportCredentials.Clone()
	return e
}

// explainTLS adds to a TLS error which file or setting it is about.
func explainTLS(o Options, err error) error {
	var alert *net.OpError
	var foreign *tls.CertificateVerificationError
	var plain tls.RecordHeaderError
	switch {
	case errors.As(err, &plain):
		return fmt.Errorf("the server at %s does not use TLS: set --temporal-tls=off and remove the TLS files: %w",
			o.Address, err)
	case errors.As(err, &foreign) && o.CAFile != "":
		return fmt.Errorf("the certificate of the Temporal server at %s is not trusted: check %s "+
			"(--temporal-ca-file) and --temporal-server-name: %w", o.Address, o.CAFile, err)
	case errors.As(err, &foreign):
		return fmt.Errorf("the certificate of the Temporal server at %s is not trusted: set --temporal-ca-file, or "+
			"check --temporal-server-name: %w", o.Address, err)
	case errors.As(err, &alert) && alert.Op == "remote error" && o.CertFile != "":
		return fmt.Errorf("the Temporal server at %s rejected the client certificate %s (--temporal-cert-file): %w",
			o.Address, o.CertFile, err)
	case errors.As(err, &alert) && alert.Op == "remote error":
		return fmt.Errorf("the Temporal server at %s requires a client certificate: set --temporal-cert-file and "+
			"--temporal-key-file: %w", o.Address, err)
	}
	return fmt.Errorf("TLS with Temporal at %s: %w", o.Address, err)
}

// explainPlain says that the server probably requires TLS if it closes an unencrypted connection at once.
func explainPlain(o Options, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		return fmt.Errorf("the server at %s closed the connection immediately: if it requires TLS, set "+
			"--temporal-tls=on: %w", o.Address, err)
	}
	return err
}

// firstRead explains why a server closes a connection before it has sent anything: with TLS 1.3 it refuses a client
// certificate only after the client's handshake.
type firstRead struct {
	net.Conn
	explain  func(error) error
	received bool
}

// Read explains an error of the first read.
func (c *firstRead) Read(into []byte) (int, error) {
	n, err := c.Conn.Read(into)
	if !c.received && err != nil && n == 0 {
		err = c.explain(err)
	}
	c.received = c.received || n > 0
	return n, err
}
