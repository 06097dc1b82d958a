package download_test

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"
)

// newResolver returns a resolver that uses a DNS server of the test: every name has the address that answer returns at
// that moment.
func newResolver(t *testing.T, answer func() string) *net.Resolver {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { server.Close() })
	go func() {
		packet := make([]byte, 1500)
		for {
			n, from, err := server.ReadFrom(packet)
			if err != nil {
				return
			}
			if reply := answerDNS(packet[:n], answer); reply != nil {
				_, _ = server.WriteTo(reply, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", server.LocalAddr().String())
	}}
}

// answerDNS answers queries for IPv4 addresses, and returns an empty answer to all others.
func answerDNS(packet []byte, answer func() string) []byte {
	var message dnsmessage.Message
	if message.Unpack(packet) != nil || len(message.Questions) == 0 {
		return nil
	}
	question := message.Questions[0]
	message.Response, message.Additionals = true, nil
	if question.Type == dnsmessage.TypeA {
		message.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET},
			Body:   &dnsmessage.AResource{A: netip.MustParseAddr(answer()).As4()},
		}}
	}
	reply, err := message.Pack()
	if err != nil {
		return nil
	}
	return reply
}

// atLoopback returns a resolver that resolves every name to 127.0.0.1.
func atLoopback(t *testing.T) *net.Resolver {
	return newResolver(t, func() string { return "127.0.0.1" })
}
