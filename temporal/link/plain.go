package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

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
