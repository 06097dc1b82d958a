package limits

import (
	"net"
	"net/netip"
	"sync"
)

// Connections returns a listener that has at most all connections open, and each address at most each. It closes a new
// connection beyond that at once: a client that only had to wait would not know why.
func Connections(listener net.Listener, all, each int) net.Listener {
	return &connections{Listener: listener, all: all, each: each, open: map[string]int{}}
}

type connections struct {
	net.Listener
	all, each int

	mu    sync.Mutex
	total int
	// open counts the connections of an address.
	open map[string]int
}

// Accept returns the next connection within the bounds.
func (c *connections) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if address := hostOf(conn.RemoteAddr()); c.add(address) {
			return &counted{Conn: conn, closed: sync.OnceFunc(func() { c.remove(address) })}, nil
		}
		_ = conn.Close()
	}
}

func (c *connections) add(address string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.total >= c.all || c.open[address] >= c.each {
		return false
	}
	c.total++
	c.open[address]++
	return true
}

func (c *connections) remove(address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total--
	if c.open[address]--; c.open[address] == 0 {
		delete(c.open, address)
	}
}

// hostOf returns the IP address of a connection's client.
func hostOf(address net.Addr) string {
	parsed, err := netip.ParseAddrPort(address.String())
	if err != nil {
		return address.String()
	}
	return parsed.Addr().Unmap().String()
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
