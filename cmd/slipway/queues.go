package main

import (
	"strings"

	"go.uber.org/fx"

	"slipway.io/slipway/activities/centre"
	"slipway.io/slipway/activities/leg"
	partyservings "slipway.io/slipway/activities/serving"
	partysource "slipway.io/slipway/activities/source"
	"slipway.io/slipway/activities/traffic"
	"slipway.io/slipway/activities/workload"
	"slipway.io/slipway/cli/settings"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/worker"
	"slipway.io/slipway/workflows"
)

// queueParts are the activities of a worker.
type queueParts struct {
	fx.In

	Settings  settings.Settings
	Workloads *workload.Activities
	Routes    *traffic.Activities
	Servings  *partyservings.Activities
	Code      *partysource.Activities
	// Centre is nil in a party's own worker.
	Centre *centre.Activities `optional:"true"`
}

// newQueues returns the queues of the parties that this process serves, and the engine's in a worker of the centre.
func newQueues(p queueParts) []worker.Queue {
	var queues []worker.Queue
	if p.Centre != nil {
		queues = append(queues, worker.Queue{Name: workflows.QueueEngine, Workflows: true,
			Activities: []worker.Registrar{p.Centre}})
	}
	_, names := servedParties(p.Settings)
	for _, name := range names {
		queues = append(queues, worker.Queue{Name: name, Activities: []worker.Registrar{p.Workloads,
			leg.New(p.Workloads, p.Routes, leg.Options{}), p.Servings, p.Code}})
	}
	return queues
}

// servedParties returns the parties that this process serves, and their queues.
func servedParties(s settings.Settings) (names, queues []string) {
	if len(s.Parties) == 0 {
		s.Parties = []string{catalog.DefaultParty}
	}
	for _, served := range s.Parties {
		name, queue, own := strings.Cut(served, "=")
		if !own {
			queue = catalog.PartyQueue(name)
		}
		names, queues = append(names, name), append(queues, queue)
	}
	return names, queues
}
