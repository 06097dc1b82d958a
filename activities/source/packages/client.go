package packages

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"slipway.io/slipway/api/client"
)

const (
	dialTimeout = 5 * time.Second
	// continueTimeout is how long the store may take to say whether it wants the bytes, answerTimeout how long an answer may take to begin:
	// at the end of an upload the disk has to have all of it.
	continueTimeout = 10 * time.Second
	answerTimeout   = 5 * time.Minute
	// errorBytes is how much of an error is read.
	errorBytes = 64 << 10
)

// Client talks to a store over HTTP.
type Client struct {
	base  string
	token func() string
	api   *client.Client
}

// NewClient is a client of the store under a base URL. token is asked before each request that needs one, so that it may change; nil: none.
func NewClient(base string, token func() string) *Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = (&net.Dialer{Timeout: dialTimeout}).DialContext
	transport.ExpectContinueTimeout, transport.ResponseHeaderTimeout = continueTimeout, answerTimeout
	c := &Client{base: strings.TrimRight(base, "/"), token: token}
	c.api = &client.Client{Server: c.base + "/", RequestEditors: []client.RequestEditorFn{c.authorize}, Client: &http.Client{
		Transport: transport,
		// Whoever redirects is no store; the token and the bytes are not for others.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	return c
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

// Base is the URL under which the store's addresses are.
func (c *Client) Base() string { return c.base }

// URL is the address of a package, which needs no token and doesn't expire.
func (c *Client) URL(digest string) string { return c.base + "/packages/sha256/" + digest }

// Has says whether the store has a package.
func (c *Client) Has(ctx context.Context, digest string) (bool, error) {
	return found(c.done(c.api.HeadPackage(ctx, digest)))
}

// Use notes that a package is used now, and says whether the store has it.
func (c *Client) Use(ctx context.Context, digest string) (bool, error) {
	return found(c.done(c.api.UsePackage(ctx, digest)))
}

// found makes an answer out of the error of a package that the store doesn't have.
func found(err error) (bool, error) {
	if errors.Is(err, ErrAbsent) {
		return false, nil
	}
	return err == nil, err
}

// Put stores a package of that size. One that is there already is not sent.
func (c *Client) Put(ctx context.Context, digest string, content io.Reader, size int64) error {
	return c.done(c.api.PutPackageWithBody(ctx, digest, "application/octet-stream", nil, func(_ context.Context, r *http.Request) error {
		r.Header.Set("Expect", "100-continue") // a refusal comes before the bytes go out
		r.ContentLength, r.Body = size, io.NopCloser(content)
		if size == 0 {
			r.Body = http.NoBody
		}
		return nil
	}))
}

// List is one page of the packages after a digest, in the order of their digests; next is what to go on after, "" at the end.
func (c *Client) List(ctx context.Context, limit int, after string) (items []Package, next string, err error) {
	parameters := &client.ListPackagesParams{Limit: &limit}
	if after != "" {
		parameters.After = &after
	}
	response, err := c.answer(c.api.ListPackages(ctx, parameters))
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	var page client.StoredPackageList
	if err := json.NewDecoder(response.Body).Decode(&page); err != nil {
		return nil, "", fmt.Errorf("the package store %s answered something that is no list: %w", c.base, err)
	}
	return page.Items, page.Next, nil
}

// Delete removes a package that was neither stored nor used since that time. If it was, the error is ErrUsed; if the store doesn't have it,
// ErrAbsent.
func (c *Client) Delete(ctx context.Context, digest string, unusedSince time.Time) error {
	return c.done(c.api.DeletePackage(ctx, digest, &client.DeletePackageParams{UnusedSince: unusedSince}))
}

// Error is a refusal of the store.
type Error struct {
	Store  string
	Status int
	Detail string
	// own says that the answer is a store's: another server's 404 says nothing about a package.
	own bool
}

func (e *Error) Error() string {
	return fmt.Sprintf("the package store %s answered %d %s: %s", e.Store, e.Status, http.StatusText(e.Status), e.Detail)
}

// Is recognises the errors of the store behind an answer.
func (e *Error) Is(target error) bool {
	if !e.own {
		return false
	}
	switch e.Status {
	case http.StatusNotFound:
		return target == ErrAbsent
	case http.StatusConflict:
		return target == ErrUsed
	case http.StatusUnprocessableEntity:
		return target == ErrWrongBytes
	case http.StatusRequestEntityTooLarge:
		return target == ErrTooLarge
	case http.StatusInsufficientStorage:
		return target == ErrFull
	}
	return false
}

// answer is a success, or an error that says why there is none.
func (c *Client) answer(response *http.Response, err error) (*http.Response, error) {
	if err != nil {
		return nil, fmt.Errorf("the package store %s does not answer: %w", c.base, err)
	}
	if response.StatusCode/100 == 2 {
		return response, nil
	}
	defer response.Body.Close()
	refusal := &Error{Store: c.base, Status: response.StatusCode, Detail: "is this the address of a package store?",
		own: response.Header.Get(headerStore) != ""}
	var problem client.Problem
	switch {
	case !refusal.own:
	case response.StatusCode == http.StatusUnauthorized:
		refusal.Detail = wantsToken(response.Request)
	case json.NewDecoder(io.LimitReader(response.Body, errorBytes)).Decode(&problem) == nil:
		refusal.Detail = problem.Detail
	}
	return nil, refusal
}

// wantsToken says what to do about a request that the store didn't take for its owner's. The store itself tells others which header to send.
func wantsToken(sent *http.Request) string {
	if sent.Header.Get("Authorization") == "" {
		return "it asks for its token: name the token's file with --package-store-token-file (for slipway package push also --token-file)"
	}
	return "the token is wrong: the file of --package-store-token-file has to contain what the store's --package-token-file contains"
}

// done ends a call whose answer says nothing but that it is one.
func (c *Client) done(response *http.Response, err error) error {
	response, err = c.answer(response, err)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, errorBytes)) // so that the connection is used again
	return response.Body.Close()
}
