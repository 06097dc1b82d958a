// Package apiclient talks to the engine's HTTP API: it sends requests, takes answers apart and turns what is no success into errors
// that say what to do.
package apiclient

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/cli/version"
)

const (
	// dialTimeout is how long a connection may take, answerTimeout how long an answer may take to begin: executing a plan checks it
	// against every cluster first.
	dialTimeout   = 5 * time.Second
	answerTimeout = 60 * time.Second
	// PageSize is how much is asked for at once where everything is wanted.
	PageSize = 500
)

// NewClient is a client of the engine that the settings name, with the credentials that they name.
func NewClient(s settings.Settings) (*client.Client, error) {
	encryption, err := TLS(s)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(s.API, "http://") && (s.APICertFile != "" || s.APICAFile != "") {
		return nil, fmt.Errorf("--api-cert-file and --api-ca-file are for TLS, and %s is without: name the engine with https://", s.API)
	}
	token, err := readToken(s.APITokenFile)
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = (&net.Dialer{Timeout: dialTimeout}).DialContext
	transport.ResponseHeaderTimeout = answerTimeout
	transport.TLSClientConfig = encryption
	caller := &Caller{Address: s.API, Token: token, HTTP: &http.Client{Transport: transport}}
	return client.NewClient(s.API, client.WithHTTPClient(caller))
}

// Caller sends requests and turns whatever is not a success into an error that says what to do: *problemError when the API says why,
// *unreachableError when it does not answer, *strangerError when something else answers in its place.
type Caller struct {
	Address string
	// Token is what the engine asks for; "": nothing.
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
		request.Header.Set("Slipway-Via", string(client.FrontDoorCLI)) // recorded with what somebody decides
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
	if !strings.HasPrefix(response.Header.Get("Content-Type"), "application/problem+json") || json.Unmarshal(body, &problem.Problem) != nil {
		if refused := kusciaRefusal(body); refused != nil {
			return nil, refused
		}
		return nil, strangerAt(c.Address, response)
	}
	problem.Detail = withoutFirst(problem.Detail, problem.Errors)
	return nil, problem
}

// Reply is an answer of the API, typed, and as it came.
type Reply[T any] struct {
	Value  T
	Raw    json.RawMessage
	Status int
}

// Read takes the answer of a call of the generated client apart.
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
		return Reply[T]{}, strangerAt(address, response)
	}
	return answer, nil
}

// ReadPage takes an answer that is one page of a list apart.
func ReadPage[T any](response *http.Response, err error) (items []T, next string, _ error) {
	page, err := Read[struct {
		Items      []T    `json:"items"`
		NextCursor string `json:"nextCursor"`
	}](response, err)
	return page.Value.Items, page.Value.NextCursor, err
}

// NoContent ends a call whose answer has no body.
func NoContent(response *http.Response, err error) error {
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// AllPages collects a list whose pages are followed until there are enough items; at most 0 means all.
func AllPages[T any](most int, page func(limit int, cursor *string) (items []T, next string, err error)) ([]T, error) {
	all := []T{}
	var cursor *string
	for {
		limit := PageSize
		if most > 0 {
			limit = min(limit, most-len(all))
		}
		items, next, err := page(limit, cursor)
		if err != nil {
			return nil, err
		}
		all = append(all, items...)
		if next == "" || (most > 0 && len(all) >= most) {
			return all, nil
		}
		if cursor != nil && *cursor == next {
			return nil, fmt.Errorf("the API answered the same page twice (cursor %q): report it as a mistake of the server", next)
		}
		cursor = &next
	}
}

// OutcomeUnknown says whether the request may have been carried out although there is no answer.
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

// JSONBody is the media type of what is sent.
const JSONBody = "application/json"

// YAMLBody is the content type of what is sent; JSON is read as well, since a document may be either.
const YAMLBody = "application/yaml"
