package packages

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"time"

	"slipway.io/slipway/api/client"
)

// The page sizes of a list, as in the API.
const (
	defaultLimit = 100
	maxLimit     = 500
)

// stallTimeout is how long the client may make no progress during a transfer.
const stallTimeout = time.Minute

// HandlerOptions configure how a store is served.
type HandlerOptions struct {
	// Admit refuses a request that may reach no part of the store.
	Admit func(*http.Request) error
	// Authenticate refuses a request without the store's token. Downloads need none: the digest is enough.
	Authenticate func(*http.Request) error
	Log          *slog.Logger
}

// refusal is an error of HandlerOptions that says how it is answered.
type refusal interface {
	error
	HTTPStatus() int
	// RetryAfter is the header of that name; "": none.
	RetryAfter() string
}

type handler struct {
	store *Store
	HandlerOptions
}

// NewHandler returns a handler that serves a store under /packages.
func NewHandler(store *Store, options HandlerOptions) http.Handler {
	h := &handler{store: store, HandlerOptions: options}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /packages/sha256/{digest}", h.get)
	mux.HandleFunc("PUT /packages/sha256/{digest}", h.authenticated(h.put))
	mux.HandleFunc("DELETE /packages/sha256/{digest}", h.authenticated(h.remove, "unusedSince"))
	mux.HandleFunc("POST /packages/sha256/{digest}/use", h.authenticated(h.use))
	mux.HandleFunc("GET /packages", h.authenticated(h.list, "limit", "after"))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := h.Admit(r); err != nil {
			h.answerError(w, r, err)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// authenticated requires the store's token for a request with these query parameters, and answers with the error that
// next returns.
func (h *handler) authenticated(next func(http.ResponseWriter, *http.Request) error,
	parameters ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := h.Authenticate(r); err != nil {
			h.answerError(w, r, err)
			return
		}
		err := onlyQuery(r.URL.Query(), parameters)
		if err == nil {
			err = next(w, r)
		}
		if err != nil {
			h.answerError(w, r, err)
		}
	}
}

func (h *handler) get(w http.ResponseWriter, r *http.Request) {
	digest := r.PathValue("digest")
	file, storedAt, err := h.store.Open(r.Context(), digest)
	if err != nil {
		h.answerError(w, r, err)
		return
	}
	defer file.Close()
	header := w.Header()
	header.Set("Content-Type", "application/octet-stream")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "public, max-age=31536000, immutable")
	header.Set("ETag", `"`+digest+`"`)
	http.ServeContent(deadlineWriter{w, http.NewResponseController(w)}, r, "", storedAt, file)
}

func (h *handler) put(w http.ResponseWriter, r *http.Request) error {
	digest, body := r.PathValue("digest"), deadlineBody{r.Body, http.NewResponseController(w)}
	if !ValidDigest(digest) {
		return badRequest("%q is no SHA-256: want 64 hexadecimal digits in lower case", digest)
	}
	found, err := h.store.Use(r.Context(), digest)
	if err == nil {
		if r.Header.Get("Expect") == "" {
			// a client that does not wait for 100 Continue reads the response only after it has sent the body
			_, _ = io.Copy(io.Discard, body)
		}
		return answerJSON(w, http.StatusOK, found)
	}
	if !errors.Is(err, ErrAbsent) {
		return err
	}
	if r.ContentLength > h.store.max {
		return h.store.tooLarge()
	}
	began := time.Now()
	found, created, err := h.store.Put(r.Context(), digest, body)
	body.renewWriteDeadline()
	if err != nil {
		return err
	}
	if !created {
		return answerJSON(w, http.StatusOK, found)
	}
	h.Log.InfoContext(r.Context(), "package stored", "sha256", digest, "bytes", found.Bytes, "took", time.Since(began))
	return answerJSON(w, http.StatusCreated, found)
}

