package kuscia

import (
	"context"
	"log/slog"

	"slipway.io/slipway/api/kuscia/kusciapb"
)

// Service answers Kuscia's requests, whichever way they come. Its methods never return an error: the status inside the answer says what is wrong.
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
