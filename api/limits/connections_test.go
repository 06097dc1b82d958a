package limits

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestConnections closes connections beyond the bounds, and takes new ones when old ones end.
func TestConnections(t *testing.T) {
	t.Parallel()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	listener := Connections(inner, 3, 2)
	t.Cleanup(func() { _ = listener.Close() })
	accepted := make(chan net.Conn, 10)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	from := func(host string) net.Conn {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
		conn, err := dialer.Dial("tcp", inner.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
		return conn
	}
	from("127.0.0.1")
	first := <-accepted
	from("127.0.0.1")
	<-accepted
	requireCut(t, from("127.0.0.1"), "an address has two already")
	from("127.0.0.2")
	<-accepted
	requireCut(t, from("127.0.0.3"), "three are open")
	require.NoError(t, first.Close())
	_ = first.Close()
	last := from("127.0.0.3")
	served := <-accepted
	_, err = io.WriteString(served, "x")
	require.NoError(t, err, "the place of a closed connection is free")
	_, err = io.ReadFull(last, make([]byte, 1))
	require.NoError(t, err)
	requireCut(t, from("127.0.0.4"), "a connection that is closed twice counts once")
}
