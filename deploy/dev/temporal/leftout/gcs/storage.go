// Package storage replaces the client of Google Cloud Storage, which Temporal's server compiles in for archival. The
// local server has no archive: each call fails.
package storage

import (
	"context"
	"errors"

	"google.golang.org/api/option"
)

// ScopeFullControl is the scope that an archive requests.
const ScopeFullControl = "https://www.googleapis.com/auth/devstorage.full_control"

var errLeftOut = errors.New("the local Temporal server keeps no archive in Google Cloud Storage: use a regular " +
	"Temporal server for it")

type (
	Client         struct{}
	BucketHandle   struct{}
	ObjectHandle   struct{}
	ObjectIterator struct{}
	Writer         struct{}
	Reader         struct{}
	BucketAttrs    struct{}
	ObjectAttrs    struct{ Name string }
	Query          struct{ Prefix string }
)

func NewClient(context.Context, ...option.ClientOption) (*Client, error) { return nil, errLeftOut }

func (*Client) Bucket(string) *BucketHandle { return &BucketHandle{} }

func (*BucketHandle) Object(string) *ObjectHandle                     { return &ObjectHandle{} }
func (*BucketHandle) Objects(context.Context, *Query) *ObjectIterator { return &ObjectIterator{} }
func (*BucketHandle) Attrs(context.Context) (*BucketAttrs, error)     { return nil, errLeftOut }

func (*ObjectHandle) NewWriter(context.Context) *Writer           { return &Writer{} }
func (*ObjectHandle) NewReader(context.Context) (*Reader, error)  { return nil, errLeftOut }
func (*ObjectHandle) Attrs(context.Context) (*ObjectAttrs, error) { return nil, errLeftOut }

func (*ObjectIterator) Next() (*ObjectAttrs, error) { return nil, errLeftOut }

func (*Writer) Write([]byte) (int, error)  { return 0, errLeftOut }
func (*Writer) Close() error               { return errLeftOut }
func (*Writer) CloseWithError(error) error { return errLeftOut }

func (*Reader) Read([]byte) (int, error) { return 0, errLeftOut }
func (*Reader) Close() error             { return errLeftOut }
