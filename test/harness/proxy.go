package harness

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// CountingProxy is a proxy between an engine and the API server that counts the engine's requests.
type CountingProxy struct {
	// Kubeconfig is a file that leads through the proxy.
	Kubeconfig string

	mu       sync.Mutex
	requests map[string]int
	// byResource counts the requests of each kind (read, write, watch) by method and resource.
	byResource map[string]map[string]int
}

// NewCountingProxy starts a proxy to the stack's API server. It ends with the test.
func NewCountingProxy(t testing.TB, s Stack) *CountingProxy {
	t.Helper()
	p := &CountingProxy{requests: map[string]int{},
		byResource: map[string]map[string]int{"read": {}, "write": {}, "watch": {}}}
	to, err := url.Parse(s.REST.Host)
	require.NoError(t, err)
	through, err := rest.TransportFor(rest.CopyConfig(s.REST))
	require.NoError(t, err)
	forward := &httputil.ReverseProxy{Transport: through, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
	}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.count(r)
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	p.Kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	config := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: %q}}]\nusers: "+
		"[{name: u, user: {}}]\n"+
		"contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n", server.URL)
	require.NoError(t, os.WriteFile(p.Kubeconfig, []byte(config), 0o600))
	return p
}

func (p *CountingProxy) count(r *http.Request) {
	kind := "read"
	switch {
	case r.URL.Query().Has("dryRun") || strings.HasSuffix(r.URL.Path, "accessreviews") ||
		strings.HasSuffix(r.URL.Path, "rulesreviews"):
		// A dry run or an access review uses POST or PATCH but writes nothing.
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		kind = "write"
	case r.URL.Query().Get("watch") == "true" || r.URL.Query().Get("watch") == "1":
		kind = "watch"
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests[kind]++
	p.byResource[kind][r.Method+" "+resource(r.URL.Path)]++
}

// resource returns the path of a request without the names of namespace and object, for example `apps/v1 deployments`.
func resource(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if len(parts) > 1 && parts[0] == "apis" {
		parts = append([]string{parts[1] + "/" + strings.Join(parts[2:min(3, len(parts))], "")},
			parts[min(3, len(parts)):]...)
	} else if parts[0] == "api" && len(parts) > 1 {
		parts = parts[1:]
	}
	if len(parts) > 3 && parts[1] == "namespaces" {
		parts = append(parts[:1:1], parts[3:]...)
	}
	return strings.Join(parts[:min(2, len(parts))], " ")
}

// RequestsByResource returns a copy of the counts of a kind (read, write, watch) by method and resource.
func (p *CountingProxy) RequestsByResource(kind string) map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.byResource[kind])
}

// Requests returns the number of requests so far: writes, reads (with dry runs and access reviews), and started
// watches.
func (p *CountingProxy) Requests() (writes, reads, watches int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests["write"], p.requests["read"], p.requests["watch"]
}
