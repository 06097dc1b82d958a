package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"slipway.io/slipway/reload"
)

// tlsCredentials encrypts connections with the files' content at the time of the connection: gRPC's own credentials use
// one fixed configuration.
type tlsCredentials struct {
	credentials.TransportCredentials
	options Options
	config  *reloadedFiles[*tls.Config]
}

func newCredentials(o Options) (credentials.TransportCredentials, error) {
	if !o.usesTLS() {
		return newPlain(o), nil
	}
	var paths []string
	for _, path := range []string{o.CAFile, o.CertFile, o.KeyFile} {
		if path != "" {
			paths = append(paths, path)
		}
	}
	config, err := openFiles(o.Log, func() (*tls.Config, error) { return readTLS(o) }, paths...)
	if err != nil {
		return nil, err
	}
	return tlsCredentials{TransportCredentials: credentials.NewTLS(config.get()), options: o, config: config}, nil
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

// ClientHandshake implements credentials.TransportCredentials with the current files. Files that cannot be read leave
// their previous content in use: they may just be being replaced.
func (t tlsCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn,
	credentials.AuthInfo, error) {
	connection, info, err := credentials.NewTLS(t.config.get()).ClientHandshake(ctx, authority, raw)
	if err != nil {
		return nil, nil, t.explain(err)
	}
	return &firstRead{Conn: connection, explain: func(err error) error {
		var alert *net.OpError
		if errors.As(err, &alert) && alert.Op == "remote error" {
			return t.explain(err)
		}
		return err
	}}, info, nil
}

// Clone implements credentials.TransportCredentials; gRPC calls it once per client.
func (t tlsCredentials) Clone() credentials.TransportCredentials {
	t.TransportCredentials = t.TransportCredentials.Clone()
	return t
}

// explain adds to a TLS error which file or setting it is about.
func (t tlsCredentials) explain(err error) error {
	var alert *net.OpError
	var foreign *tls.CertificateVerificationError
	var plain tls.RecordHeaderError
	o := t.options
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

// plainCredentials leaves connections unencrypted, and explains that the server probably requires TLS if it closes a
// connection at once.
type plainCredentials struct {
	credentials.TransportCredentials
	address string
}

func newPlain(o Options) credentials.TransportCredentials {
	return plainCredentials{TransportCredentials: insecure.NewCredentials(), address: o.Address}
}

// ClientHandshake implements credentials.TransportCredentials.
func (p plainCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn,
	credentials.AuthInfo, error) {
	connection, info, err := p.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		return nil, nil, err
	}
	return &firstRead{Conn: connection, explain: func(err error) error {
		if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
			return fmt.Errorf("the server at %s closed the connection immediately: if it requires TLS, set "+
				"--temporal-tls=on: %w", p.address, err)
		}
		return err
	}}, info, nil
}

// Clone implements credentials.TransportCredentials; gRPC calls it once per client.
func (p plainCredentials) Clone() credentials.TransportCredentials {
	p.TransportCredentials = p.TransportCredentials.Clone()
	return p
}
