// Package webhook serves the webhooks that API servers call, on its own TLS listener: it handles the endpoints, their
// certificate, and the registration in the API server. Webhook failures never prevent a process from starting: they are
// logged and retried.
//
// To add an endpoint, provide an Endpoint in the group "webhooks" of cmd/slipway:
//
//	fx.Provide(fx.Annotate(newEndpoint, fx.ResultTags(`group:"webhooks"`)))
package webhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	admission "k8s.io/api/admissionregistration/v1"

	"slipway.io/slipway/api/limits"
	"slipway.io/slipway/pause"
	"slipway.io/slipway/release/backoff"
	"slipway.io/slipway/release/hold"
	"slipway.io/slipway/release/kruise/conversion"
	"slipway.io/slipway/release/kruise/v1beta1"
)

// renewInterval is how often the certificate is checked.
const renewInterval = 10 * time.Minute

// minRetryPause and maxRetryPause limit the pause between retries.
const minRetryPause, maxRetryPause = time.Second, time.Minute

const (
	// maxConnections and maxPerAddress are how many connections the listener keeps open, in all and of one address. API
	// servers need few: they send many reviews over one.
	maxConnections, maxPerAddress = 128, 64
	// streams are the reviews that a connection may carry at once, each with streamBuffer bytes that are received and
	// not read yet: reviews that wait for room don't hold up others. Clients send up to 64 KiB before they know the
	// limit.
	streams, streamBuffer = 8, 64 << 10
	// handshakeTime is the time for a TLS handshake and the headers of a request; idleTime ends a connection without
	// a request.
	handshakeTime, idleTime = 5 * time.Second, time.Minute
)

// Options configure a Server.
type Options struct {
	// Listen is the address of the listener; Address is how API servers reach it.
	Listen    string
	Address   Address
	Source    Source
	Endpoints []Endpoint
	// ClientCAs returns the CAs of the clients of endpoints that require a certificate; nil: no client needs one.
	ClientCAs func() (*x509.CertPool, error)
	Log       *slog.Logger
}

// Server serves webhook endpoints over TLS.
type Server struct {
	Options
	http    *http.Server
	current atomic.Pointer[tls.Certificate]
	cancel  context.CancelFunc
	work    sync.WaitGroup
}

// NewServer creates a server. It makes no calls yet.
func NewServer(o Options) *Server {
	s := &Server{Options: o}
	mux := http.NewServeMux()
	for _, e := range o.Endpoints {
		handler := e.Handler
		if o.ClientCAs != nil && e.Certificate {
			handler = requireCertificate(handler)
		}
		mux.Handle("POST "+e.Path, handler)
	}
	l := limits.Default
	l.Header, l.Body, l.Answer, l.Idle, l.BodyBytes = handshakeTime, maxTimeout, 30*time.Second, idleTime, maxUnread
	s.http = l.Server(mux)
	s.http.ErrorLog = slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug) // failed TLS handshakes of arbitrary clients
	s.http.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: streams, MaxReceiveBufferPerStream: streamBuffer,
		MaxReceiveBufferPerConnection: streams * streamBuffer}
	s.http.TLSConfig = s.tlsConfig()
	return s
}

// tlsConfig returns the configuration of the listener. Certificates and CAs are those that are current at a handshake.
func (s *Server) tlsConfig() *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if cert := s.current.Load(); cert != nil {
				return cert, nil
			}
			return nil, errors.New("there is no certificate yet")
		}}
	if s.ClientCAs == nil {
		return config
	}
	base := config.Clone()
	// a resumed session would not be checked against a CA that has changed
	base.ClientAuth, base.SessionTicketsDisabled = tls.VerifyClientCertIfGiven, true
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		current := base.Clone()
		var err error
		if current.ClientCAs, err = s.ClientCAs(); current.ClientCAs == nil {
			return nil, err
		}
		return current, nil
	}
	return config
}

// requireCertificate serves only clients with a certificate that the handshake has verified.
func requireCertificate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
			http.Error(w, "this webhook serves clients with a certificate of --webhook-client-ca-file only; configure "+
				"the API server's with --admission-control-config-file", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Start serves in the background and returns immediately.
func (s *Server) Start(context.Context) error {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	changed := make(chan struct{}, 1)
	notify := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	s.work.Go(func() { s.serve(ctx) })
	s.work.Go(func() { s.keepCurrent(ctx, changed) })
	for _, e := range s.Endpoints {
		if e.Watch != nil {
			s.work.Go(func() { e.Watch(ctx, notify) })
		}
	}
	return nil
}

// Stop waits until running requests have finished.
func (s *Server) Stop(ctx context.Context) error {
	s.cancel()
	err := s.http.Shutdown(ctx)
	s.work.Wait()
	return err
}

// serve listens until the context ends. It retries, because an address in use may become free.
func (s *Server) serve(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; failures++ {
		listener, err := net.Listen("tcp", s.Listen)
		if err == nil {
			s.Log.InfoContext(ctx, "serving webhooks", "address", "https://"+listener.Addr().String())
			err = s.http.ServeTLS(limits.Connections(listener, maxConnections, maxPerAddress), "", "")
		}
		if ctx.Err() != nil || errors.Is(err, http.ErrServerClosed) {
			return
		}
		s.Log.WarnContext(ctx, "webhooks aren't served; choose another address with --webhook-listen, or none", "error",
			err)
		_ = pause.For(ctx, backoff.After(failures, minRetryPause, maxRetryPause))
	}
}

// keepCurrent keeps the certificate valid and the webhook configuration in the API server up to date.
func (s *Server) keepCurrent(ctx context.Context, changed <-chan struct{}) {
	for failures := 0; ctx.Err() == nil; {
		next, err := s.refresh(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			next = backoff.After(failures, minRetryPause, maxRetryPause)
			failures++
			s.Log.WarnContext(ctx, "the API server may not reach the webhooks", "error", err, "again", next)
		} else {
			failures = 0
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-time.After(next):
		}
	}
}

// refresh renews the certificate if necessary, publishes the endpoints, and returns the delay until the next refresh.
func (s *Server) refresh(ctx context.Context) (next time.Duration, err error) {
	cert, bundle, err := s.Source.Read(ctx, s.Address.hosts())
	if err != nil {
		return 0, err // a certificate that is already served remains valid for a while
	}
	s.current.Store(&cert)
	next = renewInterval
	for _, e := range s.Endpoints {
		soon, wrong := e.Publish(ctx, s.Address.client(e.Path, bundle))
		if wrong != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", e.Path, wrong))
		}
		if soon > 0 {
			next = min(next, soon)
		}
	}
	return next, err
}

