package worker

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Check is one dependency of a process: its name, and a probe that returns an error while it is unavailable.
type Check struct {
	Name  string
	Probe func(ctx context.Context) error
}

// probeTimeout bounds all checks of one request together.
const probeTimeout = 3 * time.Second

// HealthHandler serves /healthz, /readyz and /metrics for a process that serves nothing else.
func HealthHandler(checks []Check, registry *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { answerReady(w, r, checks) })
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return mux
}

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
