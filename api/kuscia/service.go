// Package kuscia implements Kuscia's API, so that Kuscia's clients work unmodified: servings, AppImages and health over
// HTTP, as JSON or protobuf, and over gRPC.
//
// The folder proto is the source of the messages, from which kusciapb is generated. This package validates a request
// and writes it to the home cluster as a KusciaDeployment or an AppImage, completely or not at all; the controllers of
// these objects carry it out.
package kuscia

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"google.golang.org/protobuf/types/known/anypb"

	"slipway.io/slipway/api/kuscia/kusciapb"
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

// outcome returns the status of a response: success without an error, else the error's code or, if it has none, that of
// the operation.
func outcome(err error, operation int32) *kusciapb.Status {
	status := &kusciapb.Status{Code: codeSuccess, Message: "success", Details: []*anypb.Any{}}
	if err == nil {
		return status
	}
	status.Code, status.Message = operation, err.Error()
	var own *refusal
	if errors.As(err, &own) {
		status.Code = own.code
	}
	return status
}