func (h *handler) use(w http.ResponseWriter, r *http.Request) error {
	if _, err := h.store.Use(r.Context(), r.PathValue("digest")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (h *handler) remove(w http.ResponseWriter, r *http.Request) error {
	text := r.URL.Query().Get("unusedSince")
	since, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return badRequest("unusedSince %q is not an RFC 3339 time: set it to the time since which the package must "+
			"be unused", text)
	}
	if err := h.store.Delete(r.Context(), r.PathValue("digest"), since); err != nil {
		return err
	}
	h.Log.InfoContext(r.Context(), "package deleted", "sha256", r.PathValue("digest"), "unusedSince", since)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (h *handler) list(w http.ResponseWriter, r *http.Request) error {
	query, limit := r.URL.Query(), defaultLimit
	if text := query.Get("limit"); text != "" {
		var err error
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > maxLimit {
			return badRequest("limit %q is not a whole number from 1 to %d", text, maxLimit)
		}
	}
	found, next, err := h.store.List(r.Context(), limit, query.Get("after"))
	if err != nil {
		return err
	}
	return answerJSON(w, http.StatusOK, client.StoredPackageList{Items: found, Next: next})
}

// onlyQuery refuses unknown and repeated query parameters, which would be ignored.
func onlyQuery(query url.Values, known []string) error {
	for name, values := range query {
		switch {
		case !slices.Contains(known, name):
			return badRequest("%q is no query parameter of this address", name)
		case len(values) > 1:
			return badRequest("the query parameter %q is given more than once", name)
		}
	}
	return nil
}

type requestError string

func (e requestError) Error() string { return string(e) }

func badRequest(format string, args ...any) error { return requestError(fmt.Sprintf(format, args...)) }

func (h *handler) answerError(w http.ResponseWriter, r *http.Request, err error) {
	status, detail := statusOf(err), err.Error()
	if refused, is := errors.AsType[refusal](err); is {
		if after := refused.RetryAfter(); after != "" {
			w.Header().Set("Retry-After", after)
		}
		if status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", `Bearer realm="slipway packages"`)
		}
	}
	if status == http.StatusInternalServerError || status == http.StatusInsufficientStorage {
		h.Log.ErrorContext(r.Context(), "the package store could not answer", "method", r.Method, "path", r.URL.Path,
			"error", err)
	}
	switch status {
	case http.StatusInternalServerError:
		detail = "the store could not answer: see its log" // the error names folders of the machine, or a bucket
	case http.StatusInsufficientStorage:
		detail = "the store is full: delete unused packages, or give it more room"
	}
	answerProblem(w, status, detail)
}

// answered is an error of the store with the status that the server answers it with, and the client recognises it by.
type answered struct {
	err    error
	status int
}

var answers = []answered{{ErrAbsent, http.StatusNotFound}, {ErrUsed, http.StatusConflict},
	{ErrTooLarge, http.StatusRequestEntityTooLarge}, {ErrWrongBytes, http.StatusUnprocessableEntity},
	{ErrFull, http.StatusInsufficientStorage}, {ErrBusy, http.StatusServiceUnavailable},
	{ErrUploads, http.StatusServiceUnavailable}}

func statusOf(err error) int {
	for _, known := range answers {
		if errors.Is(err, known.err) {
			return known.status
		}
	}
	if refused, is := errors.AsType[refusal](err); is {
		return refused.HTTPStatus()
	}
	var malformed requestError
	var onDisk *os.PathError
	switch {
	case errors.As(err, &malformed):
		return http.StatusBadRequest
	case errors.As(err, &onDisk):
		return http.StatusInternalServerError
	case errors.Is(err, os.ErrDeadlineExceeded):
		return http.StatusRequestTimeout
	case errors.Is(err, io.ErrUnexpectedEOF):
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

// typeProblem is the media type of errors, as in the engine's API. The header headerStore marks those of a package
// store.
const (
	typeProblem = "application/problem+json"
	headerStore = "Slipway-Package-Store"
)

func answerProblem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", typeProblem)
	w.Header().Set(headerStore, "true")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(client.Problem{Type: "about:blank", Title: http.StatusText(status), Status: status,
		Detail: detail})
}

func answerJSON(w http.ResponseWriter, status int, answer any) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // an error here means that the client has disconnected
	return nil
}

// deadlineWriter renews the write deadline with each write: the server's own timeout is meant for short responses.
type deadlineWriter struct {
	http.ResponseWriter
	control *http.ResponseController
}

func (p deadlineWriter) Write(chunk []byte) (int, error) {
	_ = p.control.SetWriteDeadline(time.Now().Add(stallTimeout)) // only a test's response recorder does not support it
	return p.ResponseWriter.Write(chunk)
}

// deadlineBody renews the read deadline with each read.
type deadlineBody struct {
	io.Reader
	control *http.ResponseController
}

func (p deadlineBody) Read(into []byte) (int, error) {
	_ = p.control.SetReadDeadline(time.Now().Add(stallTimeout))
	p.renewWriteDeadline()
	return p.Reader.Read(into)
}

// renewWriteDeadline gives the response another stallTimeout, so that it does not expire during the upload.
func (p deadlineBody) renewWriteDeadline() {
	_ = p.control.SetWriteDeadline(time.Now().Add(stallTimeout))
}
