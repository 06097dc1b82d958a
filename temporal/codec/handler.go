package codec

import (
	"net/http"
	"net/url"
	"strings"

	"go.temporal.io/sdk/converter"
)

// HandlerOptions say who may have payloads opened.
type HandlerOptions struct {
	// Origin is the Temporal UI's base URL: its pages alone, of all that a browser shows, are answered.
	Origin string
	// Authenticate says why a request is refused; nil: none is.
	Authenticate func(*http.Request) error
}

// NewHandler answers POST /encode and POST /decode as Temporal's remote codecs do (https://docs.temporal.io/codec-server), and the questions that
// browsers ask before.
func NewHandler(keys *Keys, o HandlerOptions) http.Handler {
	opened := converter.NewPayloadCodecHTTPHandler(New(keys))
	origin := originOf(o.Origin)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asking := r.Header.Get("Origin"); asking != "" {
			if asking != origin {
				http.Error(w, "requests from pages of "+asking+" are refused: only the Temporal UI at "+origin+" (--temporal-ui) may ask", http.StatusForbidden)
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

// allow answers a browser that asks for a page of another site (https://fetch.spec.whatwg.org/#http-cors-protocol), also where that page is of a public
// address and this server is not (https://wicg.github.io/private-network-access).
func allow(h http.Header, origin string) {
	h.Set("Access-Control-Allow-Origin", origin)
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Allow-Methods", "POST, OPTIONS")
	h.Set("Access-Control-Allow-Headers", "Content-Type, X-Namespace, Authorization")
	h.Set("Access-Control-Allow-Credentials", "true")
	h.Set("Access-Control-Allow-Private-Network", "true")
}

// originOf is a URL as a browser names it in Origin.
func originOf(base string) string {
	parsed, err := url.Parse(base)
	if err != nil {
		return ""
	}
	origin := strings.ToLower(parsed.Scheme + "://" + parsed.Host)
	return strings.TrimSuffix(origin, map[string]string{"http": ":80", "https": ":443"}[parsed.Scheme]) // browsers leave the usual port out
}
