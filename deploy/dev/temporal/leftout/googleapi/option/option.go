// Package option has the one option of Google's clients that Temporal's server names.
package option

import "golang.org/x/oauth2"

// ClientOption is an option of a client.
type ClientOption struct{}

// WithTokenSource is an option that the client of package storage, which always fails, does not read.
func WithTokenSource(oauth2.TokenSource) ClientOption { return ClientOption{} }
