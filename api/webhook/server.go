package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"slipway.io/slipway/api/limits"
)

// renew is how often the certificate is looked at.
const renew = 10 * time.Minute

// retries are how long to wait before what has failed is tried once more.
func retries() *wait.Backoff {
	return &wait.Backoff{Duration: time.Second, Factor: 2, Steps: math.MaxInt32, Cap: time.Minute}
}

// Options say what is served, and where.
type Options struct {
	// Listen is the address of the listener, Address how API servers reach it.
	Listen    string
	Address   Address
	Source    Source
	Endpoints []Endpoint
	Log       *slog.Logger
}

// Server serves the endpoints.
type Server struct {
	Options
	http    *http.Server
	current atomic.Pointer[tls.Certificate]
	cancel  context.CancelFunc
	work    sync.WaitGroup
}

// bounds: a list of objects is converted in one request, without a limit of its own.
func bounds() limits.Limits {
	l := limits.Default
	l.Answer, l.BodyBytes = 30*time.Second, 64<<20
	return l
}

// NewServer prepares a server; it calls nobody yet.
func NewServer(o Options) *Server {
	s := &Server{Options: o}
	mux := http.NewServeMux()
	for _, e := range o.Endpoints {
		mux.Handle("POST "+e.Path, e.Handler)
	}
	s.http = bounds().Server(mux)
	s.http.ErrorLog = slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug) // failed handshakes of whoever knocks
	s.http.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		if cert := s.current.Load(); cert != nil {
			return cert, nil
		}
		return nil, errors.New("there is no certificate yet")
	}}
	return s
}

// Start returns at once.
func (s *Server) Start(context.Context) error {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	changed := make(chan struct{}, 1)
	tell := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	s.work.Go(func() { s.serve(ctx) })
	s.work.Go(func() { s.keep(ctx, changed) })
	for _, e := range s.Endpoints {
		if e.Watch != nil {
			s.work.Go(func() { e.Watch(ctx, tell) })
		}
	}
	return nil
}

// Stop lets requests that are under way finish.
func (s *Server) Stop(ctx context.Context) error {
	s.cancel()
	err := s.http.Shutdown(ctx)
	s.work.Wait()
	return err
}

// serve listens until the context ends. An address that is taken may be free later.
func (s *Server) serve(ctx context.Context) {
	for again := retries(); ctx.Err() == nil; {
		listener, err := net.Listen("tcp", s.Listen)
		if err == nil {
			s.Log.InfoContext(ctx, "serving webhooks", "address", "https://"+listener.Addr().String())
			err = s.http.ServeTLS(listener, "", "")
		}
		if ctx.Err() != nil || errors.Is(err, http.ErrServerClosed) {
			return
		}
		s.Log.WarnContext(ctx, "webhooks aren't served; choose another address with --webhook-listen, or none", "error", err)
		pause(ctx, again.Step())
	}
}

// keep has a certificate that is valid, and the API server know how the endpoints are reached.
func (s *Server) keep(ctx context.Context, changed <-chan struct{}) {
	for again := retries(); ctx.Err() == nil; {
		next, err := s.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			next = again.Step()
			s.Log.WarnContext(ctx, "the API server may not reach the webhooks", "error", err, "again", next)
		} else {
			again = retries()
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-time.After(next):
		}
	}
}

// once says when to look again.
func (s *Server) once(ctx context.Context) (next time.Duration, err error) {
	cert, bundle, err := s.Source.Read(ctx, s.Address.hosts())
	if err != nil {
		return 0, err // one that is served already lives on for a while
	}
	s.current.Store(&cert)
	next = renew
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

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
