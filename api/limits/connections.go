package limits

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
)

// Connections returns a listener that has at most all connections open, and each address at most each. It closes a new
// connection beyond that at once: a client that only had to wait would not know why.
func Connections(listener net.Listener, all, each int) net.Listener {
	return &connections{Listener: listener, all: int64(all), holders: holders{most: each,
		held: map[netip.Prefix]int{}}}
}

type connections struct {
	net.Listener
	all  int64
	open atomic.Int64
	holders
}

// Accept returns the next connection within the bounds.
func (c *connections) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if closed, ok := c.add(conn.RemoteAddr()); ok {
			return &counted{Conn: conn, closed: closed}, nil
		}
		_ = conn.Close()
	}
}

// add counts a connection of a client until closed is called; ok is false beyond the bounds.
func (c *connections) add(client net.Addr) (closed func(), ok bool) {
	host, _, _ := net.SplitHostPort(client.String()) // without a port: the network of unknown addresses
	release, ok := c.acquire(Neighbourhood(host))
	if !ok {
		return nil, false
	}
	if c.open.Add(1) > c.all {
		c.open.Add(-1)
		release()
		return nil, false
	}
	return sync.OnceFunc(func() {
		c.open.Add(-1)
		release()
	}), true
}

// counted is a connection that counts until it is closed.
type counted struct {
	net.Conn
	closed func()
}

// Close closes the connection.
func (c *counted) Close() error {
	c.closed()
	return c.Conn.Close()
}
