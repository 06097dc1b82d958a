package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"slipway.io/slipway/api/limits"
	"slipway.io/slipway/pause"
	"slipway.io/slipway/release/backoff"
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

// serverLimits allows large bodies: one conversion request holds a whole list of objects, with no size limit of its
// own.
func serverLimits() limits.Limits {
	l := limits.Default
	l.Answer, l.BodyBytes = 30*time.Second, 64<<20
	return l
}

// NewServer creates a server. It makes no calls yet.
func NewServer(o Options) *Server {
	s := &Server{Options: o}
	mux := http.NewServeMux()
	for _, e := range o.Endpoints {
		mux.Handle("POST "+e.Path, e.Handler)
	}
	s.http = serverLimits().Server(mux)
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
