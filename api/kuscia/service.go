// Package kuscia implements Kuscia's API, so that Kuscia's clients work unmodified: servings, AppImages and health over
// HTTP, as JSON or protobuf, and over gRPC.
//
// The folder proto is the source of the messages, from which kusciapb is generated. This package validates a request
// and writes it to the home cluster as a KusciaDeployment or an AppImage, completely or not at all; the controllers of
// these objects carry it out.
package kuscia

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"

	"google.golang.org/protobuf/types/known/anypb"

	"slipway.io/slipway/api/auth"
	"slipway.io/slipway/api/declared"
	"slipway.io/slipway/api/kuscia/convert"
	"slipway.io/slipway/api/kuscia/kusciapb"
	"slipway.io/slipway/api/limits"
	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

//go:generate protogen proto . slipway.io/slipway/api/kuscia

// Service implements Kuscia's operations for all protocols. Its methods never return an error: the status in the
// response reports it.
type Service struct {
	kusciapb.UnimplementedServingServiceServer
	kusciapb.UnimplementedAppImageServiceServer
	kusciapb.UnimplementedHealthServiceServer

	store homeStore
	log   *slog.Logger
}

// NewService returns a Service on the store.
func NewService(store homeStore, log *slog.Logger) *Service { return &Service{store: store, log: log} }

// HealthZ reports whether the home cluster, which all operations need, is reachable.
func (s *Service) HealthZ(ctx context.Context, _ *kusciapb.HealthRequest) (*kusciapb.HealthResponse, error) {
	ready := s.store.CheckCluster(ctx) == nil
	return &kusciapb.HealthResponse{Status: outcome(nil, codeSuccess),
		Data: &kusciapb.HealthResponseData{Ready: ready}}, nil
}

// The codes of Kuscia's responses. Kuscia has no code for a missing serving: only the message reports it.
const (
	codeSuccess            = 0
	codeRequestValidate    = 11100
	codeUnexpected         = 11101
	codeCreateServing      = 11600
	codeQueryServing       = 11601
	codeQueryServingStatus = 11602
	codeUpdateServing      = 11603
	codeDeleteServing      = 11604
	codeCreateAppImage     = 13100
	codeQueryAppImage      = 13101
	codeUpdateAppImage     = 13102
	codeDeleteAppImage     = 13103
	codeBatchQueryAppImage = 13104
	codeAppImageNotExists  = 13105
	codeAppImageExists     = 13106
	codeListAppImage       = 13107
)

// refusal is an error with its own code; other errors get the code of the operation.
type refusal struct {
	code    int32
	message string
}

func (r *refusal) Error() string { return r.message }

func refused(code int32, format string, args ...any) error {
	return &refusal{code: code, message: fmt.Sprintf(format, args...)}
}

// invalid refuses a request that is wrong regardless of the current state.
func invalid(format string, args ...any) error { return refused(codeRequestValidate, format, args...) }

// codeOf returns the error's own code; operation, the code of the operation, if it has none.
func codeOf(err error, operation int32) int32 {
	if own, is := errors.AsType[*refusal](err); is {
		return own.code
	}
	return operation
}

// outcome returns the status of a response: success without an error, else the error's code or, if it has none, that of
// the operation.
func outcome(err error, operation int32) *kusciapb.Status {
	if err == nil {
		return &kusciapb.Status{Code: codeSuccess, Message: "success", Details: []*anypb.Any{}}
	}
	return &kusciapb.Status{Code: codeOf(err, operation), Message: err.Error(), Details: []*anypb.Any{}}
}

// homeStore is the part of the home cluster that this package reads and writes. Errors are failure.Error with the kinds
// NotFound, Conflict, Refused, Forbidden and Unreachable.
type homeStore interface {
	declared.Home
	// ListAppImages reads one page sorted by name; next is "" on the last page.
	ListAppImages(ctx context.Context, limit int, cursor string) (items []kuscia.AppImage, next string, err error)
	DeleteAppImage(ctx context.Context, name string) error
	// DeleteServing returns a Conflict if the ID now belongs to another serving.
	DeleteServing(ctx context.Context, stored *kuscia.KusciaDeployment) error
	// CheckCluster returns an error if the home cluster cannot be read.
	CheckCluster(ctx context.Context) error
}

