// Package limits bounds what a client can hold of an HTTP server: how long headers, bodies, answers and idle connections take, and how
// large headers and bodies are.
package limits

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// Limits are those of one listener.
type Limits struct {
	// Header is how long a client may take over the handshake and over the headers of a request, Body how long over its body.
	Header, Body time.Duration
	// Answer is how long a client may take to read an answer, the time included that the answer takes to be made. Event streams set a
	// deadline of their own for each event.
	Answer time.Duration
	// Idle is how long a connection may be without a request.
	Idle time.Duration
	// HeaderBytes and BodyBytes are how large headers and a body may be.
	HeaderBytes int
	BodyBytes   int64
}

// Default are the limits of a listener that has no reason for others. An answer may take twice as long as the command line waits for one,
// and a body of 4 MiB is ten times that of a plan of 1,000 items.
var Default = Limits{
	Header: 10 * time.Second, Body: 30 * time.Second, Answer: 2 * time.Minute, Idle: 2 * time.Minute,
	HeaderBytes: 64 << 10, BodyBytes: 4 << 20,
}

// Server serves the handler within the limits.
func (l Limits) Server(handler http.Handler) *http.Server {
	return &http.Server{Handler: l.bodies(handler), ReadHeaderTimeout: l.Header, WriteTimeout: l.Answer, IdleTimeout: l.Idle,
		MaxHeaderBytes: l.HeaderBytes}
}

// bodies bounds bodies in size and time, those included that the handler doesn't read. http.Server.ReadTimeout would do so too, but it
// would also end the context of every request that takes longer, event streams above all.
func (l Limits) bodies(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody {
			control := http.NewResponseController(w)
			_ = control.SetReadDeadline(time.Now().Add(l.Body)) // only a recorder of a test can't
			r.Body = &boundedBody{ReadCloser: http.MaxBytesReader(w, r.Body, l.BodyBytes), control: control}
		}
		next.ServeHTTP(w, r)
	})
}

// boundedBody takes the deadline away once the body is there: afterwards the server reads on only to learn that the client is gone.
type boundedBody struct {
	io.ReadCloser
	control *http.ResponseController
}

func (b *boundedBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	if errors.Is(err, io.EOF) {
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}
