package packages

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"slipway.io/slipway/api/client"
)

const (
	dialTimeout = 5 * time.Second
	// continueTimeout limits how long the store may take to accept or refuse an upload before its body is sent.
	// answerTimeout limits the time until a response begins: at the end of an upload the store syncs all of it to disk.
	continueTimeout = 10 * time.Second
	answerTimeout   = 5 * time.Minute
	// errorBytes limits how much of an error response is read.
	errorBytes = 64 << 10
)

// Client accesses a store over HTTP.
type Client struct {
	base  string
	token func() string
	api   *client.Client
}

// NewClient returns a client of the store under a base URL. token and roots, the CAs of the store's certificate, are
// called before each request, so that they may change; nil: no token, and the CAs of the system.
func NewClient(base string, token func() string, roots func() *x509.CertPool) *Client {
	transport := &trusting{roots: roots}
	c := &Client{base: strings.TrimRight(base, "/"), token: token}
	c.api = &client.Client{Server: c.base + "/", RequestEditors: []client.RequestEditorFn{c.authorize},
		Client: &http.Client{
			Transport: transport,
			// A store never redirects; the token and the bytes must not go to another server.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}}
	return c
}

// trusting sends requests to a store with a certificate of the current CAs.
type trusting struct {
	roots func() *x509.CertPool

	mu      sync.Mutex
	last    *x509.CertPool
	current *http.Transport
}

// RoundTrip sends a request. Connections that were made with other CAs are not used again.
func (t *trusting) RoundTrip(r *http.Request) (*http.Response, error) {
	return t.transport().RoundTrip(r)
}

func (t *trusting) transport() *http.Transport {
	var roots *x509.CertPool
	if t.roots != nil {
		roots = t.roots()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current != nil && roots == t.last {
		return t.current
	}
	if t.current != nil {
		t.current.CloseIdleConnections()
	}
	next := http.DefaultTransport.(*http.Transport).Clone()
	next.DialContext = (&net.Dialer{Timeout: dialTimeout}).DialContext
	next.ExpectContinueTimeout, next.ResponseHeaderTimeout = continueTimeout, answerTimeout
	next.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	t.last, t.current = roots, next
	return next
}

func (c *Client) authorize(_ context.Context, r *http.Request) error {
	if c.token == nil {
		return nil
	}
	if token := c.token(); token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return nil
}

// URL returns the address of a package. Downloads need no token, and the address does not expire.
func (c *Client) URL(digest string) string { return c.base + "/packages/sha256/" + digest }

// Use records that a package is used now, and reports whether the store has it.
func (c *Client) Use(ctx context.Context, digest string) (bool, error) {
	err := c.finish(c.api.UsePackage(ctx, digest))
	if errors.Is(err, ErrAbsent) {
		return false, nil
	}
	return err == nil, err
}

// Put stores a package of that size. Its bytes are not sent if the store already has it.
func (c *Client) Put(ctx context.Context, digest string, content io.Reader, size int64) error {
	return c.finish(c.api.PutPackageWithBody(ctx, digest, "application/octet-stream", nil,
		func(_ context.Context, r *http.Request) error {
			r.Header.Set("Expect", "100-continue") // the store can refuse before the body is sent
			r.ContentLength, r.Body = size, io.NopCloser(content)
			if size == 0 {
				r.Body = http.NoBody
			}
			return nil
		}))
}

// List returns one page of the packages behind after, ordered by digest. next is the value of after for the next page,
// "" on the last one.
func (c *Client) List(ctx context.Context, limit int, after string) (items []Package, next string, err error) {
	parameters := &client.ListPackagesParams{Limit: &limit}
	if after != "" {
		parameters.After = &after
	}
	response, err := c.checkResponse(c.api.ListPackages(ctx, parameters))
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	var page client.StoredPackageList
	if err := json.NewDecoder(response.Body).Decode(&page); err != nil {
		return nil, "", fmt.Errorf("the package store %s answered with an invalid list: %w", c.base, err)
	}
	return page.Items, page.Next, nil
}

// Delete removes a package that was neither stored nor used since unusedSince. It returns ErrUsed if it was, ErrAbsent
// if the store doesn't have it.
func (c *Client) Delete(ctx context.Context, digest string, unusedSince time.Time) error {
	return c.finish(c.api.DeletePackage(ctx, digest, &client.DeletePackageParams{UnusedSince: unusedSince}))
}

// Error is an error response of the store.
type Error struct {
	Store  string
	Status int
	Detail string
	// fromStore means that a package store sent the response: the 404 of another server does not mean that a package is
	// absent.
	fromStore bool
}

func (e *Error) Error() string {
	return fmt.Sprintf("the package store %s answered %d %s: %s", e.Store, e.Status, http.StatusText(e.Status),
		e.Detail)
}

// Is maps a store's status to the package's errors.
func (e *Error) Is(target error) bool {
	return e.fromStore && slices.Contains(answers, answered{target, e.Status})
}

// checkResponse returns a successful response, or an error with the reason.
func (c *Client) checkResponse(response *http.Response, err error) (*http.Response, error) {
	if err != nil {
		return nil, fmt.Errorf("the package store %s does not answer: %w", c.base, err)
	}
	if response.StatusCode/100 == 2 {
		return response, nil
	}
	defer response.Body.Close()
	refusal := &Error{Store: c.base, Status: response.StatusCode, Detail: "is this the address of a package store?",
		fromStore: response.Header.Get(headerStore) != ""}
	var problem client.Problem
	switch {
	case !refusal.fromStore:
	case response.StatusCode == http.StatusUnauthorized:
		refusal.Detail = tokenHint(response.Request)
	case json.NewDecoder(io.LimitReader(response.Body, errorBytes)).Decode(&problem) == nil:
		refusal.Detail = problem.Detail
	}
	return nil, refusal
}

// tokenHint says what to do about a request that was refused for its token. The store's own message names the header,
// which the user does not set.
func tokenHint(sent *http.Request) string {
	if sent.Header.Get("Authorization") == "" {
		return "it requires its token: name the token's file with --package-store-token-file (for slipway package " +
			"push also --token-file)"
	}
	return "the token is wrong: the file of --package-store-token-file has to contain what the store's " +
		"--package-token-file contains"
}

// finish ends a call whose response body is not needed.
func (c *Client) finish(response *http.Response, err error) error {
	response, err = c.checkResponse(response, err)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, errorBytes)) // lets the connection be reused
	return response.Body.Close()
}
