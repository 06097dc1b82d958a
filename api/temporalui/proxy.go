// Package temporalui publishes Temporal's Web UI behind the access rules of the HTTP API: Temporal's own server of the
// UI checks neither hosts nor credentials, and its pages can approve releases.
package temporalui

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"

	"slipway.io/slipway/api/auth"
	"slipway.io/slipway/api/problem"
)

// New returns a handler that forwards the requests that guard accepts to the Web UI at upstream.
func New(upstream string, guard auth.Guard, log *slog.Logger) (http.Handler, error) {
	target, err := url.Parse(upstream)
	if err != nil {
		return nil, err
	}
	if target.Path != "" && target.Path != "/" || target.RawQuery != "" {
		return nil, fmt.Errorf("%q has a path: name the server of the Web UI alone, as http://host:port", upstream)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { forward(r, target, guard.Token.Closed()) },
		FlushInterval: -1,
		ErrorHandler:  answerError(upstream, log),
		ErrorLog:      slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	return guard.Closing(proxy), nil
}

// forward addresses a request to the Web UI. The guard has checked the origin; the Web UI would compare it with the
// address that it is reached at itself.
func forward(r *httputil.ProxyRequest, target *url.URL, withToken bool) {
	r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = target.Scheme, target.Host, target.Host
	r.Out.Header.Del("Origin")
	if withToken { // it is the engine's, and with this header the Web UI does without its protection from other sites
		r.Out.Header.Del("Authorization")
	}
}

func answerError(upstream string, log *slog.Logger) func(http.ResponseWriter, *http.Request, error) {
	return func(w http.ResponseWriter, r *http.Request, err error) {
		if r.Context().Err() != nil && errors.Is(err, context.Canceled) {
			return // the browser has left the page
		}
		if _, is := errors.AsType[*http.MaxBytesError](err); is {
			tooLarge := problem.Of(err)
			http.Error(w, tooLarge.Detail, tooLarge.Status)
			return
		}
		log.Warn("Temporal's Web UI does not answer", "upstream", upstream, "path", r.URL.Path, "error", err)
		http.Error(w, "Temporal's Web UI does not answer (--temporal-ui-upstream): see the log of the engine",
			http.StatusBadGateway)
	}
}
