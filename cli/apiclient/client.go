// Package apiclient calls the engine's HTTP API. It sends requests, decodes responses and turns unsuccessful ones into
// errors that say what to do.
package apiclient

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"slipway.io/slipway/api/auth"
	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/cli/version"
	"slipway.io/slipway/reload"
)

const (
	// dialTimeout bounds connecting. answerTimeout bounds the wait for response headers: running a plan first checks it
	// against every cluster.
	dialTimeout   = 5 * time.Second
	answerTimeout = 60 * time.Second
	// PageSize is the number of items per request when a complete list is read.
	PageSize = 500
)

// NewClient returns a client of the engine in --api, with the credentials of the settings.
func NewClient(s settings.Settings) (*client.Client, error) {
	encryption, err := TLS(s)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(s.API, "http://") && (s.APICertFile != "" || s.APICAFile != "") {
		return nil, fmt.Errorf("--api-cert-file and --api-ca-file require TLS, but the engine's address is %s: use "+
			"an https:// address", s.API)
	}
	var token auth.Token
	if s.APITokenFile != "" {
		if token, err = auth.ReadToken("--api-token-file", s.APITokenFile); err != nil {
			return nil, err
		}
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = (&net.Dialer{Timeout: dialTimeout}).DialContext
	transport.ResponseHeaderTimeout = answerTimeout
	transport.TLSClientConfig = encryption
	caller := &Caller{Address: s.API, Token: string(token), HTTP: &http.Client{Transport: transport}}
	return client.NewClient(s.API, client.WithHTTPClient(caller))
}

// TLS returns the CA that verifies the engine's certificate and the client certificate to present.
func TLS(s settings.Settings) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if (s.APICertFile == "") != (s.APIKeyFile == "") {
		return nil, errors.New("--api-cert-file and --api-key-file must be set together")
	}
	if s.APICertFile != "" {
		own, err := tls.LoadX509KeyPair(s.APICertFile, s.APIKeyFile)
		if err != nil {
			return nil, fmt.Errorf("--api-cert-file: cannot load the client certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{own}
	}
	if s.APICAFile != "" {
		var err error
		if config.RootCAs, err = reload.ReadCA("the CA of the engine", s.APICAFile); err != nil {
			return nil, fmt.Errorf("--api-ca-file: %w", err)
		}
	}
	return config, nil
}

// Caller sends requests and turns every unsuccessful response into an error that says what to do: *ProblemError for the
// API's own errors, *UnreachableError when the API does not respond, unexpectedResponseError when another server
// responds at its address.
type Caller struct {
	Address string
	// Token is the engine's bearer token; "" sends none.
	Token string
	HTTP  *http.Client
}

// Do implements the generated client's HttpRequestDoer.
func (c *Caller) Do(request *http.Request) (*http.Response, error) {
	request.Header.Set("User-Agent", version.UserAgent())
	if c.Token != "" {
		request.Header.Set("Authorization", "Bearer "+c.Token)
	}
	if request.Method != http.MethodGet {
		request.Header.Set("Slipway-Via", string(client.FrontDoorCLI)) // recorded with the actor's decision
	}
	response, err := c.HTTP.Do(request)
	if err != nil {
		if request.Context().Err() != nil {
			return nil, err
		}
		return nil, &UnreachableError{Address: c.Address, Cause: err}
	}
	if response.StatusCode < 300 {
		return response, nil
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 16<<20))
	if err != nil {
		return nil, &UnreachableError{Address: c.Address, Cause: err}
	}
	problem := &ProblemError{}
	if !strings.HasPrefix(response.Header.Get("Content-Type"), "application/problem+json") ||
		json.Unmarshal(body, &problem.Problem) != nil {
		return nil, newUnexpectedResponse(c.Address, response)
	}
	problem.Detail = withoutFirstError(problem.Detail, problem.Errors)
	return nil, problem
}

// Reply is a response of the API, decoded and raw.
type Reply[T any] struct {
	Value  T
	Raw    json.RawMessage
	Status int
}

// Read decodes the response of a call of the generated client.
func Read[T any](response *http.Response, err error) (Reply[T], error) {
	if err != nil {
		return Reply[T]{}, err
	}
	defer response.Body.Close()
	address := response.Request.URL.Scheme + "://" + response.Request.URL.Host
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return Reply[T]{}, &UnreachableError{Address: address, Cause: err}
	}
	answer := Reply[T]{Raw: body, Status: response.StatusCode}
	if err := json.Unmarshal(body, &answer.Value); err != nil {
		return Reply[T]{}, newUnexpectedResponse(address, response)
	}
	return answer, nil
}

// ReadAll reads pages of a list until it has enough items. most 0 reads all pages.
func ReadAll[T any](ctx context.Context, api *client.Client, list Request, most int) ([]T, error) {
	all := []T{}
	list.Query = maps.Clone(list.Query)
	if list.Query == nil {
		list.Query = url.Values{}
	}
	for {
		limit := PageSize
		if most > 0 {
			limit = min(limit, most-len(all))
		}
		list.Query.Set("limit", strconv.Itoa(limit))
		page, err := Read[struct {
			Items      []T    `json:"items"`
			NextCursor string `json:"nextCursor"`
		}](list.Send(ctx, api))
		if err != nil {
			return nil, err
		}
		all = append(all, page.Value.Items...)
		next := page.Value.NextCursor
		if next == "" || (most > 0 && len(all) >= most) {
			return all, nil
		}
		if list.Query.Get("cursor") == next {
			return nil, fmt.Errorf(
				"the API returned the same page twice (cursor %q): report this as a bug of the server", next)
		}
		list.Query.Set("cursor", next)
	}
}

// OutcomeUnknown reports whether the server may have executed a request that returned err: it failed with status 5xx,
// or its response was lost.
func OutcomeUnknown(err error) bool {
	var problem *ProblemError
	var unreachable *UnreachableError
	switch {
	case errors.As(err, &problem):
		return problem.Status >= 500
	case errors.As(err, &unreachable):
		return !unreachable.neverSent()
	}
	return false
}

// JSONBody is the content type of JSON request bodies.
const JSONBody = "application/json"

// YAMLBody is the content type of documents. The server accepts JSON under it too, because JSON is YAML.
const YAMLBody = "application/yaml"
