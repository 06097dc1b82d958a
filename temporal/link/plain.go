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

// plain leaves connections unencrypted, and says what a server most likely wants that ends one at once.
type plain struct {
	credentials.TransportCredentials
	address string
}

func newPlain(o Options) credentials.TransportCredentials {
	return plain{TransportCredentials: insecure.NewCredentials(), address: o.Address}
}

// ClientHandshake is gRPC's own.
func (p plain) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	connection, info, err := p.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		return nil, nil, err
	}
	return &firstRead{Conn: connection, explain: func(err error) error {
		if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
			return fmt.Errorf("the server at %s closed the connection immediately: if it requires TLS, set --temporal-tls=on: %w", p.address, err)
		}
		return err
	}}, info, nil
}

// Clone is asked for by gRPC, once for each client.
func (p plain) Clone() credentials.TransportCredentials {
	p.TransportCredentials = p.TransportCredentials.Clone()
	return p
}
