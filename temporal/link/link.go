// Package link is a process's connection to Temporal: TLS, a client certificate or an API key, and payloads that only Slipway can read. What it needs of
// secrets stands in files, which are read again when they change.
package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"

	"slipway.io/slipway/temporal/codec"
)

// Options say how Temporal is reached. Paths that are empty stand for nothing.
type Options struct {
	// Address is host:port.
	Address string
	// TLS is one of the modes; "" is TLSAuto.
	TLS string
	// CAFile holds the CAs, in PEM form, that Temporal's certificate may come from; without it those of the system do.
	CAFile string
	// CertFile and KeyFile are the client certificate, with its chain, and its key.
	CertFile, KeyFile string
	// ServerName is what Temporal's certificate is for, where that is not the host of Address.
	ServerName string
	// APIKeyFile holds the API key.
	APIKeyFile string
	// CodecKeyDir holds the keys of payloads, as package codec describes.
	CodecKeyDir string
	// Log is told of files that can't be used any more while what was read before still is.
	Log *slog.Logger
}

// The modes of TLS.
const (
	// TLSAuto is TLSOn where a file for it, a server name or an API key is given, else TLSOff.
	TLSAuto = "auto"
	// TLSOn has every connection encrypted.
	TLSOn = "on"
	// TLSOff is for a Temporal on this machine, or behind a proxy that encrypts.
	TLSOff = "off"
)

// pause is how old what was read of a file may be.
const pause = time.Second

// encrypts says whether connections are to be encrypted.
func (o Options) encrypts() bool {
	given := o.CAFile != "" || o.CertFile != "" || o.KeyFile != "" || o.ServerName != "" || o.APIKeyFile != ""
	return o.TLS == TLSOn || o.TLS != TLSOff && given
}

// check finds settings that contradict each other.
func (o Options) check() error {
	switch {
	case (o.CertFile == "") != (o.KeyFile == ""):
		return errors.New("--temporal-cert-file and --temporal-key-file belong together: give both, or neither")
	case o.TLS == TLSOff && (o.CAFile != "" || o.CertFile != "" || o.ServerName != ""):
		return errors.New("--temporal-tls=off contradicts --temporal-ca-file, --temporal-cert-file and --temporal-server-name: remove them, or turn TLS on")
	}
	return nil
}

// Apply adds what the options say to those of a client. An error is one of the settings, and names the file.
func Apply(o Options, to *client.Options) error {
	if err := o.check(); err != nil {
		return err
	}
	to.DataConverter = codec.NewDataConverter()
	connection := &to.ConnectionOptions
	connection.GrpcCompression = &client.GrpcCompressionNone{} // it takes 4 % of a busy worker's CPU, and large payloads are packed already
	connection.TLSDisabled = true                              // by the SDK: TLS is that of the credentials below, whose files may change
	credentials, err := newCredentials(o)
	if err != nil {
		return err
	}
	connection.DialOptions = append(connection.DialOptions, grpc.WithTransportCredentials(credentials))
	if o.APIKeyFile != "" {
		key, err := follow(o.Log, func() (string, error) { return readAPIKey(o.APIKeyFile) }, o.APIKeyFile)
		if err != nil {
			return err
		}
		to.Credentials = client.NewAPIKeyDynamicCredentials(func(context.Context) (string, error) { return key.get(), nil })
	}
	connection.DialOptions = append(connection.DialOptions, grpc.WithChainUnaryInterceptor(nameIdentity(o)))
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
