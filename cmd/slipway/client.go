package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"slipway.io/slipway/api/client"
	"slipway.io/slipway/cmd/slipway/settings"
)

const (
	// dialTimeout is how long a connection may take, answerTimeout how long an answer may take to begin: executing a plan checks it
	// against every cluster first.
	dialTimeout   = 5 * time.Second
	answerTimeout = 60 * time.Second
	// pageSize is how much is asked for at once where everything is wanted.
	pageSize = 500
)

// connect makes the client of the API that the command's settings name.
func connect(command *cobra.Command) (*client.Client, error) {
	values, err := loadSettings(command)
	if err != nil {
		return nil, err
	}
	return newClient(values.API)
}

// connectToWrite is connect for a command that changes something. A person who named no engine is told which one it will be.
func (a *app) connectToWrite(command *cobra.Command) (*client.Client, error) {
	values, provenance, err := settings.Load(command.Flags())
	if err != nil {
		return nil, &exitError{code: exitUsage, err: err}
	}
	chosen := slices.ContainsFunc(provenance.Entries, func(e settings.Entry) bool {
		return e.Name == "api" && e.Source.Kind != settings.FromDefault
	})
	if !chosen && a.errIsTerminal {
		a.printf(a.err, "engine: %s (the default; --api or SLIPWAY_API names another)\n", values.API)
	}
	return newClient(values.API)
}

func newClient(address string) (*client.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = (&net.Dialer{Timeout: dialTimeout}).DialContext
	transport.ResponseHeaderTimeout = answerTimeout
	caller := &caller{address: address, http: &http.Client{Transport: transport}}
	return client.NewClient(address, client.WithHTTPClient(caller))
}

// clientFlags adds the flags of a command that talks to the API.
func clientFlags(command *cobra.Command) { registerSettings(command, settings.Client) }

// caller sends requests and turns whatever is not a success into an error that says what to do: *problemError when the API says why,
// *unreachableError when it does not answer, *strangerError when something else answers in its place.
type caller struct {
	address string
	http    *http.Client
}

// Do implements the generated client's HttpRequestDoer.
func (c *caller) Do(request *http.Request) (*http.Response, error) {
	request.Header.Set("User-Agent", "slipway/"+thisBuild().Version)
	response, err := c.http.Do(request)
	if err != nil {
		if request.Context().Err() != nil {
			return nil, err
		}
		return nil, &unreachableError{address: c.address, cause: err}
	}
	if response.StatusCode < 300 {
		return response, nil
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 16<<20))
	if err != nil {
		return nil, &unreachableError{address: c.address, cause: err}
	}
	problem := &problemError{}
	if !strings.HasPrefix(response.Header.Get("Content-Type"), "application/problem+json") || json.Unmarshal(body, &problem.Problem) != nil {
		return nil, &strangerError{address: c.address, status: response.Status, contentType: response.Header.Get("Content-Type")}
	}
	return nil, problem
}

// reply is an answer of the API, typed, and as it came.
type reply[T any] struct {
	value  T
	raw    json.RawMessage
	status int
}

// read takes the answer of a call of the generated client apart.
func read[T any](response *http.Response, err error) (reply[T], error) {
	if err != nil {
		return reply[T]{}, err
	}
	defer response.Body.Close()
	address := response.Request.URL.Scheme + "://" + response.Request.URL.Host
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return reply[T]{}, &unreachableError{address: address, cause: err}
	}
	answer := reply[T]{raw: body, status: response.StatusCode}
	if err := json.Unmarshal(body, &answer.value); err != nil {
		return reply[T]{}, &strangerError{address: address, status: response.Status, contentType: response.Header.Get("Content-Type")}
	}
	return answer, nil
}

// noContent ends a call whose answer has no body.
func noContent(response *http.Response, err error) error {
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// allPages collects a list whose pages are followed until there are enough items; at most 0 means all.
func allPages[T any](most int, page func(limit int, cursor *string) (items []T, next string, err error)) ([]T, error) {
	all := []T{}
	var cursor *string
	for {
		limit := pageSize
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

// who says in whose name a command acts, and why.
type who struct {
	actor, reason string
}

func (w *who) flags(command *cobra.Command) {
	command.Flags().StringVar(&w.actor, "actor", "", "in whose `name` to act; it is recorded (default: the operating system's user)")
	command.Flags().StringVarP(&w.reason, "reason", "m", "", "why; it is recorded, and shown in the report")
}

// name is the actor, by default the operating system's user.
func (w *who) name() string {
	if actor := strings.TrimSpace(w.actor); actor != "" {
		return actor
	}
	if current, err := user.Current(); err == nil {
		return current.Username
	}
	return ""
}

// keyOrRandom is the idempotency key, a random one unless the caller has chosen.
func keyOrRandom(chosen string) string {
	if chosen != "" {
		return chosen
	}
	return uuid.NewString()
}

// via tells the API that the person came through the command line.
func via() *client.Via {
	cli := client.FrontDoorCLI
	return &cli
}
