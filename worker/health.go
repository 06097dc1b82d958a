package worker

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Check is one dependency of a process: its name, and a probe that says what is wrong.
type Check struct {
	Name  string
	Probe func(ctx context.Context) error
}

// Health answers /healthz, /readyz and /metrics for a process that serves nothing else.
type Health struct {
	server   *http.Server
	listener net.Listener
	log      *slog.Logger
}

// probeTimeout bounds all checks of one request together.
const probeTimeout = 3 * time.Second

// NewHealth listens on address, host:port.
func NewHealth(address string, checks []Check, registry *prometheus.Registry, log *slog.Logger) (*Health, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { answerReady(w, r, checks) })
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return &Health{server: &http.Server{Handler: mux, ReadHeaderTimeout: probeTimeout}, listener: listener, log: log}, nil
}

// Start serves in the background.
func (h *Health) Start(context.Context) error {
	go func() {
		if err := h.server.Serve(h.listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
			h.log.Error("health and metrics are not served any more", "error", err)
		}
	}()
	h.log.Info("health and metrics", "address", h.listener.Addr().String())
	return nil
}

// Stop ends the listener.
func (h *Health) Stop(ctx context.Context) error { return h.server.Shutdown(ctx) }

func answerReady(w http.ResponseWriter, r *http.Request, checks []Check) {
	ctx, cancel := context.WithTimeout(r.Context(), probeTimeout)
	defer cancel()
	type answer struct {
		Name    string `json:"name"`
		OK      bool   `json:"ok"`
		Message string `json:"message,omitempty"`
	}
	body := struct {
		Ready  bool     `json:"ready"`
		Checks []answer `json:"checks"`
	}{Ready: true}
	for _, c := range checks {
		a := answer{Name: c.Name, OK: true}
		if err := c.Probe(ctx); err != nil {
			a.OK, a.Message, body.Ready = false, err.Error(), false
		}
		body.Checks = append(body.Checks, a)
	}
	w.Header().Set("Content-Type", "application/json")
	if !body.Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(body)
}
