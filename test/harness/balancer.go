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

// Balanced is the engine behind an address that leads to any of its servers, as a Kubernetes Service does: one that can't be reached is left out. A request
// whose server dies is answered 503.
func (e *Engine) Balanced(servers ...*Engine) *Engine {
	e.t.Helper()
	b := &balancer{}
	for _, s := range servers {
		to, err := url.Parse(s.URL)
		require.NoError(e.t, err)
		b.servers = append(b.servers, to)
	}
	forward := &httputil.ReverseProxy{Transport: b, FlushInterval: -1, Rewrite: func(*httputil.ProxyRequest) {},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}}
	listener := httptest.NewServer(forward)
	e.t.Cleanup(func() {
		listener.CloseClientConnections()
		listener.Close()
	})
	balanced := *e
	balanced.URL = listener.URL
	return &balanced
}

type balancer struct {
	servers []*url.URL
}

// RoundTrip asks a server that accepts connections; one that accepts them and then breaks off may have heard the request.
func (b *balancer) RoundTrip(r *http.Request) (answer *http.Response, err error) {
	for _, i := range rand.Perm(len(b.servers)) {
		if err = accepts(b.servers[i].Host); err != nil {
			continue
		}
		r.URL.Scheme, r.URL.Host = b.servers[i].Scheme, b.servers[i].Host
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

var _ testing.TB = (*testing.T)(nil)
