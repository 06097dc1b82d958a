// Package kuscia speaks Kuscia's API, so that a client of Kuscia works unmodified: servings, AppImages and health over HTTP, as JSON or
// protobuf, and over gRPC.
//
// proto is the source of the messages, from which kusciapb is generated. A request is judged here and then written to the home cluster as
// a KusciaDeployment or an AppImage, whole or not at all; carrying it out is the business of whoever watches those objects.
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

// Service answers Kuscia's requests, whichever way they come. Its methods never return an error: the status inside the answer says what
// is wrong.
type Service struct {
	kusciapb.UnimplementedServingServiceServer
	kusciapb.UnimplementedAppImageServiceServer
	kusciapb.UnimplementedHealthServiceServer

	store homeStore
	log   *slog.Logger
}

// NewService answers by what is in the store.
func NewService(store homeStore, log *slog.Logger) *Service { return &Service{store: store, log: log} }

// HealthZ says whether the home cluster, without which nothing can be answered, is there.
func (s *Service) HealthZ(ctx context.Context, _ *kusciapb.HealthRequest) (*kusciapb.HealthResponse, error) {
	ready := s.store.CheckCluster(ctx) == nil
	return &kusciapb.HealthResponse{Status: outcome(nil, codeSuccess), Data: &kusciapb.HealthResponseData{Ready: ready}}, nil
}

// The codes of Kuscia's answers. There is none of its own for a serving that does not exist: its message says so.
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

// refusal is an error that has a code of its own; other errors get that of the operation.
type refusal struct {
	code    int32
	message string
}

func (r *refusal) Error() string { return r.message }

func refused(code int32, format string, args ...any) error {
	return &refusal{code: code, message: fmt.Sprintf(format, args...)}
}

// invalid refuses a request that no state of things could make good.
func invalid(format string, args ...any) error { return refused(codeRequestValidate, format, args...) }

// outcome is the status of an answer: success without an error, else the error's code or, where it has none, that of the operation.
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
