// Package limits bounds what a client can occupy of an HTTP server: the duration of headers, bodies, responses and idle
// connections, and the size of headers and bodies.
package limits

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// Limits are the limits of one listener.
type Limits struct {
	// Header is the time limit for the TLS handshake and the request headers, Body the one for the request body.
	Header, Body time.Duration
	// Answer is the time limit for a response, from the end of the request headers until the client has read it. Event
	// streams set their own deadline for each event.
	Answer time.Duration
	// Idle is how long a connection may remain without a request.
	Idle time.Duration
	// HeaderBytes and BodyBytes are the maximum sizes of headers and a body.
	HeaderBytes int
	BodyBytes   int64
}

// Default are the limits of a listener that needs no others. Answer is twice as long as the command line waits, and a
// body of 4 MiB is ten times the size of a plan with 1,000 items.
var Default = Limits{
	Header: 10 * time.Second, Body: 30 * time.Second, Answer: 2 * time.Minute, Idle: 2 * time.Minute,
	HeaderBytes: 64 << 10, BodyBytes: 4 << 20,
}

// Server returns an HTTP server that applies the limits to the handler.
func (l Limits) Server(handler http.Handler) *http.Server {
	return &http.Server{Handler: l.limitBodies(handler), ReadHeaderTimeout: l.Header, WriteTimeout: l.Answer,
		IdleTimeout: l.Idle, MaxHeaderBytes: l.HeaderBytes}
}

// limitBodies limits the size and duration of request bodies, including bodies that the handler does not read.
// http.Server.ReadTimeout would also end the context of every longer request, in particular of event streams.
func (l Limits) limitBodies(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody {
			control := http.NewResponseController(w)
			_ = control.SetReadDeadline(time.Now().Add(l.Body)) // only httptest.ResponseRecorder does not support it
			r.Body = &boundedBody{ReadCloser: http.MaxBytesReader(w, r.Body, l.BodyBytes), control: control}
		}
		next.ServeHTTP(w, r)
	})
}

// boundedBody removes the read deadline at the end of the body: afterwards the server reads only to notice that the
// client has disconnected.
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
