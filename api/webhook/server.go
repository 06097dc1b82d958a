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
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	admission "k8s.io/api/admissionregistration/v1"

	"slipway.io/slipway/api/limits"
	"slipway.io/slipway/pause"
	"slipway.io/slipway/release/backoff"
	"slipway.io/slipway/release/gate/hold"
	"slipway.io/slipway/release/kruise/conversion"
	"slipway.io/slipway/release/kruise/v1beta1"
)

// renewInterval is how often the certificate is checked.
const renewInterval = 10 * time.Minute

// minRetryPause and maxRetryPause limit the pause between retries.
const minRetryPause, maxRetryPause = time.Second, time.Minute

// Options configure a Server.
type Options struct {
	// Listen is the address of the listener; Address is how API servers reach it.
	Listen    string
	Address   Address
	Source    Source
	Endpoints []Endpoint
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
		mux.Handle("POST "+e.Path, e.Handler)
	}
	l := limits.Default
	// one conversion request holds a whole list of objects, with no size limit of its own
	l.Answer, l.BodyBytes = 30*time.Second, 64<<20
	s.http = l.Server(mux)
	s.http.ErrorLog = slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug) // failed TLS handshakes of arbitrary clients
	s.http.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if cert := s.current.Load(); cert != nil {
				return cert, nil
			}
			return nil, errors.New("there is no certificate yet")
		}}
	return s
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
			err = s.http.ServeTLS(listener, "", "")
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

// NewConversion returns the endpoint that converts Rollouts.
func NewConversion(definitions CRDs) Endpoint {
	return Endpoint{Path: PathConvert, Handler: reviewHandler(convert), Publish: definitions.PublishConversion,
		Watch: definitions.WatchConversion}
}

func convert(_ context.Context, request []byte) ([]byte, error) { return conversion.Review(request) }

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

// NewGate returns the endpoint that holds changes of workloads, for clusters without mutating admission policies.
func NewGate(g Gate) Endpoint {
	return Endpoint{Path: PathMutate, Publish: g.Publish,
		Handler: reviewHandler(func(ctx context.Context, request []byte) ([]byte, error) {
			rollouts := func(namespace string) ([]v1beta1.Rollout, error) { return g.Rollouts(ctx, namespace) }
			return hold.Reviewer{Engine: g.Engine, Rollouts: rollouts}.Review(request)
		})}
}

// reviewHandler returns a handler that answers review requests. A request that is not a review, or cannot be answered,
// gets an error status.
func reviewHandler(review func(ctx context.Context, request []byte) ([]byte, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request, err := io.ReadAll(r.Body)
		if err != nil {
			status := http.StatusBadRequest
			if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
				status = http.StatusRequestEntityTooLarge
			}
			http.Error(w, "the request can't be read: "+err.Error(), status)
			return
		}
		answer, err := review(r.Context(), request)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer)
	})
}
