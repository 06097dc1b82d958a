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

// The pages of a list, as the API has them.
const (
	defaultLimit = 100
	maxLimit     = 500
)

// stall is how long the other side of a transfer may do nothing.
const stall = time.Minute

// HandlerOptions say how a store is served.
type HandlerOptions struct {
	// Authenticate refuses a request without the store's token. Downloads aren't asked: whoever knows the digest may have the bytes.
	Authenticate func(*http.Request) error
	Log          *slog.Logger
}

type handler struct {
	store *Store
	HandlerOptions
}

// NewHandler serves a store over HTTP, under /packages.
func NewHandler(store *Store, options HandlerOptions) http.Handler {
	h := &handler{store: store, HandlerOptions: options}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /packages/sha256/{digest}", h.get)
	mux.HandleFunc("PUT /packages/sha256/{digest}", h.guarded(h.put))
	mux.HandleFunc("DELETE /packages/sha256/{digest}", h.guarded(h.remove))
	mux.HandleFunc("POST /packages/sha256/{digest}/use", h.guarded(h.use))
	mux.HandleFunc("GET /packages", h.guarded(h.list))
	return mux
}

// guarded asks for the store's token, and refuses query parameters that the operation doesn't have.
func (h *handler) guarded(next func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := h.Authenticate(r); err != nil {
			w.Header().Set("WWW-Authenticate", `Bearer realm="slipway packages"`)
			answerProblem(w, http.StatusUnauthorized, err.Error())
			return
		}
		if err := next(w, r); err != nil {
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
	http.ServeContent(paced{w, http.NewResponseController(w)}, r, "", storedAt, file)
}

func (h *handler) put(w http.ResponseWriter, r *http.Request) error {
	digest, body := r.PathValue("digest"), pacedBody{r.Body, http.NewResponseController(w)}
	if err := onlyQuery(r.URL.Query()); err != nil {
		return err
	}
	if !ValidDigest(digest) {
		return badRequest("%q is no SHA-256: want 64 hexadecimal digits in lower case", digest)
	}
	found, err := h.store.Use(r.Context(), digest)
	if err == nil {
		if r.Header.Get("Expect") == "" {
			_, _ = io.Copy(io.Discard, body) // a client that sends at once doesn't read the answer before it has sent everything
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
	body.answerSoon()
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
	if err := onlyQuery(r.URL.Query()); err != nil {
		return err
	}
	if _, err := h.store.Use(r.Context(), r.PathValue("digest")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (h *handler) remove(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	if err := onlyQuery(query, "unusedSince"); err != nil {
		return err
	}
	since, err := time.Parse(time.RFC3339Nano, query.Get("unusedSince"))
	if err != nil {
		return badRequest("unusedSince %q is no time as RFC 3339 has it: say since when nobody may have used the package", query.Get("unusedSince"))
	}
	if err := h.store.Delete(r.Context(), r.PathValue("digest"), since); err != nil {
		return err
	}
	h.Log.InfoContext(r.Context(), "package deleted", "sha256", r.PathValue("digest"), "unusedSince", since)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (h *handler) list(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	if err := onlyQuery(query, "limit", "after"); err != nil {
		return err
	}
	limit := defaultLimit
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

// onlyQuery refuses parameters that would be ignored.
func onlyQuery(query url.Values, known ...string) error {
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
	status, said := statusOf(err), err.Error()
	if status == http.StatusInternalServerError || status == http.StatusInsufficientStorage {
		h.Log.ErrorContext(r.Context(), "the package store could not answer", "method", r.Method, "path", r.URL.Path, "error", err)
	}
	switch status {
	case http.StatusInternalServerError:
		said = "the store could not answer: see its log" // the error names folders of the machine, or a bucket
	case http.StatusInsufficientStorage:
		said = "the store is full: delete packages that nobody uses, or give it more room"
	}
	answerProblem(w, status, said)
}

func statusOf(err error) int {
	var malformed requestError
	var onDisk *os.PathError
	switch {
	case errors.As(err, &malformed):
		return http.StatusBadRequest
	case errors.Is(err, ErrAbsent):
		return http.StatusNotFound
	case errors.Is(err, ErrUsed):
		return http.StatusConflict
	case errors.Is(err, ErrTooLarge):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, ErrWrongBytes):
		return http.StatusUnprocessableEntity
	case errors.Is(err, ErrFull):
		return http.StatusInsufficientStorage
	case errors.Is(err, ErrBusy):
		return http.StatusServiceUnavailable
	case errors.As(err, &onDisk):
		return http.StatusInternalServerError
	case errors.Is(err, os.ErrDeadlineExceeded):
		return http.StatusRequestTimeout
	case errors.Is(err, io.ErrUnexpectedEOF):
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

// typeProblem is the media type of errors, as the engine's API has it. headerStore tells those of a store from others.
const (
	typeProblem = "application/problem+json"
	headerStore = "Slipway-Package-Store"
)

func answerProblem(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", typeProblem)
	w.Header().Set(headerStore, "true")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(client.Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail})
}

func answerJSON(w http.ResponseWriter, status int, answer any) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // a client that is gone has nobody to be told
	return nil
}

// paced is an answer that may take as long as it goes on: the time for one of the listener is for short ones.
type paced struct {
	http.ResponseWriter
	control *http.ResponseController
}

func (p paced) Write(chunk []byte) (int, error) {
	_ = p.control.SetWriteDeadline(time.Now().Add(stall)) // only a recorder of a test can't
	return p.ResponseWriter.Write(chunk)
}

// pacedBody is a request that may take as long as it goes on.
type pacedBody struct {
	io.Reader
	control *http.ResponseController
}

func (p pacedBody) Read(into []byte) (int, error) {
	_ = p.control.SetReadDeadline(time.Now().Add(stall))
	p.answerSoon()
	return p.Reader.Read(into)
}

// answerSoon begins the time that the answer may take.
func (p pacedBody) answerSoon() { _ = p.control.SetWriteDeadline(time.Now().Add(stall)) }
