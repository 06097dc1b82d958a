package codec

import (
	"net/http"
	"net/url"
	"strings"

	"go.temporal.io/sdk/converter"
)

// HandlerOptions configure who may decrypt payloads.
type HandlerOptions struct {
	// Origin is the Temporal UI's base URL. Of all web pages, only its pages are served.
	Origin string
	// Authenticate returns why a request is refused; nil: all requests are accepted.
	Authenticate func(*http.Request) error
}

// NewHandler serves POST /encode and POST /decode like Temporal's remote codecs
// (https://docs.temporal.io/codec-server), and browsers' CORS preflight requests.
func NewHandler(keys *Keys, o HandlerOptions) http.Handler {
	opened := converter.NewPayloadCodecHTTPHandler(New(keys))
	origin := originOf(o.Origin)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asking := r.Header.Get("Origin"); asking != "" {
			if asking != origin {
				http.Error(w, "requests from pages of "+asking+" are refused: only the Temporal UI at "+origin+
					" (--temporal-ui) may ask", http.StatusForbidden)
				return
			}
			allow(w.Header(), origin)
		}
		if r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		if o.Authenticate != nil {
			if err := o.Authenticate(r); err != nil {
				http.Error(w, err.Error(), http.StatusUnauthorized)
				return
			}
		}
		opened.ServeHTTP(w, r)
	})
}

// allow sets the CORS headers (https://fetch.spec.whatwg.org/#http-cors-protocol), also for a page on a public address
// when this server is on a private one (https://wicg.github.io/private-network-access).
func allow(h http.Header, origin string) {
	h.Set("Access-Control-Allow-Origin", origin)
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Allow-Methods", "POST, OPTIONS")
	h.Set("Access-Control-Allow-Headers", "Content-Type, X-Namespace, Authorization")
	h.Set("Access-Control-Allow-Credentials", "true")
	h.Set("Access-Control-Allow-Private-Network", "true")
}

// originOf returns the Origin header that browsers send for a URL.
func originOf(base string) string {
	parsed, err := url.Parse(base)
	if err != nil {
		return ""
	}
	origin := strings.ToLower(parsed.Scheme + "://" + parsed.Host)
	// browsers omit the default port
	return strings.TrimSuffix(origin, map[string]string{"http": ":80", "https": ":443"}[parsed.Scheme])
}
