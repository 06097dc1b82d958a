// Package option has the one option of Google's clients that Temporal's server uses.
package option

import "golang.org/x/oauth2"

// ClientOption is an option of a client.
type ClientOption struct{}

// WithTokenSource returns an option that the client of package storage, which always fails, ignores.
func WithTokenSource(oauth2.TokenSource) ClientOption { return ClientOption{} }