// writer checks and writes servings.
func (s *Service) writer() declared.Writer { return declared.Writer{Home: s.store} }

// readImages returns the function that reads the AppImages of parties.
func (s *Service) readImages(ctx context.Context) convert.ReadImages {
	return func(parties []kuscia.Party) (convert.Images, error) { return s.writer().Images(ctx, parties) }
}

// notFound is the error for a missing object, with the API server's message: clients recognise it by the message,
// because there is no code for it.
func notFound(resource, name string) error {
	return failure.New(failure.NotFound, "%s.%s %q not found", resource, kuscia.GroupVersion.Group, name)
}

// getServing reads a serving. A serving that is being deleted is not found.
func (s *Service) getServing(ctx context.Context, id string) (*kuscia.KusciaDeployment, error) {
	missing := notFound(kuscia.KusciaDeploymentResource.Resource, id)
	if declared.CheckName(id) != nil {
		return nil, missing
	}
	serving, err := s.store.GetServing(ctx, id)
	if failure.Is(err, failure.NotFound) || err == nil && serving.DeletionTimestamp != nil {
		return nil, missing
	}
	return serving, err
}

// getAppImage reads an AppImage.
func (s *Service) getAppImage(ctx context.Context, name string) (*kuscia.AppImage, error) {
	missing := refused(codeAppImageNotExists, "%s", notFound(kuscia.AppImageResource.Resource, name))
	if declared.CheckName(name) != nil {
		return nil, missing
	}
	image, err := s.store.GetAppImage(ctx, name)
	if failure.Is(err, failure.NotFound) {
		return nil, missing
	}
	return image, err
}

// Protocol is the protection of Kuscia's API.
type Protocol string

// The protocols.
const (
	// NOTLS: no TLS, and the token of Slipway's own API if that requires one; for loopback only.
	NOTLS Protocol = "NOTLS"
	// TLS: TLS and a token.
	TLS Protocol = "TLS"
	// MTLS: TLS, a token and client certificates.
	MTLS Protocol = "MTLS"
)

// Security holds the settings that protect Kuscia's API. The zero Security is NOTLS on a loopback address.
type Security struct {
	// TLS is nil for NOTLS.
	TLS *auth.TLSFiles
	// Token is required of every request.
	Token auth.Lock
	// Hosts are the host names that requests may be addressed to.
	Hosts auth.Hosts
	// Proxies name the clients that they forward requests of.
	Proxies limits.Proxies
}

// guard returns the checks before the token, which Kuscia's clients send in a header of their own.
func (s Security) guard() auth.Guard { return auth.Guard{Hosts: s.Hosts} }

// Closed reports whether clients need credentials.
func (s Security) Closed() bool { return s.Token.Closed() || s.TLS.ClientCAs() != nil }

// authenticate refuses a request of a client without the token: header returns the values of its headers. Only the
// first value of each counts, so that a request cannot try many tokens.
func (s Security) authenticate(client string, header func(name string) []string) error {
	first := func(name string) string { return append(header(name), "")[0] }
	return s.Token.Authenticate(client, first(HeaderToken), auth.Bearer(first("Authorization")))
}

// Files are the paths of a Security's parts.
type Files struct {
	// Certificate and Key belong to the listener, CA verifies client certificates, Token contains the token.
	Certificate, Key, CA, Token string
}

// thisAPI names the API in errors.
const thisAPI = "Kuscia's API"

// LoadSecurity reads the files of a protocol, which are read again when they change. It creates a missing token file.
// With NOTLS, the token is that of Slipway's own API.
func LoadSecurity(protocol Protocol, files Files, own auth.Lock, log *slog.Logger) (Security, error) {
	lock := auth.Lock{API: thisAPI, Label: "kuscia", Source: own.Source, Header: "header `Token`",
		Token: own.Token, Failures: own.Failures}
	if protocol == NOTLS {
		return Security{Token: lock}, nil
	}
	ca := ""
	if protocol == MTLS {
		ca = files.CA
	}
	encryption, err := auth.LoadTLS(thisAPI, log, files.Certificate, files.Key, ca, tls.RequireAndVerifyClientCert)
	if err != nil {
		return Security{}, err
	}
	lock.Source = "the engine's --kuscia-token-file"
	lock.Token, err = auth.OpenToken(thisAPI, files.Token)
	return Security{TLS: encryption, Token: lock}, err
}
