package repair

import (
	"context"
	"log/slog"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"slipway.io/slipway/activities/traffic"
	"slipway.io/slipway/activities/workload"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/rollout"
)

// repairQPS and repairBurst bound the requests per second of a repair.
const (
	qPS   = 50
	burst = 100
)

// tools are what a repair works with: a reader of the cluster, and the activities of a party's worker.
type tools struct {
	objects dynamic.Interface
	hands   hands
	close   func()
}

// bothHands are the activities on pods and on traffic together.
type bothHands struct {
	*workload.Activities
	traffic *traffic.Activities
}

// Route makes one change of the traffic.
func (h bothHands) Route(ctx context.Context, request rollout.RouteRequest) (rollout.RouteResult, error) {
	return h.traffic.Route(ctx, request)
}

// newTools makes the tools for one cluster. What the activities log is for an engine's log, not for a person who repairs.
func newTools(config *rest.Config) (*tools, error) {
	typed, objects, err := kube.NewClients(config)
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.DiscardHandler)
	routes, err := traffic.New(typed, objects, traffic.Options{Logger: log})
	if err != nil {
		return nil, err
	}
	pods := workload.New(typed, objects, workload.Options{Logger: log})
	return &tools{objects: objects, hands: bothHands{Activities: pods, traffic: routes}, close: pods.Stop}, nil
}
