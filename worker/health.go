package worker

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// probeTimeout bounds the check of one request.
const probeTimeout = 3 * time.Second

// HealthHandler serves /healthz, /readyz and /metrics for a process that serves nothing else. check names its one
// dependency, and probe returns an error while that is unavailable.
func HealthHandler(check string, probe func(ctx context.Context) error, registry *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), probeTimeout)
		defer cancel()
		answerReady(w, check, probe(ctx))
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return mux
}

func answerReady(w http.ResponseWriter, check string, unavailable error) {
	type answer struct {
		Name    string `json:"name"`
		OK      bool   `json:"ok"`
		Message string `json:"message,omitempty"`
	}
	a := answer{Name: check, OK: unavailable == nil}
	w.Header().Set("Content-Type", "application/json")
	if unavailable != nil {
		a.Message = unavailable.Error()
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(struct {
		Ready  bool     `json:"ready"`
		Checks []answer `json:"checks"`
	}{a.OK, []answer{a}})
}