// Endpoint is one path that API servers call.
type Endpoint struct {
	// Path begins with a slash; Handler serves it.
	Path    string
	Handler http.Handler
	// Certificate is true if clients need a certificate where CAs of clients are configured.
	Certificate bool
	// Publish registers the endpoint in the API server. It is called again when the CA changes, after the returned
	// duration (unless 0), and soon after an error. It must not write if nothing has changed.
	Publish func(ctx context.Context, client admission.WebhookClientConfig) (again time.Duration, err error)
	// Watch calls changed whenever another client may have changed what Publish has written, until the context ends. It
	// may be nil.
	Watch func(ctx context.Context, changed func())
}

// Address is how API servers reach the listener: a base URL, or a Service of their cluster.
type Address struct {
	URL string
	// Namespace and Service name the Service; Port is its port.
	Namespace, Service string
	Port               int32
}

// client returns the webhook client configuration of a path.
func (a Address) client(path string, bundle []byte) admission.WebhookClientConfig {
	if a.Service == "" {
		return admission.WebhookClientConfig{URL: new(strings.TrimRight(a.URL, "/") + path), CABundle: bundle}
	}
	return admission.WebhookClientConfig{CABundle: bundle,
		Service: &admission.ServiceReference{Namespace: a.Namespace, Name: a.Service, Path: &path, Port: &a.Port}}
}

// hosts returns the names that the certificate must cover.
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

// LocalAddress returns the address of a loopback listener; ok is false for any other listener.
func LocalAddress(listen string) (a Address, ok bool) {
	host, _, err := net.SplitHostPort(listen)
	if err != nil || host != "localhost" && !net.ParseIP(host).IsLoopback() {
		return Address{}, false
	}
	return Address{URL: "https://" + listen}, true
}

// PathConvert is the path of the conversion webhook for Rollout versions.
const PathConvert = "/convert"

// CRDs publishes the conversion webhook in the CustomResourceDefinition of Rollouts.
type CRDs interface {
	PublishConversion(ctx context.Context, client admission.WebhookClientConfig) (again time.Duration, err error)
	WatchConversion(ctx context.Context, changed func())
}

// NewConversion returns the endpoint that converts Rollouts. Its clients need no certificate: API servers have none for
// conversions.
func NewConversion(definitions CRDs) Endpoint {
	handler := &reviews{most: maxConversions, room: semaphore.NewWeighted(maxConversions),
		work: semaphore.NewWeighted(decodedAtOnce), timeout: conversionTimeout,
		advice: "list fewer Rollouts at once (a limit), or read them as v1beta1",
		review: func(_ context.Context, request []byte) ([][]byte, error) { return conversion.Review(request) },
		refuse: func(_ context.Context, beginning []byte, why string) ([][]byte, error) {
			return conversion.Refuse(beginning, why)
		}}
	return Endpoint{Path: PathConvert, Handler: handler, Publish: definitions.PublishConversion,
		Watch: definitions.WatchConversion}
}

// PathMutate is the path of the mutating webhook that holds changes of workloads named by Rollout objects.
const PathMutate = "/mutate"

// Gate configures the endpoint that holds workload changes.
type Gate struct {
	// Engine reports whether a user is the engine, whose changes are not held.
	Engine func(user, namespace string) bool
	// Rollouts lists the Rollout objects of a namespace.
	Rollouts func(ctx context.Context, namespace string) ([]v1beta1.Rollout, error)
	// Publish is Endpoint.Publish.
	Publish func(ctx context.Context, client admission.WebhookClientConfig) (again time.Duration, err error)
}

// listsAtOnce is how many lists of Rollouts are read at once.
const listsAtOnce = 2

// NewGate returns the endpoint that holds changes of workloads, for clusters without mutating admission policies.
func NewGate(g Gate) Endpoint {
	lists := semaphore.NewWeighted(listsAtOnce)
	decider := func(ctx context.Context) reviewer {
		return hold.Reviewer{Engine: g.Engine, Rollouts: func(namespace string) ([]v1beta1.Rollout, error) {
			if lists.Acquire(ctx, 1) != nil {
				return nil, errBusy
			}
			defer lists.Release(1)
			return g.Rollouts(ctx, namespace)
		}}
	}
	handler := editReviews("make the workload smaller, for instance by moving large values into a ConfigMap",
		decider)
	return Endpoint{Path: PathMutate, Handler: handler, Certificate: true, Publish: g.Publish}
}
