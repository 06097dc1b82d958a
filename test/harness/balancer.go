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

// Balanced returns the engine behind an address that is balanced over its servers.
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

// Balance returns an address that forwards to one of the current servers, as a Kubernetes Service does. It skips
// servers that cannot be reached. A request whose server dies is answered with 503.
func Balance(t testing.TB, servers func() []*url.URL) (address string) {
	forward := &httputil.ReverseProxy{Transport: balancer(servers), FlushInterval: -1,
		Rewrite: func(*httputil.ProxyRequest) {},
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

// RoundTrip sends the request to a server that accepts connections. It does not retry: a server that breaks the
// connection may have received the request.
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
