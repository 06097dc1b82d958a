package harness

import (
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// Balanced is the engine behind an address that leads to any of its servers.
func (e *Engine) Balanced(servers ...*Engine) *Engine {
	e.t.Helper()
	var all []*url.URL
	for _, s := range servers {
		to, err := url.Parse(s.URL)
		require.NoError(e.t, err)
		all = append(all, to)
	}
	balanced := *e
	balanced.URL = Balance(e.t, func() []*url.URL { return all })
	return &balanced
}

// Balance is an address that leads to any of the servers that there are at a time, as a Kubernetes Service does: one that can't be reached is left out. A request
// whose server dies is answered 503.
func Balance(t testing.TB, servers func() []*url.URL) (address string) {
	forward := &httputil.ReverseProxy{Transport: balancer(servers), FlushInterval: -1, Rewrite: func(*httputil.ProxyRequest) {},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}}
	listener := httptest.NewServer(forward)
	t.Cleanup(func() {
		listener.CloseClientConnections()
		listener.Close()
	})
	return listener.URL
}

type balancer func() []*url.URL

// RoundTrip asks a server that accepts connections; one that accepts them and then breaks off may have heard the request.
func (b balancer) RoundTrip(r *http.Request) (answer *http.Response, err error) {
	servers := b()
	for _, i := range rand.Perm(len(servers)) {
		if err = accepts(servers[i].Host); err != nil {
			continue
		}
		r.URL.Scheme, r.URL.Host = servers[i].Scheme, servers[i].Host
		return http.DefaultTransport.RoundTrip(r)
	}
	return nil, err
}

func accepts(address string) error {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	return connection.Close()
}
