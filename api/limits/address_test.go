package limits

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProxies_Client(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason          string
		proxies         []string
		peer, forwarded string
		want            string
	}{
		"Forged":  {"Any client can send the header.", nil, "203.0.113.5:4711", "10.0.0.1", "203.0.113.5"},
		"Local":   {"A process of this machine, too.", nil, "127.0.0.1:4711", "10.0.0.1", "127.0.0.1"},
		"Private": {"A private network is no proxy.", []string{"10.9.0.0/16"}, "10.0.0.7:1", "203.0.113.9", "10.0.0.7"},
		"Proxy":   {"A proxy names its client.", []string{"10.0.0.0/8"}, "10.0.0.7:1", "203.0.113.9", "203.0.113.9"},
		"Address": {"A proxy as one address.", []string{"10.0.0.7"}, "10.0.0.7:1", "203.0.113.9", "203.0.113.9"},
		"Begun": {"What the client itself sent comes first, and counts for nothing.", []string{"10.0.0.0/8"},
			"10.0.0.7:1", "198.51.100.1, 203.0.113.9", "203.0.113.9"},
		"Chain": {"Two proxies.", []string{"10.0.0.0/8", "fd00::/8"}, "[fd00::1]:1",
			"198.51.100.1, 203.0.113.9, 10.0.0.7", "203.0.113.9"},
		"Nothing": {"A proxy without the header.", []string{"10.0.0.0/8"}, "10.0.0.7:1", "", "10.0.0.7"},
		"Garbage": {"A header that is no address.", []string{"10.0.0.0/8"}, "10.0.0.7:1", "x\"y", "10.0.0.7"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxies, err := NewProxies(c.proxies)
			require.NoError(t, err)
			r := &http.Request{RemoteAddr: c.peer, Header: http.Header{}}
			if c.forwarded != "" {
				r.Header.Set("X-Forwarded-For", c.forwarded)
			}
			require.Equal(t, c.want, proxies.Client(r), c.reason)
		})
	}
	_, err := NewProxies([]string{"10.0.0.0/8", "proxy.example"})
	require.ErrorContains(t, err, `"proxy.example" is neither a network nor an address`)
}

func TestByAddress_LeavesRoomForOthers(t *testing.T) {
	t.Parallel()
	b := NewByAddress(8)
	first, ok := b.Acquire("203.0.113.5")
	require.True(t, ok)
	_, ok = b.Acquire("203.0.113.5")
	require.True(t, ok)
	_, ok = b.Acquire("::ffff:203.0.113.5")
	require.False(t, ok, "the same address in another notation has its quarter already")
	_, ok = b.Acquire("203.0.113.6")
	require.True(t, ok, "another address has its own")
	for n := range 2 {
		_, ok = b.Acquire(fmt.Sprintf("2001:db8::%x", n))
		require.True(t, ok)
	}
	_, ok = b.Acquire("2001:db8::99")
	require.False(t, ok, "a host has a whole IPv6 network")
	first()
	first()
	_, ok = b.Acquire("203.0.113.5")
	require.True(t, ok, "what is released can be used again")
	_, ok = b.Acquire("203.0.113.5")
	require.False(t, ok, "a second release of the same changes nothing")
	for range 1000 {
		_, ok = b.Acquire("127.0.0.1")
		require.True(t, ok, "the processes of this machine share one address")
	}
	var none *ByAddress
	_, ok = none.Acquire("203.0.113.5")
	require.True(t, ok)
}

func TestByAddress_ForgetsAddresses(t *testing.T) {
	t.Parallel()
	b := NewByAddress(4)
	for n := range 10000 {
		release, ok := b.Acquire(fmt.Sprintf("10.0.%d.%d", n/250, n%250))
		require.True(t, ok)
		release()
	}
	require.Empty(t, b.held)
}
