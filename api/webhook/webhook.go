// Package webhook is what API servers call, on a listener of its own with TLS: endpoints, the certificate, and telling the API server how
// they are reached. Nothing here keeps a process from starting: what fails is logged and tried again.
//
// Another endpoint is added by providing an Endpoint in the group "webhooks" of cmd/slipway:
//
//	fx.Provide(fx.Annotate(newEndpoint, fx.ResultTags(`group:"webhooks"`)))
package webhook

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	admission "k8s.io/api/admissionregistration/v1"
)

// Endpoint is one path that API servers call.
type Endpoint struct {
	// Path begins with a slash; Handler answers requests for it.
	Path    string
	Handler http.Handler
	// Publish writes down, where API servers look for it, how the endpoint is reached. It is called again when the CA changes, after the time
	// that it returns unless that is 0, and soon if it fails. It must write nothing when nothing has changed.
	Publish func(ctx context.Context, client admission.WebhookClientConfig) (again time.Duration, err error)
	// Watch calls changed whenever somebody may have changed what Publish has written, until the context ends. It may be nil.
	Watch func(ctx context.Context, changed func())
}

// Address is how API servers reach the listener: a base URL, or a Service of their cluster.
type Address struct {
	URL string
	// Namespace and Service name a Service, Port is its port.
	Namespace, Service string
	Port               int32
}

// client is how they reach a path.
func (a Address) client(path string, bundle []byte) admission.WebhookClientConfig {
	if a.Service == "" {
		return admission.WebhookClientConfig{URL: new(strings.TrimRight(a.URL, "/") + path), CABundle: bundle}
	}
	return admission.WebhookClientConfig{CABundle: bundle,
		Service: &admission.ServiceReference{Namespace: a.Namespace, Name: a.Service, Path: &path, Port: &a.Port}}
}

// hosts are the names that the certificate has to be good for.
func (a Address) hosts() []string {
	if a.Service != "" {
		return []string{a.Service + "." + a.Namespace + ".svc"}
	}
	parsed, err := url.Parse(a.URL)
	if err != nil || parsed.Hostname() == "" {
		return nil
	}
	return []string{parsed.Hostname()}
}

// AddressOf is the address of a listener that only this machine reaches; ok is false for any other.
func AddressOf(listen string) (a Address, ok bool) {
	host, _, err := net.SplitHostPort(listen)
	if err != nil || host != "localhost" && !net.ParseIP(host).IsLoopback() {
		return Address{}, false
	}
	return Address{URL: "https://" + listen}, true
}
