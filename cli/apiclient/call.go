package apiclient

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"

	"slipway.io/slipway/api/client"
)

// Call is an operation of the generated client, on the object of this name (NAMESPACE/NAME if it is namespaced).
// The functions that follow make one from a method of the client, by its parameters. Optional parameters are set by the
// Request.
type Call func(ctx context.Context, api *client.Client, name string, r Request) (*http.Response, error)

type edit = client.RequestEditorFn

// List calls an operation on a collection.
func List[P any](call func(*client.Client, context.Context, *P, ...edit) (*http.Response, error)) Call {
	return func(ctx context.Context, api *client.Client, _ string, r Request) (*http.Response, error) {
		return call(api, ctx, nil, r.edit)
	}
}

// Named calls an operation on an object; NamedBody one with a body.
func Named(call func(*client.Client, context.Context, string, ...edit) (*http.Response, error)) Call {
	return func(ctx context.Context, api *client.Client, name string, r Request) (*http.Response, error) {
		return call(api, ctx, name, r.edit)
	}
}

// NamedBody is Named for an operation with a body.
func NamedBody(call func(*client.Client, context.Context, string, string, io.Reader, ...edit) (*http.Response,
	error)) Call {
	return func(ctx context.Context, api *client.Client, name string, r Request) (*http.Response, error) {
		return call(api, ctx, name, r.ContentType, bytes.NewReader(r.Body), r.edit)
	}
}

// NamedWith is Named for an operation with optional parameters.
func NamedWith[P any](call func(*client.Client, context.Context, string, *P, ...edit) (*http.Response, error)) Call {
	return func(ctx context.Context, api *client.Client, name string, r Request) (*http.Response, error) {
		return call(api, ctx, name, nil, r.edit)
	}
}

// NamedBodyWith is Named for an operation with a body and optional parameters.
func NamedBodyWith[P any](call func(*client.Client, context.Context, string, *P, string, io.Reader,
	...edit) (*http.Response, error)) Call {
	return func(ctx context.Context, api *client.Client, name string, r Request) (*http.Response, error) {
		return call(api, ctx, name, nil, r.ContentType, bytes.NewReader(r.Body), r.edit)
	}
}

// Spaced calls an operation on a namespaced object.
func Spaced(call func(*client.Client, context.Context, string, string, ...edit) (*http.Response, error)) Call {
	return func(ctx context.Context, api *client.Client, key string, r Request) (*http.Response, error) {
		namespace, name, _ := strings.Cut(key, "/")
		return call(api, ctx, namespace, name, r.edit)
	}
}

// SpacedWith is Spaced for an operation with optional parameters.
func SpacedWith[P any](call func(*client.Client, context.Context, string, string, *P,
	...edit) (*http.Response, error)) Call {
	return func(ctx context.Context, api *client.Client, key string, r Request) (*http.Response, error) {
		namespace, name, _ := strings.Cut(key, "/")
		return call(api, ctx, namespace, name, nil, r.edit)
	}
}

// SpacedBody is Spaced for an operation with a body.
func SpacedBody(call func(*client.Client, context.Context, string, string, string, io.Reader,
	...edit) (*http.Response, error)) Call {
	return func(ctx context.Context, api *client.Client, key string, r Request) (*http.Response, error) {
		namespace, name, _ := strings.Cut(key, "/")
		return call(api, ctx, namespace, name, r.ContentType, bytes.NewReader(r.Body), r.edit)
	}
}

// SpacedBodyWith is Spaced for an operation with a body and optional parameters.
func SpacedBodyWith[P any](call func(*client.Client, context.Context, string, string, *P, string, io.Reader,
	...edit) (*http.Response, error)) Call {
	return func(ctx context.Context, api *client.Client, key string, r Request) (*http.Response, error) {
		namespace, name, _ := strings.Cut(key, "/")
		return call(api, ctx, namespace, name, nil, r.ContentType, bytes.NewReader(r.Body), r.edit)
	}
}

// Request is a call with its parameters.
type Request struct {
	Call Call
	// Name is the name of the object; "" for a collection.
	Name  string
	Query url.Values
	// ContentType is the type of the body; "" without a body.
	ContentType string
	Body        []byte
	// IdempotencyKey, if not "", makes a repeat the same request.
	IdempotencyKey string
	// LastEventID, if not "", makes an event stream start with the event after this one.
	LastEventID string
}

// Send sends the request.
func (r Request) Send(ctx context.Context, api *client.Client) (*http.Response, error) {
	return r.Call(ctx, api, r.Name, r)
}

// edit sets the parameters of the request that are not in its path.
func (r Request) edit(_ context.Context, request *http.Request) error {
	request.URL.RawQuery = r.Query.Encode()
	for name, value := range map[string]string{"Idempotency-Key": r.IdempotencyKey, "Last-Event-ID": r.LastEventID} {
		if value != "" {
			request.Header.Set(name, value)
		}
	}
	return nil
}
