// Package api is Slipway's HTTP front door. openapi.yaml is its source: server.gen.go, the package schema and the package client are
// generated from it. Each resource is answered by a package of its own (plans, rollouts, servings, parties, trafficroutings), which this
// one composes; what they share is in start, stream, input, answer, page, problem and backend.
//
// The front door decides nothing about a release: plans are judged by release/plan, tasks run as Temporal workflows, and what is declared
// or past is in the home cluster.
package api
